"""Hopper (SM 9.0 and newer): H100, H200."""

from nsa.profiles.profile import UNMEASURED, Measured, Profile

_DEFAULT = "not measured against PyTorch: the kernels were made for this architecture and are its default"
PROFILE = Profile(
    name="sm90",
    fa2_min_len_win=Measured(16, UNMEASURED),
    fa2_min_len_cmp=Measured(16, UNMEASURED),
    sel_triton=Measured(True, _DEFAULT),
    sel_triton_min_L=Measured(0, _DEFAULT),
)
