"""Virtual environments that a stage makes for itself, as tox does: no Python of theirs is to begin unseen."""

from __future__ import annotations

import os

from ..hooks import watch
from ..stage import FOLDER, test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from ..stage import Config

_FILE = "nsa_pod.pth"


class MadeEnvironments:
    """Where a program of one is started without the PYTHONPATH that leads to the agent's modules, its packages do. What
    a test starts is the test's.
    """

    def __init__(self, config: Config) -> None:
        self._lines = config.all("start")
        roots = (config.one("tree"), os.environ.get("TMPDIR") or config.one("tree"))
        self._made_in = tuple(os.path.realpath(root) + os.sep for root in roots)
        self.after_import: dict[str, Callable[[ModuleType], None]] = {"subprocess": self._watch}

    def _watch(self, subprocess: Any) -> None:
        watch(subprocess.Popen, "__init__", before=self._starts)

    def _starts(self, frame: FrameType, process: Any, args: Any = (), *more: Any, **others: Any) -> None:
        if others.get("env") is not None and test_around() is None:
            self._enter(args, others["env"])

    def _enter(self, args: Any, env: Any) -> None:
        environment = _environment_of(args)
        if environment.startswith(self._made_in) and FOLDER not in env.get("PYTHONPATH", "").split(os.pathsep):
            for packages in _packages_of(environment):
                with open(os.path.join(packages, _FILE), "w", encoding="utf-8") as f:
                    f.writelines(line + "\n" for line in self._lines)


def _environment_of(args: Any) -> str:
    """The folder of the virtual environment whose program is to be run."""
    program = os.fsdecode(args if isinstance(args, (str, bytes, os.PathLike)) else args[0])
    return os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(program))))


def _packages_of(environment: str) -> list[str]:
    if not os.path.isfile(os.path.join(environment, "pyvenv.cfg")):
        return []
    library = os.path.join(environment, "lib")
    return [
        path
        for name in os.listdir(library)
        for path in [os.path.join(library, name, "site-packages")]
        if os.path.isdir(path)
    ]
