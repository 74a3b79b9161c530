"""Where things are on the pod."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

CANCEL_FILE = "cancel.json"
PREFIX = "nsa-pod."
"""Of the names in /tmp of deep workdirs."""
BESIDE = "beside"
"""In a run's directory: the trees and thin environments of other commits than its plan's own."""


@dataclass(frozen=True)
class Layout:
    """The places of one run; `run_dir` is <workdir>/runs/<run id>.

    `beside` names a commit beside the plan's own, whose tree and thin environment are apart; `below` is where in
    artifacts/ a stage has its own.
    """

    run_dir: Path
    beside: str = ""
    below: str = ""

    @property
    def workdir(self) -> Path:
        return self.run_dir.parent.parent

    @property
    def journal(self) -> Path:
        return self.run_dir / "journal.jsonl"

    @property
    def tree(self) -> Path:
        """The run's own copy of the commit's tree, in which its stages work."""
        return self._of_commit / "tree"

    @property
    def artifacts(self) -> Path:
        return self.run_dir / "artifacts" / self.below

    @property
    def injected(self) -> Path:
        """What the agent puts on every stage's PYTHONPATH."""
        return self.run_dir / "injected"

    @property
    def venv(self) -> Path:
        """The thin environment that each stage gets anew."""
        return self._of_commit / "venv"

    def stage(self, name: str) -> Path:
        return self.run_dir / "stages" / name

    def pristine(self, tree: str) -> Path:
        return self.workdir / "trees" / tree

    @property
    def objects(self) -> Path:
        """Git's objects, for all runs."""
        return self.workdir / "objects"

    @property
    def builds(self) -> Path:
        """What stages built in the tree for later ones, as they left it: a folder for each stage."""
        return self._of_commit / "builds"

    @property
    def bytecode(self) -> Path:
        """What stages had to compile of the environment, for those after them."""
        return self._of_commit / "bytecode"

    @property
    def _of_commit(self) -> Path:
        return self.run_dir / BESIDE / self.beside if self.beside else self.run_dir

    def cache(self, key: str) -> Path:
        return self.workdir / "cache" / key

    def tmp(self, number: int) -> Path:
        """A stage's temporary files; the path is short, for sockets are made below it."""
        return self.workdir / "tmp" / f"{self.run_dir.name[-8:]}-{number}"

    @property
    def short(self) -> Path:
        """The folder of them, where its own path is too long: a name for each workdir, in each container."""
        whose = f"{self.workdir.stat().st_ino} {self.workdir}"
        return Path("/tmp", f"{PREFIX}{hashlib.sha256(os.fsencode(whose)).hexdigest()[:8]}")


@dataclass(frozen=True)
class Scratch(Layout):
    """Of a stage whose tests run again: what they leave is in a folder of its own, and is no part of the run."""

    folder: Path = Path()

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def stage(self, name: str) -> Path:
        return self.folder / "stage"


def cache_key(tree: str, fingerprint: str) -> str:
    """Of the code that stages compile, for one tree and environment."""
    return hashlib.sha256(f"{tree} {fingerprint}".encode()).hexdigest()[:16]
