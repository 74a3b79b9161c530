"""How the kernel bench calls flash-linear-attention, which runs on GPUs only: a stand-in computes what it is asked."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from nsa import reference
from nsa.bench import kernels, peers
from nsa.bench.cases import Where
from nsa.config import NSAConfig

SMALL = ["--device", "cpu", "--backend", "torch", "--tokens", "70", "--regimes", "random", "--repeats", "2"]


def _parallel_nsa(
    q: Tensor, k: Tensor, v: Tensor, g_cmp=None, g_slc=None, g_swa=None, block_indices=None, block_counts=16,
    block_size=64, window_size=0, scale=None, cu_seqlens=None,
) -> Tensor:  # type: ignore[no-untyped-def]  # fmt: skip
    """The arguments of fla 0.6; given blocks alone are computed, the rest is any differentiable result."""
    assert q.shape[2] // k.shape[2] >= 16, "Group size (HQ/H) must be a power of 2 and >= 16 in NSA"
    if block_indices is None:
        assert (block_counts, block_size, window_size) == (16, 64, 0) and g_cmp.shape == g_slc.shape == q.shape[:3]
        return q[..., : v.shape[-1]] * g_cmp[..., None] * g_slc[..., None]
    assert block_indices.dtype == torch.int64 and g_slc is None
    return reference.selected_attention(q, k, v, block_indices, NSAConfig(l_sel=block_size, n_sel=block_counts))


@pytest.fixture
def fla(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fla", "fla.ops", "fla.ops.nsa"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["fla.ops.nsa"].parallel_nsa = _parallel_nsa  # type: ignore[attr-defined]


def _bench(tmp_path: Path, shape: str) -> dict[str, list[dict[str, object]]]:
    out = tmp_path / "kernels.json"
    assert kernels.main([*SMALL, "--shapes", shape, "--parts", "whole,selected", "--json", str(out)]) == 0
    return json.loads(out.read_text())


def test_the_selected_branch_is_the_same_question(fla: None) -> None:
    case = kernels.case_of("16/1/16/16", 70, "random")
    x = kernels.prepare(case, kernels.inputs(case, Where(torch.device("cpu"), torch.float32, 0)), "torch")
    ours = kernels.our_parts(case, x, "torch")
    theirs = {part.part: part for part in peers.fla_parts("fla", case, x, ours)}
    torch.testing.assert_close(theirs["selected"].call(x), ours["selected"].call(x), rtol=1e-4, atol=1e-5)


def test_rows_of_fla_say_how_it_differs(fla: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _bench(tmp_path, "16/1/16/16")
    rows = [row for row in found["rows"] if row["by"] == "fla"]
    assert {(row["part"], row["pass"]) for row in rows} >= {("selected", "fwd"), ("selected", "bwd")}
    assert all("fla attends to the same blocks" in str(row["note"]) for row in rows if row["part"] == "selected")
    assert "fla" not in found["absent"] and "fla attends to the same blocks" in capsys.readouterr().out


def test_a_shape_that_fla_refuses_is_a_row_with_the_reason(fla: None, tmp_path: Path) -> None:
    rows = [row for row in _bench(tmp_path, "8/2/16/16")["rows"] if row["by"] == "fla"]
    assert len(rows) == 2 and all("Group size" in str(row["failed"]) for row in rows)


def test_without_fla_the_bench_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "fla" not in peers.absent():
        pytest.skip("flash-linear-attention is installed")
    assert _bench(tmp_path, "4/2/16/16")["absent"]["fla"] == "flash-linear-attention is not installed"
    assert "fla: absent: flash-linear-attention is not installed" in capsys.readouterr().out
