"""How a cache makes compressed tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from nsa import routing
from nsa.blocks import compressed_positions
from nsa.config import NSAConfig
from nsa.functional import compress, rotate

Compressor = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(k, v, first) -> (k_cmp, v_cmp): compressed tokens [B,E,Hkv,D*] of the spans that begin at rows 0, d, 2d ... of
k, v [B,(E-1)*d+l,Hkv,D*], whose first row has the position first[b] (int64 [B])."""


@dataclass(frozen=True)
class MeanCompressor:
    """The mean over a span; keys are rotated afterwards, at the first position of their span.

    A decode kernel can make these itself: it knows them by their type.

    Attributes:
        config: the sizes.
        base: of the rotary embedding, None without one.
        backend, strict: of `nsa.ops.compress` and `nsa.ops.rotate`.
    """

    config: NSAConfig
    base: float | None = None
    backend: routing.BackendChoice = None
    strict: bool = False

    def __call__(self, k: Tensor, v: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Compressed tokens, as a `Compressor`."""
        how = {"backend": self.backend, "strict": self.strict}
        k_cmp, v_cmp = (compress(x, self.config, **how) for x in (k, v))
        if self.base is None:
            return k_cmp, v_cmp
        at = first[:, None] + compressed_positions(k_cmp.shape[1], self.config, None, first.device)
        return rotate(k_cmp, at, self.base, **how), v_cmp
