"""Native Sparse Attention (arXiv 2502.11089): compressed, selected and window attention under gates."""

from nsa import ops, reference, routing
from nsa.cache import NSACache
from nsa.config import NSAConfig
from nsa.module import NativeSparseAttention
from nsa.ops import nsa_attention
from nsa.routing import explain_routing

__all__ = [
    "NSACache",
    "NSAConfig",
    "NativeSparseAttention",
    "explain_routing",
    "nsa_attention",
    "ops",
    "reference",
    "routing",
]
