"""The benches: what they claim is measured, consistent, and refused where it is not."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nsa import NSAConfig, reference, routing
from nsa.bench import (
    decode,
    kernels,
    kernels_parts,
    prefill,
    roofline,
    rows,
    selection,
    summarize,
    timing,
    window,
)
from nsa.bench.__main__ import COMMANDS
from nsa.bench.__main__ import main as bench
from nsa.bench.cases import Case, Where
from nsa.bench.timing import Timing, measure
from nsa.operations import Operation

SMALL = (
    "--dim 16 --heads 4 --groups 2 --dk 8 --dv 6 --l 8 --d 4 --l_sel 8 --n_sel 4 --w 13 --warmup 1 --device cpu".split()
)
CASE = Case("", 4, 2, 8, 6, 40, 2, config=NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=13), dim=16)
CPU = Where(torch.device("cpu"), torch.float32, 0)


# --- time ---


def test_a_timing_is_the_median_of_the_gpu_if_there_is_one() -> None:
    assert Timing((3.0, 1.0, 2.0)).ms == 2.0
    assert Timing((1.0, 2.0, 3.0, 4.0, 5.0)).iqr == 2.0
    assert Timing((7.0,)).iqr == 0.0
    both = Timing((10.0, 10.0, 10.0), (1.0, 2.0, 3.0))
    assert (both.ms, both.wall_ms, both.host_bound) == (2.0, 10.0, True)
    assert not Timing((10.0,), (9.0,)).host_bound and not Timing((10.0,)).host_bound


def test_every_repetition_begins_reset() -> None:
    events: list[str] = []
    timing = measure(lambda: events.append("call"), CPU.device, iters=3, warmup=2, reset=lambda: events.append("reset"))
    assert events == ["reset", "call"] * 5 and len(timing.wall) == 3 and timing.gpu == ()


def test_short_calls_are_timed_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    assert len(kernels.timed(lambda: calls.append(1), CPU.device, 3)) == 3 and len(calls) == 3 + 2
    monkeypatch.setattr(kernels, "cold", lambda call, device: 2.0)
    assert kernels.timed(list, CPU.device, 3, least=19.0) == [2.0] * 10
    assert kernels.timed(list, CPU.device, 3, least=1.0) == [2.0] * 3


# --- limits ---


def test_calls_are_queued_behind_a_pause_longer_than_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("record")

        def elapsed_time(self, end: Event) -> float:
            return 1.5

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append(f"sleep {cycles}"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append("wait"))
    assert timing.queued(lambda: done.append("call"), CPU.device, 2, wall_ms=1.0) == (1.5, 1.5)
    assert done == ["sleep 4200000", "record", "call", "record"] * 2 + ["wait"]


def test_only_short_calls_on_a_gpu_are_timed_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "queued", lambda call, device, iters, wall_ms: (1.0, 3.0, 2.0))
    gpu = torch.device("cuda")
    assert kernels._queued(list, 5.0, 3, gpu) == 2.0
    assert kernels._queued(list, 50.0, 3, gpu) is None
    assert kernels._queued(list, 5.0, 3, CPU.device) is None


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_kernel_bench_asks_for_the_gradients_it_was_told(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = kernels.case_of("4/2/16/16", 70, "random")
    x = kernels_parts.prepare(case, kernels.inputs(case, CPU), "torch")
    asked: list[routing.Request] = []
    compute = Operation.compute
    monkeypatch.setattr(
        Operation, "compute", lambda self, plan, *x: (asked.append(plan.request), compute(self, plan, *x))[1]
    )
    for part in kernels_parts.our_parts(case, x, "torch", deterministic).values():
        part.call(x)
    attention = [request for request in asked if request.operation in ("compressed", "selected", "window")]
    assert len(attention) == 6 and all(request.deterministic is deterministic for request in attention)


def test_the_roofline_is_the_slower_of_bytes_and_operations() -> None:
    limit = roofline.Peak(1e9, 1e12, "test")
    assert limit.least_ms(roofline.Work(1e6)) == pytest.approx(1.0)
    assert limit.least_ms(roofline.Work(1e6, 4e9)) == pytest.approx(4.0)
    assert limit.least_ms(roofline.Work(1e6) + roofline.Work(1e6, 4e9)) == pytest.approx(4.0)
    assert roofline.peak(CPU.device, torch.float32) is None


def test_pairs_are_those_of_the_oracle() -> None:
    config = CASE.config
    chosen = [reference.chosen_blocks(t, [0.0] * 10, config) for t in range(70)]
    assert roofline.pairs(70, config) == {
        "compressed": sum(len(reference.visible_set(t, config)) for t in range(70)),
        "selected": sum(len(reference.selected_set(t, blocks, config)) for t, blocks in enumerate(chosen)),
        "window": sum(len(reference.window_set(t, config.w)) for t in range(70)),
        "dense": sum(t + 1 for t in range(70)),
    }


# --- decode ---


def test_decode_writes_rows_that_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "decode.csv", tmp_path / "decode.jsonl"]
    arguments = [*SMALL, "--B", "2", "--S_list", "1,40,64", "--iters", "3", "--branch_force_mode", "env"]
    assert decode.main([*arguments, "--csv", str(paths[0]), "--jsonl", str(paths[1])]) == 0
    said = capsys.readouterr().out
    assert "measured on a CPU" in said and "shares sum to 100, reads as expected" in said
    found = list(csv.DictReader(paths[0].open()))
    assert [row["S"] for row in found] == ["1", "40", "64"]
    for row in found:
        assert sum(float(row[name]) for name in summarize.SHARES) == pytest.approx(100, abs=0.01)
        assert row["reads_actual"] == row["reads_expected"] and int(row["reads_total_actual"]) > int(
            row["reads_actual"]
        )
        assert row["device"] == "cpu" and row["torch"] == torch.__version__ and row["route"] == "torch@cpu"
        assert float(row["ms_total"]) > 0 and "gpu_ms" not in row
    lines = [json.loads(line) for line in paths[1].read_text().splitlines()]
    assert [line["S"] for line in lines] == [1, 40, 64]
    assert all(len(line["ms_total_samples"]) == len(line["ms_sel_samples"]) == 3 for line in lines)
    assert "ms_total_samples" not in found[0], "a cell of a CSV is one number"


def test_decode_steps_all_begin_from_the_same_cache() -> None:
    steps = decode.Steps(replace(CASE, tokens=33), CPU)
    outputs = []
    for _ in range(3):
        steps.again()
        outputs.append(steps.step())
        assert steps.cache.lengths.tolist() == [33, 33]
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[1], outputs[2])
    assert [int(count.sum()) for count in steps.counted] == [steps.expected_reads()] * 3


def test_summarize_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "decode.csv"
    decode.main([*SMALL, "--S_list", "40", "--iters", "2", "--csv", str(path)])
    capsys.readouterr()
    assert summarize.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["S", "total", "cmp%", "sel%", "win%", "reads(dec)", "reads(tot)"]
    counted = decode.Steps(CASE, CPU).expected_reads() // 2
    assert lines[2].split()[0] == "40" and lines[2].split()[5] == f"{counted}/{counted}"


SEED = {
    "S": "512", "ms_total": "5.3", "cmp_pct": "30", "sel_pct": "40", "win_pct": "30", "reads_actual": "1055",
    "reads_expected": "1055", "reads_total_actual": "2110", "reads_total_expected": "2110",
}  # fmt: skip


def test_summarize_imports_no_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "decode.csv"
    path.write_text("\n".join(map(",".join, (SEED, SEED.values()))))
    program = "import sys; from nsa.bench.__main__ import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, "summarize", str(path)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"cmp_pct": "106.3", "sel_pct": "108.8", "win_pct": "110.5"}, "cmp_pct 106.3 is no share"),
        ({"cmp_pct": "36"}, "the shares sum to 106.0, not 100"),
        ({"reads_actual": "1091", "reads_expected": "1571"}, "reads counted 1091, expected 1571"),
        ({"roofline_frac": "9.1"}, "9.10 of the roofline is impossible"),
    ],
)
def test_summarize_fails_on_what_cannot_be(
    change: dict[str, str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seeds' own figures among them."""
    row = {**SEED, **change}
    path = tmp_path / "decode.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    assert summarize.main([str(path)]) == 1
    assert f"WRONG: S=512: {sentence}" in capsys.readouterr().out


def test_no_data_no_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "decode.csv"
    path.write_text(",".join(SEED) + "\n")
    assert bench(["summarize", str(path)]) == 2
    assert "has no rows" in capsys.readouterr().err
    path.write_text("S,ms\n1,2\n")
    assert bench(["summarize", str(path)]) == 2
    assert "is no decode CSV: it lacks the column cmp_pct" in capsys.readouterr().err
    assert bench(["summarize", str(tmp_path / "absent.csv")]) == 2
    with pytest.raises(ValueError, match="no rows were measured"):
        rows.write([], path, None)


# --- the other benches ---


def test_prefill_compares_with_dense(tmp_path: Path) -> None:
    path = tmp_path / "prefill.csv"
    assert prefill.main([*SMALL, "--S_list", "40,64", "--iters", "2", "--csv", str(path)]) == 0
    for row in csv.DictReader(path.open()):
        assert sum(float(row[name]) for name in summarize.SHARES) == pytest.approx(100, abs=0.01)
        assert float(row["speedup_over_dense"]) == pytest.approx(
            float(row["ms_dense"]) / float(row["ms_total"]), rel=1e-3
        )
        assert row["route_selected"] == "torch@cpu"


def test_selection_names_what_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "selection.jsonl"
    assert selection.main([*SMALL, "--S_list", "40", "--iters", "2", "--jsonl", str(path)]) == 0
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["operation"], row["backend"]) for row in found] == [("select", "torch"), ("selected", "torch")]
    said = capsys.readouterr().out
    assert "S=40 selected cuda: unavailable: " in said and "S=40 selected triton: unavailable: " in said


@pytest.mark.parametrize("mode", ["win", "cmp"])
def test_window_compares_with_sdpa(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "window.csv"
    assert window.main([*SMALL, "--mode", mode, "--S_list", "40", "--iters", "2", "--csv", str(path)]) == 0
    found = {row["backend"]: row for row in csv.DictReader(path.open())}
    assert {"sdpa", "torch"} <= set(found) and float(found["sdpa"]["speedup_over_sdpa"]) == 1
    assert "FA-2: not measured here, so no threshold" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["win", "cmp"])
def test_the_mask_of_sdpa_is_the_oracles_set(mode: str) -> None:
    mask = window.visible(mode, CASE, CPU.device)
    for t in range(40):
        expected = (
            reference.window_set(t, CASE.config.w) if mode == "win" else reference.visible_set(t, CASE.config) or [0]
        )
        assert mask[t].nonzero().flatten().tolist() == expected


@pytest.mark.parametrize(
    "speedups, sentence",
    [
        ({}, "not measured here, so no threshold"),
        ({128: 0.5, 256: 0.9}, "slower than SDPA at S=256, the longest, so no threshold"),
        ({128: 1.1, 256: 0.9, 512: 1.2, 1024: 1.5}, "NSA_FA2_MIN_LEN_WIN=512"),
        ({128: 1.1}, "NSA_FA2_MIN_LEN_WIN=128"),
    ],
)
def test_a_threshold_needs_rows(speedups: dict[int, float], sentence: str) -> None:
    found: list[rows.Row] = [{"S": s, "backend": "fa2", "speedup_over_sdpa": x} for s, x in speedups.items()]
    assert sentence in window.threshold([*found, {"S": 128, "backend": "sdpa", "speedup_over_sdpa": 1.0}], "win")


# --- the command line ---


@pytest.mark.parametrize("more", [["--parts", "select", "--passes", "bwd"], ["--seconds", "-1"]])
def test_a_kernel_bench_that_times_nothing_is_no_success(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--tokens", "40", "--shapes", "2/1/8/8", "--regimes", "random", "--no-peers", "--check-rows", "4"]
    assert bench(["kernels", "--device", "cpu", "--backend", "torch", *few, *more]) == 2
    assert "nothing was timed" in capsys.readouterr().err


def test_the_kernel_bench_measures_other_sizes_than_the_papers(tmp_path: Path) -> None:
    few = ["--tokens", "70", "--shapes", "2/1/8/8", "--regimes", "random", "--no-peers", "--repeats", "1"]
    sizes = {"l": 8, "d": 4, "l_sel": 16, "n_sel": 4, "w": 9}
    options = [f"--{name}={size}" for name, size in sizes.items()]
    out = tmp_path / "kernels.json"
    assert bench(["kernels", "--device", "cpu", "--backend", "torch", *few, *options, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["context"]["sizes"].items() >= sizes.items() and found["cases"][0]["check"]["passed"]
    flops = {row["part"]: row["flops"] for row in found["rows"] if row["pass"] == "fwd"}
    assert flops["window"] == roofline.pairs(70, NSAConfig(**sizes))["window"] * 2 * 2 * (8 + 8)


def test_the_command_line_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in COMMANDS)
    assert bench([]) == bench(["decod"]) == 2
    assert bench(["decode", "--heads", "3", "--S_list", "9", "--device", "cpu"]) == 2
    assert bench(["host", "--S_list", "9", "--device", "cpu"]) == 2
    assert "--heads 3 must be a multiple of --groups 2" in capsys.readouterr().err
    assert bench(["decode", "--device", "gpu"]) == 2
    assert "'gpu' is no device" in capsys.readouterr().err
    for option in ("--B", "--S_list"):
        with pytest.raises(SystemExit, match="2"):
            bench(["decode", option, "0"])
        assert f"{option}: '0' is no whole number of at least 1" in capsys.readouterr().err
    for command, option in (
        ("kernels", "--parts"),
        ("kernels", "--passes"),
        ("layer", "--phi"),
        ("autotune", "--dtypes"),
    ):
        with pytest.raises(SystemExit, match="2"):
            bench([command, option, "slected"])
        assert f"{option}: slected: expected some of " in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert bench(["decode", "--device", "cuda"]) == 2
        assert "this machine has no device cuda" in capsys.readouterr().err
