"""AMD's GPUs: PyTorch, and FlashAttention-2 where it is asked for and installed. The kernels are NVIDIA's."""

from nsa.profiles.profile import UNMEASURED, Measured, Profile

_NONE = "does not apply: the Triton kernels are written for NVIDIA GPUs"
PROFILE = Profile(
    name="rocm",
    fa2_min_len_win=Measured(16, UNMEASURED),
    fa2_min_len_cmp=Measured(16, UNMEASURED),
    sel_triton=Measured(True, _NONE),
    sel_triton_min_L=Measured(0, _NONE),
    kernels_timed=Measured(False, "do not run on AMD's GPUs"),
)
