"""The steps of Native Sparse Attention, one public function each; the same names exist in `nsa.reference`."""

from nsa.ops.attention import nsa_attention
from nsa.ops.combine import gated_combine
from nsa.ops.compressed import compressed_attention
from nsa.ops.compression import compress
from nsa.ops.decode import cached_attention, nsa_decode
from nsa.ops.rotation import rotate
from nsa.ops.selected import selected_attention
from nsa.ops.selection import select_blocks
from nsa.ops.window import sliding_window_attention

__all__ = [
    "cached_attention",
    "compress",
    "compressed_attention",
    "gated_combine",
    "nsa_attention",
    "nsa_decode",
    "rotate",
    "select_blocks",
    "selected_attention",
    "sliding_window_attention",
]
