"""Hopper (SM 9.0 and newer): H100, H200."""

from nsa.profiles.profile import UNMEASURED, Measured, Profile

_DEFAULT = "not measured against PyTorch: the kernels were made for this architecture and are its default"
_DENSE = (
    "H200, torch 2.11, Triton 3.6, bf16, forward, random inputs, against cuDNN: group size 16 slower at 8k (2.84 ms, "
    "1.74) and faster at 16k (6.1, 7.1), group size 4 slower at 16k (3.89, 3.38) and faster at 64k (23.2, 60.6); "
    "interpolated in between (artifacts/bench/h200-kernels)"
)
PROFILE = Profile(
    name="sm90",
    fa2_min_len_win=Measured(16, UNMEASURED),
    fa2_min_len_cmp=Measured(16, UNMEASURED),
    sel_triton=Measured(True, _DEFAULT),
    sel_triton_min_L=Measured(0, _DEFAULT),
    dense_below=Measured({4: 19000, 16: 14000}, _DENSE),
)
