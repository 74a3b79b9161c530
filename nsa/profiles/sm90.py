"""Hopper (SM 9.0 and newer): H100, H200."""

from nsa.profiles.profile import UNMEASURED, Measured, Profile

_DEFAULT = "not measured against PyTorch: the kernels were made for this architecture and are its default"
_DENSE = (
    "H200, torch 2.11, Triton 3.6, bf16, forward, random inputs, against cuDNN: group size 16 slower at 8k (1.87 ms, "
    "1.74) and faster at 16k (4.41, 6.77), group size 4 slower at 8k (1.48, 0.91) and faster at 64k (19.5, 57.7); "
    "interpolated in between (artifacts/bench/h200-kernels)"
)
PROFILE = Profile(
    name="sm90",
    fa2_min_len_win=Measured(16, UNMEASURED),
    fa2_min_len_cmp=Measured(16, UNMEASURED),
    sel_triton=Measured(True, _DEFAULT),
    sel_triton_min_L=Measured(0, _DEFAULT),
    dense_below=Measured({4: 15700, 16: 9100}, _DENSE),
    kernels_timed=Measured(True, "timed on an H200 (docs/kernels.md)"),
)
