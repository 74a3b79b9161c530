"""Consumer Blackwell (SM 12.0 and 12.1): RTX 5090. It has the shared memory of sm_89, and takes its tiles."""

from nsa.profiles.profile import UNMEASURED, Measured, Profile

_DEFAULT = "not measured on this architecture: the default of the kernels that fit its shared memory"
PROFILE = Profile(
    name="sm120",
    fa2_min_len_win=Measured(16, UNMEASURED),
    fa2_min_len_cmp=Measured(16, UNMEASURED),
    sel_triton=Measured(True, _DEFAULT),
    sel_triton_min_L=Measured(0, _DEFAULT),
    kernels_timed=Measured(False, "compiled for sm_120 in the tiles of sm_89, never timed there"),
)
