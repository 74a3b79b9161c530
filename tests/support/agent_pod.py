"""A pod in a directory: trees, plans and runs of the real agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import pytest

from orchestrator.agent import lock
from orchestrator.agent.env import fingerprint
from orchestrator.agent.git.pristine import Wanted, adopt
from orchestrator.shared import journal, stage_record, tree
from orchestrator.shared import plan as plans
from orchestrator.verdict import rules
from orchestrator.verdict.case import Run as JudgedRun
from tests.support.files import write_files
from tests.support.waiting import wait_for

COMMIT = "4106f1b2c3d4e5f60718293a4b5c6d7e8f901234"
LIMITS = {"wall": 60.0, "silence": 60.0, "grace": 2.0, "log_bytes": 1 << 20}


def stage(name: str, argv: Sequence[str], **over: Any) -> dict[str, Any]:
    """A stage of a plan; limits and expectations are laid over the defaults."""
    limits = {**LIMITS, **over.pop("limits", {})}
    own = {"env": {}, "secrets": [], "paths": [], "needs": [], "required": True, "cuda": False, "pytest": False}
    plain = {"exclusive": None, "blocked": None, "expect": {}}
    return {"name": name, "argv": list(argv), "limits": limits, **own, **plain, **over}


def pytest_stage(name: str, *arguments: str, tests: Mapping[str, Any] | None = None, **over: Any) -> dict[str, Any]:
    """A stage that runs pytest on files of the tree."""
    expect = {"tests": dict(tests or {}), **over.pop("expect", {})}
    paths = [a.split("::")[0] for a in arguments if a.split("::")[0].endswith(".py")]
    start = over.pop("start", ["python", "-m", "pytest"])
    return stage(name, [*start, "-q", *arguments], pytest=True, paths=paths, expect=expect, **over)


def artifact(path: str, **over: Any) -> dict[str, Any]:
    """An artifact that a stage owes."""
    return {"path": path, **{key.rstrip("_"): value for key, value in over.items()}}


def said(name: str, argv: Sequence[str], **over: Any) -> dict[str, Any]:
    """A stage that owes nothing but its stdout, not blank."""
    return stage(name, argv, expect={"artifacts": [artifact(f"{name}.txt", from_="stdout")]}, **over)


def script(text: str) -> list[str]:
    """argv of a Python program."""
    return ["python", "-c", text]


SYSTEM = {"kind": "system", "python": sys.executable, "packages": {}}
_PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
_PYTEST_BEFORE_311 = ("exceptiongroup", "tomli", "typing_extensions.py")


def make_environment(root: Path) -> dict[str, Any]:
    """A virtual environment with pytest (linked to the tests' own) and a fingerprint, as bootstrap leaves one."""
    venv.create(root, with_pip=False, symlinks=True)
    (site,) = root.glob("lib/python*/site-packages")
    own = Path(pytest.__file__).parent.parent
    older = _PYTEST_BEFORE_311 if sys.version_info < (3, 11) else ()
    for name in (*_PYTEST, *older, *(found.name for found in own.glob("pluggy-*.dist-info"))):
        os.symlink(own / name, site / name)
    program = root / "bin" / "pytest"
    program.write_text(f"#!{root}/bin/python\nimport sys, pytest\nsys.exit(pytest.main())\n")
    program.chmod(0o755)
    (root / "env.json").write_text(json.dumps({"fingerprint": fingerprint.fingerprint(root)}))
    return {"kind": "managed", "key": root.name, "python": f"{root}/bin/python", "root": str(root), "packages": {}}


def small_python() -> str:
    """A Python that has pytest alone, until this process ends: each run looks at all that is installed, four times, and
    beside the tests themselves PyTorch may be."""
    with _making:  # tests run things in threads
        return _small_python()


@cache
def _small_python() -> str:
    return str(make_environment(Path(_folder.name, "small"))["python"])


_folder, _making = TemporaryDirectory(), Lock()


@dataclass
class Run:
    """A run on the pod; `events` and `records` are read from its journal, the chain checked."""

    pod: Pod
    run_id: str
    plan: dict[str, Any]

    @property
    def path(self) -> Path:
        return self.pod.workdir / "runs" / self.run_id

    @property
    def events(self) -> list[dict[str, Any]]:
        file = self.path / "journal.jsonl"
        return journal.read(file.read_bytes()) if file.exists() else []

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        return stage_record.by_stage(self.events)

    @property
    def ending(self) -> str | None:
        return next((e["reason"] for e in self.events if e["event"] == "run_ended"), None)

    def judge(self) -> dict[str, rules.Judgement]:
        """What the laptop's judge says of every stage that ended; it must be what the agent said."""
        records = self.records
        judged: dict[str, rules.Judgement] = {}
        for planned in (p for p in self.plan["stages"] if p["name"] in records):
            name = planned["name"]
            statuses = {known: j.status for known, j in judged.items()}
            judged[name] = rules.judge_stage(JudgedRun(self.path), planned, records[name], statuses)
            assert judged[name].status == records[name]["status"]
            assert judged[name].reason == records[name]["reason"]
        return judged

    def only(self) -> rules.Judgement:
        """The judgement of the run's one stage."""
        assert self.ending == "completed", self.trouble()
        (judgement,) = self.judge().values()
        return judgement

    def text(self, name: str) -> str:
        return (self.path / name).read_text(errors="replace")

    def wait_for(self, event: str, limit: float = 30.0, **fields: Any) -> dict[str, Any]:
        """The first such event in the journal, waited for; the journal is read where it has grown."""
        end = time.monotonic() + limit
        file, size = self.path / "journal.jsonl", 0
        while time.monotonic() < end:
            if file.exists() and file.stat().st_size != size:
                size = file.stat().st_size
                for found in self.events:
                    if found["event"] == event and all(found.get(key) == value for key, value in fields.items()):
                        return found
            time.sleep(0.02)
        raise AssertionError(f"no {event} in {limit} s: {self.trouble()}")

    def wait(self, limit: float = 200.0) -> Run:
        """The run once it has ended and its agent has left the pod: from then on nothing there changes by itself."""
        self.wait_for("run_ended", limit)
        wait_for(lambda: lock.holder(self.pod.workdir) is None)
        return self

    def trouble(self) -> str:
        log = self.path / "agent.log"
        return f"{[e for e in self.events if e['event'] == 'agent_error']} {log.read_text() if log.exists() else ''}"


@dataclass
class Pod:
    """A pod whose workdir is `workdir`, served by the zipapp `agent` under the Python `python`."""

    workdir: Path
    agent: Path
    environment: dict[str, Any]
    python: str = sys.executable
    env: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    def call(self, *argv: str, input: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        """One agent command, as the laptop calls it."""
        done = subprocess.run(
            [self.python, str(self.agent), *argv],
            input=input,
            capture_output=True,
            env={**os.environ, **self.env},
            timeout=60,
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done

    def ask(self, *argv: str) -> Any:
        return json.loads(self.call(*argv).stdout)

    def add_tree(self, files: Mapping[str, str | bytes]) -> str:
        """Put a tree on the pod; its hash. A path that ends with `!` is executable."""
        incoming = self.workdir / f"incoming-{self._count}"
        self._count += 1
        write_files(incoming, {name.rstrip("!"): content for name, content in {"README.md": "tiny\n", **files}.items()})
        for name in files:
            (incoming / name.rstrip("!")).chmod(0o755 if name.endswith("!") else 0o644)
        hashed = tree.tree_hash(tree.scan(incoming))
        adopt(incoming, self.workdir / "trees" / hashed, Wanted(hashed, ()))
        return hashed

    def prepare(self, files: Mapping[str, str | bytes], stages: Iterable[dict[str, Any]], **over: Any) -> Run:
        """Put a tree and a plan on the pod, ready to be launched."""
        plan: dict[str, Any] = {
            "format": plans.FORMAT,
            "created": "2026-11-21T10:15:00Z",
            "nonce": os.urandom(8).hex(),
            "pod": "tiny",
            "who": "user@laptop",
            "commit": COMMIT,
            "commit_object": "",
            "tree": self.add_tree(files),
            "submodules": [],
            "dirty": False,
            "runbook": {"name": "tiny", "source": "file", "path": "tiny.yaml", "sha256": "0" * 64, "committed": False},
            "requires": [],
            "environment": self.environment,
            "promises": {"cuda": False},
            "facts": {},
            "cost_per_hour": None,
            "workdir": str(self.workdir),
            "left_out": [],
            "stages": list(stages),
            "limit": None,
            "estimate": None,
            **over,
        }
        run_id = f"20261121-101500-{COMMIT[:7]}-{plans.plan_hash(plan)[:8]}"
        run = Run(self, run_id, {**plan, "run_id": run_id})
        run.path.mkdir(parents=True)
        (run.path / "plan.json").write_text(json.dumps(run.plan))
        return run

    def launch(self, files: Mapping[str, str | bytes], stages: Iterable[dict[str, Any]], **over: Any) -> Run:
        """A run that goes on by itself."""
        run = self.prepare(files, stages, **over)
        self.ask("launch", str(run.path))
        return run

    def run(self, files: Mapping[str, str | bytes], *stages: dict[str, Any], **over: Any) -> Run:
        """A run that has ended."""
        return self.launch(files, stages, **over).wait()
