"""Native Sparse Attention (arXiv 2502.11089): compressed, selected and window attention under gates."""

from nsa import ops, reference, routing, vector_math
from nsa.cache import NSACache
from nsa.config import NSAConfig
from nsa.functional import plan
from nsa.layer import NativeSparseAttention
from nsa.ops import nsa_attention, nsa_decode
from nsa.routing import explain_routing

__version__ = "0.1.0"
"""That of `nsa-pod` too, which it is released with."""

__all__ = [
    "NSACache", "NSAConfig", "NativeSparseAttention", "explain_routing", "nsa_attention", "nsa_decode", "ops", "plan",
    "reference", "routing",
]  # fmt: skip

vector_math.call_each_once()
