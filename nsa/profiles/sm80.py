"""Ampere, data centre and consumer (SM 8.0 to 8.8): A100, RTX 3090."""

from nsa.profiles.profile import UNMEASURED, Measured, Profile

PROFILE = Profile(
    name="sm80",
    fa2_min_len_win=Measured(16, UNMEASURED),
    fa2_min_len_cmp=Measured(16, UNMEASURED),
    sel_triton=Measured(True, UNMEASURED),
    sel_triton_min_L=Measured(4096, UNMEASURED),
    kernels_timed=Measured(False, "compiled for sm_80, never timed there"),
)
