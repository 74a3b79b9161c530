"""Others beside ours: PyTorch's attention, fla's Native Sparse Attention and cuDNN's front end where they are
installed, and whole layers from a checkout or a folder of packages that is named: --peer fla=/path/to/it.

Their interfaces: flash-linear-attention 0.6, `fla.layers.nsa.NativeSparseAttention` and `fla.ops.nsa.parallel_nsa(q, k,
v, g_cmp, g_slc, g_swa, block_indices, block_counts, block_size, window_size)`, q [B,T,Hq,Dk], group sizes that are
powers of two from 16 on, a window by flash-attn; mdy666's Scalable-Flash-Native-Sparse-Attention,
`flash_nsa.layers.hf_level_nsa.HFNSA`, with its `NSAConfig`. Both layers share keys and values between the branches,
rotate the keys before they are compressed, and have one head dimension for all three.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nsa import ops
from nsa.bench import peers_cudnn
from nsa.bench.cases import Case, Where
from nsa.bench.kernels_parts import SDPA, Part, Tensors, called, dense_attention
from nsa.bench.roofline import attention_work, pairs
from nsa.config import NSAConfig
from nsa.providers.flash import Dense, Flash, provider
from nsa.rope import frequencies

WHOLE = (
    "fla compresses by the means of whole selection blocks (l = d = l_sel, no overlap), shows a block only when it is "
    "complete, scores a block by its own mean, and always takes the first, the current and the previous block"
)
SELECTED = "fla attends to the same blocks, given to it"
NO_FLASH = "; its window by PyTorch's FlashAttention-2, as flash-attn is not installed"
SHARED = "one projection of keys and values for all branches, keys rotated before their means"
BASE = 1e4


# --- operations ---


def absent() -> dict[str, str]:
    """By name of the peer, why there are no rows of it."""
    return {
        name: f"{package} is not installed" for name, (module, package, _) in PEERS.items() if not find_spec(module)
    }


def parts(case: Case, x: Tensors, ours: dict[str, Part]) -> list[Part]:
    """What is timed beside ours: attention to all keys, FlashAttention's window, and the peers that are installed."""
    count, read = pairs(case.tokens, case.config)["dense"], float(x["q"].nbytes + x["k"].nbytes + x["v"].nbytes)
    work = attention_work(count, case, read, float(x["o_cmp"].nbytes))
    found = [Part("whole", by, partial(dense_attention, by), ("q", "k", "v"), *work) for by in SDPA]
    flash = provider()
    if isinstance(flash, Flash) and flash.dense is not None:  # PyTorch's own is of SDPA
        found.append(Part("whole", flash.name, partial(_all_keys, flash.dense), ("q", "k", "v"), *work))
    if case.dk == case.dv:
        found.append(replace(ours["window"], by="fa2", call=flash_window(case.config)))
    installed = [name for name in PEERS if name not in absent()]
    return found + [part for name in installed for part in PEERS[name][2](name, case, x, ours)]


def flash_window(config: NSAConfig) -> Callable[[Tensors], Tensor]:
    """The sliding window by FlashAttention-2."""
    how = {"window": config.w, "backend": "fa2", "strict": True}
    return partial(called, ops.sliding_window_attention, ("q", "k", "v"), how)


def fla_parts(by: str, case: Case, x: Tensors, ours: dict[str, Part]) -> list[Part]:
    """The whole operation and the selected branch by fla; the work that is named is ours, of which it does less."""
    found = find_spec("flash_attn")
    flash = found is not None and found.origin is not None  # not flash-attn-4 alone, which fla does not know
    whole = replace(ours["whole"], call=partial(_whole, case.config, flash), note=WHOLE + ("" if flash else NO_FLASH))
    call = partial(_parallel_nsa, case.config, block_indices=x["indices"].long())
    return [replace(part, by=by) for part in (whole, replace(ours["selected"], call=call, note=SELECTED))]


def _all_keys(dense: Dense, t: Tensors) -> Tensor:
    return dense(t["q"], t["k"], t["v"], t["q"].shape[-1] ** -0.5, None, False)[0]


def _whole(config: NSAConfig, flash: bool, t: Tensors) -> Tensor:
    g_cmp, g_sel, g_win = t["gates"].unbind(-1)
    o = _parallel_nsa(config, t, g_cmp, g_sel, g_win, window_size=config.w if flash else 0)
    if flash:
        return o
    return o.addcmul(flash_window(config)(t), g_win[..., None])


def _parallel_nsa(config: NSAConfig, t: Tensors, *gates: Tensor, **how: Any) -> Tensor:
    from fla.ops.nsa import parallel_nsa

    how |= {"block_counts": config.n_sel, "block_size": config.l_sel}
    return parallel_nsa(t["q"], t["k"], t["v"], *gates, **how)


PEERS: dict[str, tuple[str, str, Callable[[str, Case, Tensors, dict[str, Part]], list[Part]]]] = {
    "fla": ("fla", "flash-linear-attention", fla_parts),
    "cudnn-frontend": ("cudnn", "nvidia-cudnn-frontend", peers_cudnn.parts),
}
"""By name: the module, the package that has it, and what makes its parts under that name."""


# --- layers ---

Layer = tuple[nn.Module, Callable[[Tensor], Tensor]]
"""A layer, and its output of x [B,T,dim]."""


def _fla(case: Case, where: Where) -> Layer:
    config = case.config
    layer = import_module("fla.layers.nsa").NativeSparseAttention(
        hidden_size=case.dim, num_heads=case.heads, num_kv_heads=case.kv_heads, head_dim=_one_dim(case),
        block_size=config.l_sel, block_counts=config.n_sel, window_size=config.w, rope_theta=BASE,
    ).to(where.device, where.dtype)  # fmt: skip
    return layer, lambda x: layer(x)[0]


def _mdy(case: Case, where: Where) -> Layer:
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


LAYERS: dict[str, tuple[Callable[[Case, Where], Layer], str]] = {
    "fla": (_fla, f"{WHOLE}; {SHARED}"),
    "mdy": (_mdy, SHARED),
}
"""By name: what makes the layer, and in which way it computes something else than ours."""


def named(text: str) -> str:
    """NAME of NAME=PATH, whose packages can be imported from then on."""
    name, _, path = text.partition("=")
    if name not in LAYERS or not path:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=PATH, NAME one of {', '.join(LAYERS)}")
    if not Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"{path} is no folder")
    sys.path.insert(0, str(Path(path).resolve()))
    return name
