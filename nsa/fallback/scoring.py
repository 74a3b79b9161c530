"""From probabilities of compressed tokens to blocks, for every query alike (Eq. 9 and 11)."""

from __future__ import annotations

import math
from functools import lru_cache, reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import blocks
from nsa.config import NSAConfig
from nsa.host import to_device


def best_blocks(p: Tensor, t: Tensor, longest: int, config: NSAConfig) -> Tensor:
    """The blocks of queries at positions t [c], int32 [...,c,n_sel], in sequences of at most `longest` tokens.

    p: of the compressed tokens [...,c,G,Tc], summed over a group's heads (Eq. 10) one after the other: torch.sum adds
    up some columns in another order than others, and equal blocks would not tie.
    """
    scores = sum_over_blocks(reduce(torch.add, p.unbind(-2)), blocks.num_blocks(longest, config), config)
    return choose_blocks(scores, t, config)


def sum_over_blocks(p: Tensor, count: int, config: NSAConfig) -> Tensor:
    """Scores [...,count] of the first `count` blocks: the overlap-weighted sums of p [...,Tc] (Eq. 9).

    In fp64 where there is any: the sums of the first and the last block are then not rounded in another order, and tie.
    """
    p = p if p.device.type == "mps" else p.double()
    first, weights, end = _band(count, config, p.device, p.dtype)
    p = F.pad(p, (0, max(0, end - p.shape[-1])))
    scores = torch.zeros_like(p[..., first])
    for k in range(weights.shape[1]):
        scores += p[..., first + k] * weights[:, k]
    return scores


@lru_cache(maxsize=64)  # the same at every step of a decode, which should not wait for it
def _band(count: int, config: NSAConfig, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, int]:
    """`blocks.overlap_band` on the device, and the end of its last row."""
    first, weights = blocks.overlap_band(count, config)
    end = int(first[-1]) + weights.shape[1] if count else 0
    return to_device(first, device), to_device(weights.to(dtype), device), end


def choose_blocks(scores: Tensor, t: Tensor, config: NSAConfig) -> Tensor:
    """The forced blocks and the best others, int32 [...,c,n_sel]; scores [...,c,blocks], positions t [c].

    Compared in fp32: a matrix product in fp64 may round the logits of equal keys in several ways, and equal blocks
    would not tie.
    """
    block = torch.arange(scores.shape[-1], device=scores.device)
    current = torch.div(t, config.l_sel, rounding_mode="floor")[:, None]
    forced = (block < config.init_blocks) | (block > current - config.local_blocks)
    scores = scores.float().nan_to_num(0.0)  # which sorts before what is forced
    ranked = scores.masked_fill(forced, math.inf).masked_fill(block > current, -math.inf)
    best = ranked.sort(dim=-1, descending=True, stable=True)  # stable: ties go to the lower index
    kept = min(config.n_sel, scores.shape[-1])
    index = best.indices[..., :kept].masked_fill(best.values[..., :kept] == -math.inf, scores.shape[-1])
    index = index.sort(dim=-1).values
    index = index.masked_fill(index == scores.shape[-1], -1)
    return F.pad(index, (0, config.n_sel - kept), value=-1).to(torch.int32)
