"""A virtual environment that holds next to nothing itself: it adds what lies over it to another environment's packages.

Written here and not by `venv`: that takes a process of the environment's Python each time, and some pods lack it. What
makes a directory one is pyvenv.cfg and a link to the base interpreter (PEP 405).
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.shared.files import Identity, snapshot

_PYTHON = re.compile(r"python\d*(\.\d+)?")
_SHEBANG_BYTES = 127  # what the oldest kernels read of a first line
_SHEBANG = re.compile(rb"#! *(?P<python>\S+)(?P<options>[^\n]*)\n")
# How installers write a first line that would be too long.
_LAUNCHED = re.compile(rb"#!/bin/sh\n'''exec' ['\"]?(?P<python>[^'\"\n]+?)['\"]?(?P<options>) \"\$0\" \"\$@\"\n' '''\n")


class ThinVenv:
    """A thin environment at `root` over `below`: its Python sees what is installed there, and writes nothing there."""

    def __init__(self, root: Path, below: Interpreter) -> None:
        self.root = root
        self._below = below
        self._scripts = list(_scripts(below))
        self._made: Optional[Tuple[List[str], Mapping[str, Identity]]] = None

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    @property
    def packages(self) -> Path:
        """Its own, which come before those of the one below."""
        return self.root / self._below.library

    def make(self, first: Sequence[str]) -> None:
        """Write it anew, without what anybody has installed into it; its Pythons begin with the lines `first`.

        One that nobody has touched since stays.
        """
        if self._made == (list(first), snapshot(self.root, folders=True)):
            return
        shutil.rmtree(self.root, ignore_errors=True)
        self.bin.mkdir(parents=True)
        os.symlink(self._below.base, self.python)
        for name in _names_of_python(self._below):
            os.symlink("python", self.bin / name)
        for name, options, body in self._scripts:
            place = self.bin / name
            place.write_bytes(_head(self.python, options) + body)
            place.chmod(0o755)
        own = not self._below.virtual
        if not own:
            self._link_programs()
            self._link_shared()
        config = {"home": os.path.dirname(self._below.base), "include-system-site-packages": "true" if own else "false"}
        (self.root / "pyvenv.cfg").write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
        self.packages.mkdir(parents=True)
        below = [] if own else [f"import site; site.addsitedir({site!r})" for site in self._below.linked_sites]
        (self.packages / "nsa_pod.pth").write_text("".join(line + "\n" for line in [*first, *below]))
        self._made = list(first), snapshot(self.root, folders=True)

    def _link_programs(self) -> None:
        """What packages install that no Python runs, such as ninja: some look for it beside their Python."""
        for name in _listed(self._below.bin):
            program = os.path.join(self._below.bin, name)
            if os.path.isfile(program) and os.access(program, os.X_OK) and not os.path.lexists(self.bin / name):
                os.symlink(program, self.bin / name)

    def _link_shared(self) -> None:
        """What packages install beside themselves into their prefix, such as libraries and headers."""
        prefix = Path(self._below.bin).parent
        for name in set(_listed(str(prefix))) - {"bin", "lib", "lib64", "pyvenv.cfg"}:
            os.symlink(prefix / name, self.root / name)
        library = Path(self._below.library)  # lib/python3.11/site-packages
        (self.root / library.parts[0]).mkdir()
        for name in set(_listed(str(prefix / library.parts[0]))) - {library.parts[1]}:
            os.symlink(prefix / library.parts[0] / name, self.root / library.parts[0] / name)

    def instead_of(self, program: str) -> str:
        """The program of the thin environment that stands for `program` of the one below; else `program`."""
        folder, name = os.path.split(program)
        here = self.bin / name
        return str(here) if folder in self._below.bins and os.path.lexists(here) else program


def _names_of_python(below: Interpreter) -> set[str]:
    major, minor = below.version.split(".")[:2]
    found = {name for name in _listed(below.bin) if _PYTHON.fullmatch(name)}
    return {*found, "python3", f"python{major}.{minor}"} - {"python"}


def _scripts(below: Interpreter) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, options and body of each script of the environment that its own Python runs, or one below it."""
    ours = {os.path.realpath(folder) for folder in below.bins}  # the way to the environment may be a link
    for name in _listed(below.bin):
        try:
            with open(os.path.join(below.bin, name), "rb") as f:
                text = f.read() if f.read(2) == b"#!" and f.seek(0) == 0 else b""
        except OSError:
            continue
        head = _LAUNCHED.match(text) or _SHEBANG.match(text)
        folder, _, python = os.fsdecode(head["python"]).rpartition("/") if head else ("", "", "")
        if head and os.path.realpath(folder) in ours and _PYTHON.fullmatch(python):
            yield name, head["options"], text[head.end() :]


def _head(python: str, options: bytes) -> bytes:
    """The first line of a script that `python` runs; too long for the kernel, lines that sh and Python understand."""
    line = b"#!" + os.fsencode(python) + options + b"\n"
    if len(line) <= _SHEBANG_BYTES and b" " not in os.fsencode(python):
        return line
    return b"#!/bin/sh\n'''exec' \"" + os.fsencode(python) + b'"' + options + b" \"$0\" \"$@\"\n' '''\n"


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
