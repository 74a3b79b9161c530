"""What the commands about environments show on a terminal: sentences and tables, no data structures."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType

from orchestrator.report import terminal
from orchestrator.shared.answers import KeptItem, Pruned

GIB = 2**30
MANAGED = {
    "kind": "managed", "profile": "torch28", "key": "k1", "python": "/w/envs/k1/bin/python",
    "python_version": "3.12.3", "torch_cuda": "12.8", "lock_sha256": "0" * 64, "notes": ["numpy is old"],
    "packages": {"attrs": "1", "numpy": "2.3", "pytest": "9.2", "torch": "2.8.0+cu128", "triton": "3.4.0",
                 "flash-attn": "2.8.3", "zipp": "3"},
    "built": {"flash-attn": {"seconds": 2700.0}},
}  # fmt: skip


def lines_of(found: dict[str, Any]) -> list[str]:
    return text_of(terminal.facts(found))


def text_of(shown: RenderableType) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False).print(shown)
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
    def item(kind: str, name: str, in_use: str | None = None) -> KeptItem:
        return {"kind": kind, "name": name, "bytes": GIB, "in_use": in_use}

    found: Pruned = {
        "dry_run": False, "before_bytes": 9 * GIB, "after_bytes": 4 * GIB, "free_bytes": 50 * GIB,
        "removed": [item("run", "r1"), item("run", "r2"), item("environment", "k1")],
        "kept": [item("run", "r4", "it goes on"), item("run", "r3"), item("tree", "t"), item("tree", "u")],
    }  # fmt: skip
    assert text_of(terminal.pruned(found)) == [
        "removed: 2 runs, 2.0 GiB",
        "removed: 1 environment, 1.0 GiB",
        "kept: run r4, 1.0 GiB: it goes on",
        "kept: 1 run, 1.0 GiB",
        "kept: 2 trees, 2.0 GiB",
        "the workdir took 9.0 GiB and takes 4.0 GiB; the disk has 50.0 GiB free",
    ]
    planned = text_of(terminal.pruned({**found, "dry_run": True}))
    assert planned[0] == "would be removed: 2 runs, 2.0 GiB" and "would take 4.0 GiB" in planned[-1]
    nothing = text_of(terminal.pruned({**found, "removed": [], "kept": []}))
    assert nothing[0] == "nothing was removed" and len(nothing) == 2
