"""The benches of the layer and of the crossover: what they time, with whom, and what they draw."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nsa import NSAConfig
from nsa.bench import crossover, layer
from nsa.bench.cases import Case, Where
from nsa.bench.crossover import Crossing
from nsa.bench.peers import LAYERS

SIZES = "--l 8 --d 4 --l_sel 8 --n_sel 4 --w 13 --warmup 1 --device cpu".split()
SMALL = [*SIZES, *"--dim 16 --heads 4 --kv-heads 2 --dk 8 --dv 8 --iters 2 --S_list 40".split()]
CASE = Case("", 4, 2, 8, 8, 40, config=NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=13), dim=16)
CPU = Where(torch.device("cpu"), torch.float32, 0)
PARTS = ["layer", "projection", "rope", "compression", "op", "output"]


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


def test_the_layer_bench_times_each_part(tmp_path: Path) -> None:
    path = tmp_path / "layer.csv"
    assert layer.main([*SMALL, "--phi", "mean,mlp", "--csv", str(path)]) == 0
    found = _rows(path)
    for by in ("nsa", "nsa-mlp"):
        mine = [row for row in found if row["by"] == by]
        assert [(row["part"], row["pass"]) for row in mine] == [(p, name) for p in PARTS for name in ("fwd", "fwd+bwd")]
        assert mine[0]["route_rotate"] == mine[0]["route_selected"] == "torch@cpu"
    dense = {row["pass"]: float(row["ms"]) for row in found if row["by"] == "dense"}
    whole = {row["pass"]: row for row in found if row["by"] == "nsa" and row["part"] == "layer"}
    for name, row in whole.items():
        assert float(row["speedup_over_dense"]) == pytest.approx(dense[name] / float(row["ms"]), rel=1e-3)


def test_the_parts_are_those_of_the_layer() -> None:
    """One after another they are the layer, and their gradients are of all of its parameters."""
    for phi in ("mean", "weighted"):
        mine, x = layer.ours(CASE, CPU, phi), torch.randn(1, 40, 16)
        found = {part.part: part for part in layer.parts("nsa", mine, x)}
        q, k, v, gates = found["projection"].passes()["fwd"]()
        turned = found["rope"].call(q, k)
        means = found["compression"].call(k, v) if phi == "weighted" else ()
        o = found["op"].call(turned[0], k, *turned[1:], v, gates, *means)
        torch.testing.assert_close(found["output"].call(o), mine(x))
        pieces = [p for part in PARTS[1:] for p in found[part].parameters]
        assert {*map(id, pieces)} == {*map(id, mine.parameters())}
        grads = found["layer"].passes()["fwd+bwd"]()
        assert len(grads) == 1 + len(pieces) and all(g is not None for g in grads)


# --- others' layers ---


class _Fla(nn.Module):
    """The interface of fla 0.6."""

    def __init__(
        self, hidden_size: int, num_heads: int, num_kv_heads: int, head_dim: int, block_size: int, block_counts: int,
        window_size: int, rope_theta: float,
    ) -> None:  # fmt: skip
        super().__init__()
        assert (num_heads, num_kv_heads, head_dim, rope_theta) == (4, 2, 8, 1e4)
        assert (block_size, block_counts, window_size) == (8, 4, 13)
        self.o_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, None, None]:
        return self.o_proj(hidden_states), None, None


class _Mdy(nn.Module):
    """The interface of mdy666's demonstration."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        sizes = (config.kernel_size, config.stride, config.block_size, config.top_n, config.window_size)
        assert sizes == (8, 4, 8, 4, 13) and (config.qk_head_dim, config.v_head_dim) == (8, 8)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = position_embeddings
        assert cos.shape == sin.shape == (1, hidden_states.shape[1], 8)
        torch.testing.assert_close(cos[0, 3, :4], cos[0, 3, 4:])
        return self.o_proj(hidden_states)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "fla", "fla.layers", "fla.layers.nsa", "flash_nsa", "flash_nsa.layers"
    for name in (*names, "flash_nsa.config", "flash_nsa.layers.hf_level_nsa"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["fla.layers.nsa"], "NativeSparseAttention", _Fla, raising=False)
    monkeypatch.setattr(sys.modules["flash_nsa.config"], "NSAConfig", SimpleNamespace, raising=False)
    monkeypatch.setattr(sys.modules["flash_nsa.layers.hf_level_nsa"], "HFNSA", _Mdy, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_peers_are_named_by_their_path(peers: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layer.csv"
    named = [f"--peer=fla={tmp_path}", f"--peer=mdy={tmp_path}"]
    assert layer.main([*SMALL, *named, "--csv", str(path)]) == 0
    assert str(tmp_path) in sys.path
    found = [(row["by"], row["pass"]) for row in _rows(path) if row["by"] in LAYERS]
    assert found == [(by, name) for by in ("fla", "mdy") for name in ("fwd", "fwd+bwd")]
    assert "fla: fla compresses by the means of whole selection blocks" in capsys.readouterr().out


def test_a_peer_that_fails_is_a_sentence(peers: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert layer.main([*SMALL, "--dv", "6", f"--peer=fla={tmp_path}"]) == 0
    assert "failed: S=40 fla: ValueError: one head dimension only, not 8 and 6" in capsys.readouterr().out
    for wrong, sentence in ((f"other={tmp_path}", "NAME one of fla, mdy"), ("fla=/nowhere", "is no folder")):
        with pytest.raises(SystemExit):
            layer.main([*SMALL, f"--peer={wrong}"])
        assert sentence in capsys.readouterr().err


# --- the crossover ---


def _from(tokens: int) -> tuple[Callable[[int], float], list[int]]:
    """A speedup above 1 from `tokens` on, and the lengths that were asked for."""
    asked: list[int] = []

    def speedup(length: int) -> float:
        asked.append(length)
        return 2.0 if length >= tokens else 0.5

    return speedup, asked


@pytest.mark.parametrize("tokens", [1500, 5000, 8192, 8193, 30_000])
def test_the_crossing_is_found_by_halving(tokens: int) -> None:
    speedup, asked = _from(tokens)
    found = crossover.crossing(speedup, [1024, 4096, 8192, 32_768])
    assert found.slower is not None and found.faster is not None
    assert found.slower < tokens <= found.faster <= 1.05 * found.slower + crossover.STEP
    assert len(asked) <= 4 + 6


def test_a_crossing_that_is_not_there() -> None:
    lengths = [1024, 2048]
    assert crossover.crossing(_from(10)[0], lengths) == Crossing(None, 1024)
    assert crossover.crossing(_from(9000)[0], lengths) == Crossing(2048, None)
    assert str(Crossing(None, 1024)) == "faster from the shortest on, 1,024 tokens"
    assert str(Crossing(2048, None)) == "not faster up to 2,048 tokens"


def test_what_is_faster_for_a_while_only_does_not_count() -> None:
    speedups = {1024: 2.0, 2048: 0.5, 4096: 2.0}
    found = crossover.crossing(lambda length: speedups.get(length, 0.9), [1024, 2048, 4096])
    assert found.faster == 4096 and (found.slower or 0) >= 4096 / 1.05 - crossover.STEP


def test_the_plot_has_its_points_on_both_sides_of_even() -> None:
    lines = crossover.plot({"random": [(1024, 0.5), (4096, 2.0)], "smooth": [(1024, 0.5), (2048, 4.0)]}).splitlines()
    assert lines[-1].split() == ["1k", "2k", "4k"]
    even = next(number for number, line in enumerate(lines) if line.startswith("    1x |"))
    assert lines[0].startswith("    4x |") and "s" in lines[0]
    assert "r" in "".join(lines[:even]) and "*" in lines[-2] and "-" * 60 in lines[even]


def test_the_crossover_bench_writes_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {name: tmp_path / name for name in ("rows.csv", "rows.jsonl", "crossings.csv")}
    arguments = [*SIZES, *"--heads 2 --kv-heads 1 --dk 8 --dv 6 --iters 3 --S_list 64,32".split()]
    where = ["--csv", paths["rows.csv"], "--jsonl", paths["rows.jsonl"], "--crossings", paths["crossings.csv"]]
    assert crossover.main([*arguments, *map(str, where)]) == 0
    found = {(row["S"], row["by"], row["regime"], row["pass"]) for row in _rows(paths["rows.csv"])}
    kinds = [("dense", "any"), ("nsa", "random"), ("nsa", "smooth")]
    assert found == {(s, *kind, name) for s in ("32", "64") for kind in kinds for name in ("fwd", "fwd+bwd")}
    assert {row["kernel"] for row in _rows(paths["rows.csv"])} == {"sdpa", "torch@cpu"}
    assert all(len(json.loads(line)["ms_samples"]) == 3 for line in paths["rows.jsonl"].read_text().splitlines())
    assert [(row["regime"], row["pass"]) for row in _rows(paths["crossings.csv"])] == [
        (regime, name) for name in ("fwd", "fwd+bwd") for regime in ("random", "smooth")
    ]
    assert capsys.readouterr().out.count("time of dense attention over that of sparse") == 2


def test_dense_attention_is_timed_by_the_kernel_that_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = crossover.Bench(CASE, CPU, 1, 0)
    bench.kernels["fwd"] = ["sdpa-flash", "sdpa-cudnn", "refuses"]
    asked: list[str] = []

    def timed(name: str, x: Any, call: Any, leaves: Any) -> Any:
        asked.append(call.args[0])
        if asked[-1] == "refuses":
            raise RuntimeError("no available kernel")
        return crossover.Timing((2.0,) if asked[-1] == "sdpa-flash" else (1.0,))

    monkeypatch.setattr(bench, "_timed", timed)
    assert bench.dense("fwd", 64).ms == bench.dense("fwd", 64).ms == 1.0
    assert asked == ["sdpa-flash", "sdpa-cudnn", "refuses"]
    bench.dense("fwd", 128)
    assert asked[3:] == ["sdpa-cudnn"] and bench.kernels["fwd+bwd"] == ["sdpa"]
