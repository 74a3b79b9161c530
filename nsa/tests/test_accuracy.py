"""The accuracy bench: right kernels pass, and each way of being wrong fails."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nsa import reference
from nsa.bench import accuracy, accuracy_ops
from nsa.bench.__main__ import main as bench
from nsa.bench.accuracy_cases import ODD, TABLE, Case
from nsa.bench.judge import Judgement, Operation, judge, relative_error, sampled_rows
from nsa.config import NSAConfig
from nsa.device import device_name
from nsa.tests.kernel_cases import DEVICE

CPU = torch.device("cpu")
SMALL = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
CASES = [
    Case("half", 4, 2, 24, 16, 30, config=SMALL, dtype="fp16"),
    Case("chunk", 4, 2, 16, 16, 5, batch=2, starts=(0, 20), config=SMALL, dtype="fp32"),
    Case("one token", 4, 2, 16, 16, 1, config=SMALL, dtype="fp32", regime="smooth"),
]


@pytest.mark.triton
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_kernels_pass(case: Case) -> None:
    rows = list(accuracy_ops.judged(case, torch.device(DEVICE), seed=1, rows=12, repeats=2, backend="triton"))
    expected = [
        "rotate",
        *accuracy_ops.COMPRESSIONS,
        "compressed",
        "selected",
        "window",
        "combine",
        "attention",
        "select",
    ]
    alone = [] if case.lengths or case.starts else ["decode"]
    assert [row["op"] for row in rows] == [*expected, *alone, "deterministic"]
    assert all(row["passed"] for row in rows), [row for row in rows if not row["passed"]]
    by = {row["op"]: row["by"] for row in rows}
    where = "cpu:interpreted" if DEVICE == "cpu" else device_name(torch.device(DEVICE))
    assert by["selected"] == by["window"] == by["attention"] == f"triton@{where}"
    window = next(row for row in rows if row["op"] == "window")
    assert set(window["errors"]) == set(window["plains"]) == {"o", "dq", "dk", "dv"}  # type: ignore[call-overload]


def _window(ours) -> Judgement:  # type: ignore[no-untyped-def]
    """The judgement of a sliding window of 5 keys by `ours` in bf16, the first query hidden from all keys."""
    x = {name: torch.randn(1, 30, 2, 16).bfloat16() for name in "qkv"}

    def oracle(q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> Tensor:
        found = reference.sliding_window_attention(q, k, v, 5, rows=rows)
        return found * (rows > 0)[:, None, None]

    return judge(Operation("window", x, ours, oracle), sampled_rows(30, 20, 0))


def _right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    o = reference.sliding_window_attention(q.float(), k.float(), v.float(), 5).to(q.dtype)
    return torch.cat([o[:, :1] * 0, o[:, 1:]], 1)


def test_what_is_right_passes() -> None:
    assert _window(_right).passed


def _not_finite(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    o = _right(q, k, v)
    unsampled = next(t for t in range(30) if t not in sampled_rows(30, 20, 0))
    return torch.where((torch.arange(30) == unsampled)[:, None, None], torch.nan, o)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, k, v: reference.sliding_window_attention(q, k, v, 6),
        lambda q, k, v: _right(q, k, v) * 1.02,
        lambda q, k, v: _right(q, k, v.detach()) + 0 * v.sum(),
        lambda q, k, v: torch.cat([torch.full_like(q[:, :1], 1e-20), _right(q, k, v)[:, 1:]], 1),
        _not_finite,
    ],
    ids=["another window", "2 percent off", "no gradient of v", "a row that is not quite 0", "NaN where no row is"],
)
def test_each_way_of_being_wrong_fails(wrong) -> None:  # type: ignore[no-untyped-def]
    assert not _window(wrong).passed


def test_errors_are_relative_and_know_infinities() -> None:
    one = torch.tensor([3.0, 4.0])
    assert relative_error(one * 1.01, one) == pytest.approx(0.01, rel=1e-5)
    assert relative_error(torch.full((4,), 2.0), torch.zeros(4)) == 2.0  # nothing to be relative to
    hidden = torch.tensor([-math.inf, 1.0])
    assert relative_error(hidden, hidden) == 0
    assert relative_error(one, hidden) == math.inf
    assert math.isnan(relative_error(one * math.nan, one))


@pytest.mark.triton
def test_a_wrong_choice_and_a_changing_result_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    choose, attend = accuracy_ops.ops.select_blocks, accuracy_ops.ops.nsa_attention
    monkeypatch.setattr(accuracy_ops.ops, "select_blocks", lambda *a, **o: choose(*a, **o).clamp(max=0))
    monkeypatch.setattr(
        accuracy_ops.ops, "nsa_attention", lambda *a, **o: attend(*a, **o) * (1 + torch.rand(()) * o["deterministic"])
    )
    problem = accuracy_ops.Problem(CASES[0], CPU, 0, 12, "torch")
    assert problem.selection() == math.inf
    assert problem.differing_runs(3) == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "accuracy.json"
    command = ["accuracy", "--backend", "torch", "--device", "cpu", "--rows", "6", "--runs", "2", "--json", str(out)]
    assert bench([*command, "--cases", "one token"]) == 0
    found = json.loads(out.read_text())
    assert {"device", "triton", "seed", "rows"} <= set(found["context"])
    assert all(row["passed"] and row["case"] == "one token" for row in found["rows"])
    assert "0 missed their bar" in capsys.readouterr().out
    monkeypatch.setattr(accuracy, "run_case", lambda case, *_: [{**found["rows"][0], "passed": False, "seconds": 0.0}])
    assert bench([*command, "--cases", "one token"]) == 1
    assert "1 missed their bar" in capsys.readouterr().out
    assert bench(["accuracy", "--cases", "nonsense"]) == 2
    assert "'nonsense' is neither table nor odd" in capsys.readouterr().err


def test_the_cases_cover_what_the_kernels_promise() -> None:
    assert {(c.heads // c.kv_heads) for c in ODD} >= {1, 2, 4, 6, 12, 16}
    assert {c.dk for c in ODD} >= {40, 80, 96, 256} and {c.dtype for c in ODD} == {"bf16", "fp16", "fp32"}
    assert {c.tokens for c in ODD} >= {1, 63, 65, 4097} and {c.batch for c in ODD} >= {1, 3}
    assert any(c.lengths and 0 in c.lengths and 1 in c.lengths for c in ODD) and any(c.starts for c in ODD)
    assert len({c.name for c in TABLE + ODD}) == len(TABLE + ODD)
    assert all(c.config.l_sel % c.config.d for c in ODD if c.name == "nothing divides")
