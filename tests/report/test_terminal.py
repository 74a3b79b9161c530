"""What the commands about environments show on a terminal: sentences and tables, no data structures."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from orchestrator.report import terminal

GIB = 2**30
KEPT = {
    "key": "k1",
    "profile": "torch28",
    "bytes": 5 * GIB,
    "age_s": 130.0,
    "in_use": True,
    "packages": {},
    "why": "a run uses it",
}
GONE = {"key": "k2", "profile": None, "bytes": 3 * GIB, "age_s": 40 * 86400.0, "in_use": False, "packages": {}}
MANAGED = {
    "kind": "managed", "profile": "torch28", "key": "k1", "python": "/w/envs/k1/bin/python",
    "python_version": "3.12.3", "torch_cuda": "12.8", "lock_sha256": "0" * 64, "notes": ["numpy is old"],
    "packages": {"attrs": "1", "numpy": "2.3", "pytest": "9.2", "torch": "2.8.0+cu128", "triton": "3.4.0",
                 "flash-attn": "2.8.3", "zipp": "3"},
    "built": {"flash-attn": {"seconds": 2700.0}},
}  # fmt: skip


def lines_of(found: dict[str, Any]) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False).print(terminal.facts(found))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_a_bootstrap_says_which_environment_is_ready() -> None:
    assert lines_of(MANAGED) == [
        "environment k1 (torch28): Python 3.12.3, CUDA 12.8",
        "has torch 2.8.0+cu128, triton 3.4.0, flash-attn 2.8.3, attrs 1, numpy 2.3, pytest 9.2 and 1 more",
        "at /w/envs/k1/bin/python",
        "flash-attn was compiled on the pod",
        "numpy is old",
    ]
    system = {"kind": "system", "python": "/usr/bin/python3", "python_version": "3.11.2", "packages": {}}
    assert lines_of(system) == [
        "the pod's own Python as it is: Python 3.11.2",
        "has none of the named packages",
        "at /usr/bin/python3",
    ]


def test_a_prune_says_what_went_what_stayed_and_why() -> None:
    wheels = [{"file": "flash_attn-2.8.3+src.sm90-cp312-cp312-linux_x86_64.whl", "bytes": GIB}]
    pruned = {"dry_run": False, "removed": [GONE], "kept": [KEPT], "wheels": wheels, "freed_bytes": 4 * GIB}
    assert lines_of(pruned) == [
        "key profile size unused for",
        "k2 3.0 GiB 40 days removed",
        "k1 torch28 5.0 GiB 2 min 10 s kept: a run uses it",
        "compiled wheel removed: flash_attn-2.8.3+src.sm90-cp312-cp312-linux_x86_64.whl, 1.0 GiB",
        "1 environment removed, 1 kept; 4.0 GiB of disk freed, downloads included",
    ]
    planned = lines_of({**pruned, "dry_run": True, "freed_bytes": 0})
    assert planned[1].endswith("would be removed") and planned[3].startswith("compiled wheel would be removed: ")
    assert planned[-1] == "1 environment would be removed, 1 kept"
    nothing = {"dry_run": False, "removed": [], "kept": [], "wheels": [], "freed_bytes": 0}
    assert lines_of(nothing) == ["0 environments removed, 0 kept; 0 B of disk freed, downloads included"]
