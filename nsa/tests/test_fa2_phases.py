"""The FA-2 backend's own work on any machine: phases, borders and windows, over a flash provider written with masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import NSAConfig, flags, reference, routing
from nsa.fallback import torch as torch_backend
from nsa.providers import fa2
from nsa.providers.flash import Flash, Varlen
from nsa.routing import How
from nsa.tests.testing import Problem, assert_close, assert_outcome, outcome

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PROBLEM = Problem(CONFIG, tokens=75, batch=2, kv_heads=2, group_size=2, dk=8, dv=8)
SHAPES = {
    "batch": PROBLEM,
    "packed": replace(PROBLEM, batch=1, lengths=(0, 21, 1, 8, 53, 0)),
    "shorter than a span": replace(PROBLEM, tokens=5),
}


def masked_varlen(q: Tensor, k: Tensor, v: Tensor, call: Varlen) -> tuple[Tensor, Tensor]:
    """What flash varlen attention computes."""
    row = torch.arange(q.shape[0])
    sequence = torch.searchsorted(call.borders[1:].to(torch.int64), row, right=True)
    left = q.shape[0] if call.left is None else call.left
    mask = (sequence[:, None] == sequence) & (row <= row[:, None]) & (row >= row[:, None] - left)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    logits = call.scale * torch.einsum("thd,khd->htk", q, k)
    logits = logits.masked_fill(~mask, -torch.inf)
    return torch.einsum("htk,khd->thd", logits.softmax(-1), v), logits.logsumexp(-1).T


@pytest.fixture(autouse=True)
def flash(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fa2, "provider", lambda: Flash("masks", False, masked_varlen, None))
    yield


@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
def test_compressed_attention_by_phases_is_exact(problem: Problem) -> None:
    x = problem.tensors()
    tensors = {
        "q": x["q"],
        **{n: reference.compress(x[f"{n}_in"], CONFIG, cu_seqlens=problem.cu_seqlens) for n in ("k_cmp", "v_cmp")},
    }
    where = {"scale": 0.3, "cu_seqlens": problem.cu_seqlens, "q_start": None}

    def through(function, part, *how, **where):
        return lambda q, k_cmp, v_cmp: function(q, k_cmp, v_cmp, CONFIG, *how, **where)[part]

    how = How(**where, deterministic=False)
    wide = {name: tensor.double() for name, tensor in tensors.items()}
    expected = outcome(through(reference.compressed_attention, 0, **where), wide)
    actual = outcome(through(fa2.compressed, 0, how), tensors)
    assert_outcome(actual, expected, torch.float32)
    lse = through(fa2.compressed, 1, how)(**tensors)
    assert_close(lse, through(reference.compressed_attention, 1, **where)(**wide), torch.float32)


@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("window", [1, 7, 100])
def test_the_window_has_exactly_its_keys(problem: Problem, window: int) -> None:
    x = problem.tensors()
    q, k, v = x["q"], x["k_win"], x["v_win"]
    where = {"scale": 0.3, "cu_seqlens": problem.cu_seqlens, "q_start": None}
    how = How(**where, deterministic=False)
    found, lse = fa2.window(q, k, v, window, how)
    assert_close(found, reference.sliding_window_attention(q, k, v, window, **where), torch.float32)
    assert_close(lse, torch_backend.window(q, k, v, window, how)[1], torch.float32)


REQUEST = routing.Request("window", torch.device("cuda"), torch.bfloat16, 1, 99, 99, 8, 2, 64, 64, CONFIG)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device": torch.device("cpu")}, "needs a CUDA device"),
        ({"dtype": torch.float32}, "needs fp16 or bf16"),
        ({"dv": 128}, "dk equal to dv"),
        ({"dk": 20, "dv": 20}, "multiple of 8"),
        ({"dk": 264, "dv": 264}, "up to 256"),
        ({"offset": True}, "q_start"),
        ({"deterministic": True}, "no deterministic backward"),
    ],
)
def test_what_flash_attention_cannot_do_is_said(change: dict, reason: str) -> None:
    assert fa2.supports(REQUEST) is None
    assert reason in (fa2.supports(replace(REQUEST, **change)) or "")


def test_forced_entry_points() -> None:
    with flags.using(fa2_force_dense=True):
        assert "has no dense entry point" in (fa2.supports(REQUEST) or "")
    with flags.using(fa2_force_dense=True, fa2_force_varlen=True):
        assert "exclude each other" in (fa2.supports(REQUEST) or "")
    with flags.using(fa2_force_varlen=True):
        assert fa2.supports(REQUEST) is None


def test_without_a_provider_the_reason_is_the_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fa2, "provider", lambda: "flash-attn is not installed")
    assert fa2.supports(REQUEST) == "flash-attn is not installed"
