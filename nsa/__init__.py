"""Native Sparse Attention (arXiv 2502.11089): compressed, selected and window attention under gates.

PyTorch is imported with the first of these names: a process that only hands out others' tests does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsa import ops, reference, routing
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

_MODULES = {
    "NSACache": "cache", "NSAConfig": "config", "NativeSparseAttention": "layer", "explain_routing": "routing",
    "nsa_attention": "ops", "nsa_decode": "ops", "plan": "functional",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """One of these names, or a module of the package."""
    place = f"{__name__}.{_MODULES.get(name, name)}"
    try:
        module = import_module(place)
    except ModuleNotFoundError as error:
        if error.name != place:
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = globals()[name] = getattr(module, name) if name in _MODULES else module
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
