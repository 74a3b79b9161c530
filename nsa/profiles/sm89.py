"""Ada (SM 8.9): RTX 4090. The seeds' record, until a measurement on that card with these kernels replaces it."""

from nsa.profiles.profile import Measured, Profile

_FA2 = "seed 004, RTX 4090, torch 2.4.1: FA-2 0.01x to 0.20x the speed of SDPA up to 2048 tokens"
_SELECTION = "seed 004 and its ADR-2025-08-M4-02, RTX 4090: Triton selection 2x to 25x slower than SDPA"
PROFILE = Profile(
    name="sm89",
    fa2_min_len_win=Measured(999999, _FA2),
    fa2_min_len_cmp=Measured(999999, _FA2),
    sel_triton=Measured(False, _SELECTION),
    sel_triton_min_L=Measured(4096, _SELECTION),
    kernels_timed=Measured(False, "compiled for sm_89, under Triton 3.0 too, never timed there"),
)
