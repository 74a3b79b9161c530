"""Ada (SM 8.9): RTX 4090. FlashAttention-2 as the seeds measured it there; these kernels were not measured yet."""

from nsa.profiles.profile import Measured, Profile

_FA2 = "seed 004, RTX 4090, torch 2.4.1: FA-2 0.01x to 0.20x the speed of SDPA up to 2048 tokens"
_SELECTION = (
    "not measured with these kernels: the default of what fits 99 KiB of shared memory "
    "(seed 004's 2x to 25x slower than SDPA on an RTX 4090 was of other kernels)"
)
PROFILE = Profile(
    name="sm89",
    fa2_min_len_win=Measured(999999, _FA2),
    fa2_min_len_cmp=Measured(999999, _FA2),
    sel_triton=Measured(True, _SELECTION),
    sel_triton_min_L=Measured(0, _SELECTION),
    kernels_timed=Measured(False, "compiled for sm_89, under Triton 3.0 too, never timed there"),
)
