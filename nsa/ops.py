"""The steps of Native Sparse Attention, one public function each; the same names exist in `nsa.reference`."""

from nsa.decode import cached_attention, nsa_decode
from nsa.functional import (
    compress,
    compressed_attention,
    gated_combine,
    nsa_attention,
    rotate,
    select_blocks,
    selected_attention,
    sliding_window_attention,
)

__all__ = [
    "cached_attention", "compress", "compressed_attention", "gated_combine", "nsa_attention", "nsa_decode", "rotate",
    "select_blocks", "selected_attention", "sliding_window_attention",
]  # fmt: skip
