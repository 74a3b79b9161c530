"""Any CPU: PyTorch only, unless a backend is asked for (Triton's interpreter in tests)."""

from nsa.profiles.profile import Measured, Profile

_NONE = "does not apply: FlashAttention-2 and compiled Triton have no CPU path"
PROFILE = Profile(
    name="cpu",
    fa2_min_len_win=Measured(0, _NONE),
    fa2_min_len_cmp=Measured(0, _NONE),
    sel_triton=Measured(True, "runs only when asked for, in Triton's interpreter"),
    sel_triton_min_L=Measured(0, "runs only when asked for, in Triton's interpreter"),
    kernels_timed=Measured(False, "interpreted on a CPU, which is for tests"),
)
