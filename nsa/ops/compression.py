"""Compression of keys or values into one token for each span (Eq. 7)."""

from __future__ import annotations

import torch
from torch import Tensor

from nsa import library, routing
from nsa.blocks import num_compressed
from nsa.config import NSAConfig
from nsa.ops import checks
from nsa.phi import MlpPhi, Phi, WeightedPhi

NAME = "compress"
KINDS = {type(None): "mean", WeightedPhi: "weighted", MlpPhi: "mlp"}
"""How a request names a map."""


def _shapes(given: library.Arguments, keep: bool) -> list[Tensor]:
    x: Tensor = given["x"]
    packed = given["cu_seqlens"] is not None
    count = torch.library.get_ctx().new_dynamic_size() if packed else num_compressed(x.shape[1], given["config"])
    return [x.new_empty(x.shape[0], count, *x.shape[2:])]


@library.operator(_shapes)
def compress(
    x: Tensor,
    config: NSAConfig = NSAConfig(),
    *,
    phi: Phi | None = None,
    cu_seqlens: Tensor | None = None,
    backend: routing.BackendChoice = None,
    strict: bool = False,
) -> Tensor:
    """One compressed token for each complete span [i*d, i*d+l).

    Args:
        x: keys or values [B,T,Hkv,D], not rotated.
        config: the sizes.
        phi: a learned map; None is the mean.
        cu_seqlens: borders of packed sequences, int32 or int64 [N+1]; B is 1.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        [B,Tc,Hkv,D]; packed: the segments' compressed tokens in order (borders: `nsa.blocks.cu_seqlens_cmp`).
    """
    checks.shape(NAME, "x", x, "[B,T,Hkv,D]")
    checks.alike(NAME, x=x)
    checks.sizes(NAME, config)
    parameters = _checked_phi(x, config, phi)
    cu_seqlens = checks.borders(NAME, cu_seqlens, x)
    if cu_seqlens is not None:
        checks.packing(NAME, x.shape[1], x.shape[0], cu_seqlens)
    batch, tokens, heads, dim = x.shape
    request = routing.Request(
        NAME, x.device, x.dtype, batch, tokens, tokens, heads, heads, dim, dim, config,
        cu_seqlens is not None, needs_grad=library.needs_grad([x, *parameters.values()]), phi=KINDS[type(phi)],
    )  # fmt: skip
    return routing.run(
        request,
        lambda module: module.compress(x, config, phi=phi, cu_seqlens=cu_seqlens),
        backend=backend,
        strict=strict,
    )


def _checked_phi(x: Tensor, config: NSAConfig, phi: Phi | None) -> dict[str, Tensor]:
    """The map's tensors by name, refused if they do not fit x."""
    if type(phi) not in KINDS:
        raise TypeError(f"{NAME}: phi must be a WeightedPhi, an MlpPhi or None, got {type(phi).__name__}")
    heads, dim = x.shape[2:]
    parameters = {} if phi is None else {f"phi.{name}": y for name, y in vars(phi).items()}
    checks.alike(NAME, x=x, **parameters)
    expected: dict[str, list[int]] = {}
    if isinstance(phi, WeightedPhi):
        expected = {"weight": [heads, config.l]}
    elif isinstance(phi, MlpPhi):
        hidden = phi.w_in.shape[-1]
        expected = {
            "position": [heads, config.l, dim], "w_in": [heads, config.l * dim, hidden], "b_in": [heads, hidden],
            "w_out": [heads, hidden, dim], "b_out": [heads, dim],
        }  # fmt: skip
    for name, sizes in expected.items():
        found = list(parameters[f"phi.{name}"].shape)
        if found != sizes:
            raise ValueError(f"{NAME}: phi.{name} must have the shape {sizes}, got {found}")
    return parameters
