"""A pod as far as environments go: a workdir, the agent as it is shipped, and a package index of tiny wheels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import proc
from tests.support.agent_pod import small_python
from tests.support.wheels import make_index, make_wheel

LIMIT_S = 120.0
_VERSION = ".".join(map(str, sys.version_info[:2]))
WITH_PIP = {"version": _VERSION, "path": sys.executable}
"""A request's Python that is asked how its pip is set up."""


@dataclass
class EnvPod:
    """`variables` are the pod's own, over a bare environment; `agent` is the zipapp."""

    workdir: Path
    agent: Path
    uv: Path | None
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def envs(self) -> Path:
        return self.workdir / "envs"

    def popen(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one agent command; its stdin is open."""
        path = [str(self.uv.parent)] if self.uv else []
        bare = {"PATH": os.pathsep.join([*path, "/usr/bin", "/bin"]), "HOME": str(self.workdir / "home")}
        (self.workdir / "home").mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-I", str(self.agent), "env", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**bare, **self.variables},
        )

    def call(self, *arguments: str, input: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer of one agent command."""
        process = self.popen(*arguments)
        out, err = process.communicate(json.dumps(input or {}).encode(), timeout=LIMIT_S)
        assert out, err.decode()
        answer: dict[str, Any] = json.loads(out)
        return answer

    def prune(self, *arguments: str) -> dict[str, Any]:
        """What the agent removed, or with --dry-run would."""
        command = [sys.executable, "-I", str(self.agent), "prune", str(self.workdir), *arguments]
        answer: dict[str, Any] = json.loads(subprocess.check_output(command, timeout=LIMIT_S))
        return answer

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        return self.call("check", "--workdir", str(self.workdir), input=request)

    def start(self, request: dict[str, Any]) -> str:
        """Start or join the build; its job."""
        return str(self.call("build", "--workdir", str(self.workdir), input=request)["job"])

    def wait(self, job: str) -> dict[str, Any]:
        """The end of a build, with all of its progress."""
        lines: list[dict[str, Any]] = []
        offset = 0
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            place = ["--workdir", str(self.workdir), job, "--offset", str(offset), "--wait", "5"]
            told = self.call("wait", *place)
            lines += told["progress"]
            offset = told["offset"]
            if told["state"] != "running":
                return {**told, "progress": lines}
        raise AssertionError(f"the build did not end: {lines[-3:]}")

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build to the end; the environment."""
        ended = self.wait(self.start(request))
        assert ended["state"] == "built", ended
        found = self.check(request)
        assert found["state"] == "ready", found
        return dict(found["environment"])

    def refused(self, request: dict[str, Any]) -> str:
        """Build to the end; the sentence it failed with."""
        ended = self.wait(self.start(request))
        assert ended["state"] == "failed", ended
        assert "\n" not in ended["error"]
        return str(ended["error"])

    def builders(self) -> list[int]:
        """Living builders of this pod: detached processes of its agent."""
        return proc.saying(str(self.agent), "\0build\0", f"\0{self.workdir}\0")

    def leftovers(self) -> list[str]:
        """What lies in envs/ under any name but a whole environment's."""
        hidden = [p for p in self.envs.iterdir() if p.name.startswith((".building", ".trash"))]
        halves = [p for p in self.envs.iterdir() if not p.name.startswith(".") and not (p / "env.json").is_file()]
        return [p.name for p in (*hidden, *halves)]


def request(*requirements: str, **more: Any) -> dict[str, Any]:
    """A request as the laptop makes it, for a Python that has no pip, of which PIP_* variables say all: to start one
    takes as long as to build an environment of tiny wheels.
    """
    return {
        "format": 1,
        "profile": None,
        "python": {"version": _VERSION, "path": small_python()},
        "requirements": list(requirements),
        "indexes": [],
        "wheels": [],
        "pins": {},
        "cuda": None,
        "disk_bytes": 0,
        **more,
    }


def tiny_index(folder: Path) -> str:
    """An index with `tool` 1.0 and 2.0 (which needs `part`), and `part`."""
    wheels = [
        make_wheel(folder / "files", "tool", "1.0", requires=["part"], script=True),
        make_wheel(folder / "files", "tool", "2.0", requires=["part>=1"], script=True),
        make_wheel(folder / "files", "part", "1.5", files={"part/inner.py": "VALUE = 1\n"}),
    ]
    return make_index(folder / "simple", wheels)


def python(environment: dict[str, object], code: str) -> str:
    """What `code` prints under the environment's Python."""
    return subprocess.check_output([str(environment["python"]), "-I", "-c", code], text=True).strip()
