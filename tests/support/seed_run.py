"""A run that left what the seeds' pods left, and beside it a bench that is in order: as fetch would have brought it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.results import Seen
from orchestrator.shared.files import describe
from orchestrator.store.run_directory import RunDirectory
from tests.support.files import write_files
from tests.support.run_files import make_run, record, write_journal

STAGES = """\
  - name: decode_bench
    run: [python, -m, bench.decode]
    expect:
      artifacts:
        - path: decode_gpu_final.csv
          kind: csv
          checks: [{column: cmp_pct, max: 100}, {sum: [cmp_pct, sel_pct, win_pct], near: 100, within: 2}]
  - name: decode_reads
    run: [python, -m, bench.decode, --reads]
    expect: {artifacts: [{path: reads.csv, kind: csv, checks: [{equal: [reads_actual, reads_expected]}]}]}
  - name: triton_bwd
    run: [python, -m, bench.backward]
    expect: {artifacts: [{path: triton_bwd.txt, from: stdout}]}
  - name: fa2_bench
    run: [python, -m, bench.fa2]
    expect: {artifacts: [{path: fa2_win.csv, kind: csv, columns: [S, speedup]}]}
  - name: summary
    needs: [decode_bench]
    run: [python, -m, bench.summary]
    expect: {artifacts: [{path: summary.txt, from: stdout}]}
  - name: prefill
    exclusive: gpu
    run: [python, -m, bench.prefill]
    expect:
      artifacts:
        - path: prefill.csv
          kind: csv
          figures:
            keys: [S, backend]
            measures:
              ms_total: {unit: ms, better: lower}
              ms_dense: {unit: ms, better: lower}
              cmp_pct: {unit: "%", better: neither}
              sel_pct: {unit: "%", better: neither}
              win_pct: {unit: "%", better: neither}
              roofline_frac: {unit: of the roofline, better: higher}
              speedup_over_dense: {unit: x, better: higher}
"""
# Seed 001's decode table, and what its one-shot runner left of the rest.
DECODE = """\
S,total,cmp_pct,sel_pct,win_pct
512,5.30,106.3,108.8,110.5
1024,5.03,110.5,121.0,101.3
2048,5.65,113.3,115.2,114.4
4096,5.70,102.2,105.4,114.1
"""
READS = "S,reads_actual,reads_expected\n512,1091,1571\n1024,1091,1603\n2048,1091,1667\n4096,1091,1795\n"
SEEDS = {
    "decode_bench": {"artifacts/decode_gpu_final.csv": DECODE},
    "decode_reads": {"artifacts/reads.csv": READS},
    "triton_bwd": {"artifacts/triton_bwd.txt": ""},
    "fa2_bench": {"artifacts/fa2_win.csv": "S,speedup\n"},
}
_PREFILL = "S,backend,ms_total,ms_dense,cmp_pct,sel_pct,win_pct,roofline_frac,speedup_over_dense\n"
_SAMPLE = "2026/11/23 10:15:{:06.3f}, 0, {}, 3201, {}, {}, {}, 5000, 0x0000000000000000\n"
_OF_EXECUTION = {"cuda:0": {"launches": 4948, "kernels": ["_block_places_kernel", "_forward", "_query_places_kernel"]}}


def prefill_rows() -> str:
    """Three samples for each length: longer ones gain."""
    rows = _PREFILL
    for length in (2048, 4096, 8192, 16384, 32768, 65536):
        for wobble in (-0.02, 0.0, 0.03):
            total, dense = (1 + wobble) * length / 9000, (1 - wobble) * (length / 8192) ** 2
            cells = (length, "triton", f"{total:.6f}", f"{dense:.6f}", 41.5, 25.0, 33.5, 0.41, f"{dense / total:.4f}")
            rows += ",".join(map(str, cells)) + "\n"
    return rows


def telemetry(seconds: int = 120) -> str:
    """One GPU, ten moments a second."""
    return "".join(
        _SAMPLE.format(n / 10 % 60, 1980 - 15 * (n % 7), 38 + n // 40, 120.5 + n % 90, 0 if n < 20 else 97)
        for n in range(min(seconds * 10, 600))
    )


def ended(run: RunDirectory, name: str, files: Mapping[str, str], **over: Any) -> dict[str, Any]:
    """The record of a stage that left these files and its streams."""
    facts = record(run, name)
    (run.path / "artifacts" / f"{name}.txt").unlink()
    left = {f"stages/{name}/stdout": f"{name} is done\n", f"stages/{name}/stderr": "", **files}
    write_files(run.path, left)
    described = [describe(run.path, path) for path in left]
    names = (path.partition("/")[2] for path in files if path.startswith("artifacts/"))
    owed = [{"path": name, "existed_before": False, "problem": None} for name in names]
    return {**facts, "files": described, "artifacts": owed, **over}


def seed_run(folder: Path) -> RunDirectory:
    """The run, settled."""
    run, plan = make_run(folder, {}, STAGES)
    records = [ended(run, name, files) for name, files in SEEDS.items()]
    blocked = {"started": False, "blocked": "needs decode_bench, which is failed", "files": [], "artifacts": []}
    records.append(ended(run, "summary", {}) | blocked)
    prefill = {"artifacts/prefill.csv": prefill_rows(), "stages/prefill/telemetry.csv": telemetry()}
    records.append(ended(run, "prefill", prefill, executed=_OF_EXECUTION, used_cuda=True))
    write_journal(run, plan, records)
    run.settle(Seen("ended"))
    return run
