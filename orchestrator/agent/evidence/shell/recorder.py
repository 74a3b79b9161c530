"""What makes every shell of a stage write its exit codes down.

A bash reads the recorder through BASH_ENV. `sh` is made a bash as well: by argv, by a `sh` at the front of PATH, and by
the default SHELL of make.
"""

from __future__ import annotations

import os
import pkgutil
import shutil
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Sequence

from orchestrator.agent.evidence.programs import interpreter_of
from orchestrator.agent.layout import Layout
from orchestrator.shared.files import both_ways

REPORT = "shell.tsv"
_FOLDER = "shell"
_RECORDER = "shell_recorder.bash"
# The kernel starts a script's interpreter with one argument; bash called `sh` would not read BASH_ENV.
_SH = '#!{bash} -p\nNSA_POD_SH=1 exec {bash} "$@"\n'
# Read before each Makefile, which may set a SHELL of its own and shall not see this file among its own.
_MAKEFILE = "SHELL := {sh}\nMAKEFILE_LIST :=\n"


class Shells(NamedTuple):
    """How a stage is to be started, so that its shells write their lost exit codes down."""

    argv: List[str]
    env: Dict[str, str]


def install(root: Path) -> None:
    """Put what the shells of a run need below `root`; nothing where there is no bash."""
    bash = shutil.which("bash")
    if bash is None:
        return
    folder = root / _FOLDER
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / _RECORDER).write_bytes(pkgutil.get_data("orchestrator.agent.injected", _RECORDER) or b"")
    sh = folder / "bin" / "sh"
    sh.write_text(_SH.format(bash=bash))
    sh.chmod(0o700)
    (folder / "sh.mk").write_text(_MAKEFILE.format(sh=sh))


def recorded(argv: Sequence[str], env: Mapping[str, str], places: Layout, cwd: Path, report: Path) -> Shells:
    """`argv` and `env` of a stage that runs no pytest itself, with the recorder in each of its shells."""
    folder = places.injected / _FOLDER
    if not (folder / _RECORDER).is_file():
        return Shells(list(argv), dict(env))
    sh = folder / "bin" / "sh"
    environment, *rest = env["PATH"].split(os.pathsep)
    more = {
        "PATH": os.pathsep.join([environment, str(sh.parent), *rest]),
        "BASH_ENV": str(folder / _RECORDER),
        "NSA_POD_SHELL_RECORD": str(report),
        "NSA_POD_AGENT": str(os.getpid()),
        "NSA_POD_SHELL_ROOTS": ":".join([str(places.tree), *both_ways([env["TMPDIR"]]), str(places.artifacts)]),
        "MAKEFILES": " ".join(filter(None, [str(folder / "sh.mk"), env.get("MAKEFILES", "")])),
    }
    if env.get("BASH_ENV"):
        more["NSA_POD_BASH_ENV"] = env["BASH_ENV"]
    return Shells(_with_bash(argv, sh, cwd), {**env, **more})


def _with_bash(argv: Sequence[str], sh: Path, cwd: Path) -> List[str]:
    """`argv` with `sh` as a bash, also where it is what a script's first line names."""
    if argv[0] in ("sh", "/bin/sh", "/usr/bin/sh"):
        return [str(sh), *argv[1:]]
    interpreter = interpreter_of(argv[0], cwd)
    if interpreter and os.path.basename(interpreter[0]) == "sh":
        return [str(sh), *interpreter[1:], *argv]
    return list(argv)
