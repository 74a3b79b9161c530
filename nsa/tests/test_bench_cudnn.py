"""How the kernel bench calls cuDNN's front end, which runs on GPUs only: a stand-in computes what it is asked."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from nsa import reference
from nsa.bench import kernels, peers_cudnn
from nsa.bench.cases import Where
from nsa.config import NSAConfig

SMALL = ["--device", "cpu", "--backend", "torch", "--tokens", "70", "--regimes", "random", "--repeats", "2"]


def _plan(mask: Tensor, q: Tensor, k: Tensor, v: Tensor, build_backward: bool) -> Tensor:
    """bool [B*T,S]: the keys in the intervals whose ends are the rows of mask [1,n,B*T]."""
    assert mask.dtype == torch.int32 and mask.is_contiguous() and mask.shape[1] % 2 == 1 and build_backward
    assert mask.shape[0] == 1 and mask.shape[2] == q.shape[0] * q.shape[1]
    first, *others = mask[0][..., None]
    at = torch.arange(k.shape[1])
    shown = at < first
    for low, high in zip(others[::2], others[1::2], strict=True):
        shown = shown | ((at >= low) & (at < high))
    return shown


def _flex(q: Tensor, k: Tensor, v: Tensor, *, mask_plan: Tensor) -> Tensor:
    group_size = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group_size, 2) for x in (k, v))
    scores = torch.einsum("bthd,bshd->bths", q, k) * q.shape[-1] ** -0.5
    shown = mask_plan.unflatten(0, q.shape[:2])[:, :, None]
    weights = scores.masked_fill(~shown, -torch.inf).softmax(-1).nan_to_num()
    return torch.einsum("bths,bshd->bthd", weights, v)


class _NSA:
    @staticmethod
    def selection_attention_wrapper(
        q: Tensor, k: Tensor, v: Tensor, block_indices_tensor: Tensor, block_counts_tensor: Tensor,
        cum_seqlen_q_tensor: Tensor, cum_seqlen_k_tensor: Tensor, block_size: int, max_s_q: int, max_s_k: int, *,
        is_causal: bool,
    ) -> dict[str, Tensor]:  # fmt: skip
        """As the front end of 1.32: packed sequences, so many blocks a query, their tokens in its future not read."""
        assert {x.dtype for x in (block_indices_tensor, block_counts_tensor, cum_seqlen_q_tensor)} == {torch.int32}
        assert is_causal and cum_seqlen_q_tensor.equal(cum_seqlen_k_tensor)
        slots = torch.arange(block_indices_tensor.shape[-1])
        blocks = block_indices_tensor.masked_fill(slots >= block_counts_tensor[..., None], -1)
        found = []
        for begin, end in zip(cum_seqlen_q_tensor[:-1].tolist(), cum_seqlen_q_tensor[1:].tolist(), strict=True):
            assert end - begin == max_s_q == max_s_k
            one = (x[None, begin:end] for x in (q, k, v, blocks))
            found.append(reference.selected_attention(*one, NSAConfig(l_sel=block_size, n_sel=len(slots)))[0])
        return {"o_tensor": torch.cat(found)}


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("cudnn")
    module.__spec__ = ModuleSpec("cudnn", None)
    for name, value in {"create_mask_plan": _plan, "flex_attn_func": _flex, "NSA": _NSA}.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "cudnn", module)


@pytest.mark.parametrize("batch", [1, 2])
def test_it_is_asked_what_we_compute(cudnn: None, batch: int) -> None:
    case = replace(kernels.case_of("4/2/16/8", 70, "random"), batch=batch, config=NSAConfig(l_sel=32, n_sel=3, w=9))
    x = kernels.prepare(case, kernels.inputs(case, Where(torch.device("cpu"), torch.float32, 0)), "torch")
    ours = kernels.our_parts(case, x, "torch")
    theirs = {part.part: part for part in peers_cudnn.parts("cudnn", case, x, ours)}
    assert theirs.keys() == {"window", "compressed", "selected"}
    for name, part in theirs.items():
        torch.testing.assert_close(part.call(x), ours[name].call(x), rtol=1e-4, atol=1e-5)


def test_its_rows_say_how_far_it_is_from_ours(cudnn: None, tmp_path: Path) -> None:
    out = tmp_path / "kernels.json"
    wanted = ["--shapes", "4/2/16/16", "--parts", "window,compressed,selected", "--json", str(out)]
    assert kernels.main([*SMALL, *wanted]) == 0
    rows = [row for row in json.loads(out.read_text())["rows"] if row["by"] == "cudnn-frontend"]
    passes = {(row["part"], row["pass"]) for row in rows}
    assert passes == {
        ("window", "fwd"),
        ("window", "bwd"),
        ("compressed", "fwd"),
        ("compressed", "bwd"),
        ("selected", "fwd"),
    }
    assert all(row["differs"] < 1e-5 for row in rows)
