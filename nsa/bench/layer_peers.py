"""Layers of others beside ours, from a checkout or a folder of packages that is named: --peer fla=/path/to/it.

Their interfaces: flash-linear-attention 0.6, `fla.layers.nsa.NativeSparseAttention`; mdy666's
Scalable-Flash-Native-Sparse-Attention, `flash_nsa.layers.hf_level_nsa.HFNSA`, with its `NSAConfig`. Both share keys and
values between the branches, rotate the keys before they are compressed, and have one head dimension for all three.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

from nsa.bench.cases import Case, Where
from nsa.bench.kernels_fla import WHOLE as FLA_DIFFERS
from nsa.rope import frequencies

Call = Callable[[Tensor], Tensor]
BASE = 1e4
SHARED = "one projection of keys and values for all branches, keys rotated before their means"


def _fla(case: Case, where: Where) -> tuple[nn.Module, Call]:
    config = case.config
    layer = import_module("fla.layers.nsa").NativeSparseAttention(
        hidden_size=case.dim, num_heads=case.heads, num_kv_heads=case.kv_heads, head_dim=_one_dim(case),
        block_size=config.l_sel, block_counts=config.n_sel, window_size=config.w, rope_theta=BASE,
    ).to(where.device, where.dtype)  # fmt: skip
    return layer, lambda x: layer(x)[0]


def _mdy(case: Case, where: Where) -> tuple[nn.Module, Call]:
    config = case.config
    sizes = import_module("flash_nsa.config").NSAConfig(
        hidden_size=case.dim, num_heads=case.heads, num_kv_heads=case.kv_heads, qk_head_dim=case.dk,
        v_head_dim=case.dv, kernel_size=config.l, stride=config.d, block_size=config.l_sel, top_n=config.n_sel,
        num_init_blocks=config.init_blocks, num_local_blocks=config.local_blocks, window_size=config.w,
    )  # fmt: skip
    layer = import_module("flash_nsa.layers.hf_level_nsa").HFNSA(sizes).to(where.device, where.dtype)
    at = torch.arange(case.tokens, device=where.device, dtype=torch.float32)
    angle = at[None, :, None] * frequencies(case.dk, BASE, where.device).repeat(2)
    by = angle.cos().to(where.dtype), angle.sin().to(where.dtype)
    return layer, lambda x: layer(x, by)


def _one_dim(case: Case) -> int:
    if case.dk != case.dv:
        raise ValueError(f"one head dimension only, not {case.dk} and {case.dv}")
    return case.dk


PEERS: dict[str, tuple[Callable[[Case, Where], tuple[nn.Module, Call]], str]] = {
    "fla": (_fla, f"{FLA_DIFFERS}; {SHARED}"),
    "mdy": (_mdy, SHARED),
}
"""By name: what makes the layer, and in which way it computes something else than ours."""


def named(text: str) -> str:
    """NAME of NAME=PATH, whose packages can be imported from then on."""
    name, _, path = text.partition("=")
    if name not in PEERS or not path:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=PATH, NAME one of {', '.join(PEERS)}")
    if not Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"{path} is no folder")
    sys.path.insert(0, str(Path(path).resolve()))
    return name
