"""What the agent brings into the processes of a stage: its injected package, by a thin environment over their own.

The environment's own Python loads the package from the thin environment, whatever the stage does to PYTHONPATH; any
other Python by `sitecustomize`, which PYTHONPATH leads to, or as the environment's own from one that the stage makes.
"""

from __future__ import annotations

import os
import pkgutil
import shutil
from pathlib import Path
from types import ModuleType
from typing import Dict, Iterable, Mapping, Optional, Union

from orchestrator.agent import injected, offered
from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.env.thin_venv import ThinVenv
from orchestrator.agent.evidence.shell import recorder
from orchestrator.agent.injected.stage import FILE, config_text
from orchestrator.agent.layout import Layout
from orchestrator.agent.run.bytecode import Bytecode
from orchestrator.shared.pythons import NAME
from orchestrator.verdict import execution
from orchestrator.verdict.case import SESSIONS

PACKAGE = "nsa_pod_injected"
# Its modules lie one folder deeper, as what is installed does, for who looks through a program's own modules:
# hypothesis parses them in each session, and tries the numbers and words in them.
_INSTALLED = "site-packages"
_LEADS_THERE = f'__path__ = [f"{{__path__[0]}}/{_INSTALLED}"]\n'
_MARKED = ".marked"  # no name of a module: the folder around it is on the path
# Lines of a .pth file in a virtual environment are run twice.
_START = "import sys; {path!r} in sys.path or sys.path.append({path!r}); from {package} import guard; guard.install()"
_SITECUSTOMIZE = """\
import os

from {package} import guard

guard.install()
guard.run_displaced_sitecustomize(os.path.dirname(os.path.abspath(__file__)))
"""


class Injection:
    """The injected package of one run, and the thin environment that each of its stages begins with."""

    def __init__(self, places: Layout, interpreter: Interpreter, bytecode: Bytecode) -> None:
        self._places, self._interpreter, self.bytecode = places, interpreter, bytecode
        self._start = _START.format(path=str(places.injected), package=PACKAGE)
        self.venv = ThinVenv(places.venv, interpreter)
        package = places.injected / PACKAGE
        (package / _INSTALLED).mkdir(parents=True, exist_ok=True)  # a run that is gone on with has it
        (package / "__init__.py").write_text(_LEADS_THERE)
        own = {**_copied(injected, package / _INSTALLED), **_copied(offered, places.injected)}
        recorder.install(places.injected)
        (places.injected / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(package=PACKAGE))
        bytecode.keep_injected(own)
        self._marked = places.injected / _MARKED

    def forget(self) -> None:
        """Leave nothing of what earlier sessions have marked: no stage takes what another may have written there."""
        shutil.rmtree(self._marked, ignore_errors=True)

    def renew(self) -> None:
        """Make the thin environment anew, without what the stage before has installed into it."""
        self.venv.make([self._start])
        self.bytecode.renew()

    @property
    def has_layer(self) -> bool:
        """Whether the repository itself is installed."""
        return self._interpreter.below is not None

    def shadow(self, path: str, original: Path) -> Optional[str]:
        """Bring a copy of what the repository's own layer has installed of its file `path` into the thin environment,
        to be changed; its path among the packages. None if the file, as `original`, was not installed.
        """
        if not self.has_layer or not original.is_file():
            return None
        site, content = Path(self._interpreter.prefix, self._interpreter.library), original.read_bytes()
        parts = path.split("/")
        for inner in ("/".join(parts[start:]) for start in range(len(parts))):
            if (site / inner).is_file() and (site / inner).read_bytes() == content:
                top = inner.partition("/")[0]
                if (site / top).is_dir() and not (self.venv.packages / top).exists():
                    shutil.copytree(site / top, self.venv.packages / top, ignore=shutil.ignore_patterns("__pycache__"))
                return inner
        return None

    def tell(self, stage: str, more: Mapping[str, Union[str, Iterable[str]]]) -> None:
        """Leave the configuration of `stage`, with what `more` says, for the injected modules."""
        folder = self._places.stage(stage)
        own = {
            "report": str(folder / execution.FILE),
            "sessions": str(folder / SESSIONS),
            "agent": str(os.getpid()),
            "start": self._start,
            "python": NAME,
            "marked": str(self._marked),
            "bytecode": str(self.bytecode.folder),
            "uncompiled": str(self.bytecode.report),
        }
        (self._places.injected / FILE).write_text(
            config_text({**own, **more}), encoding="utf-8", errors="surrogateescape"
        )


def _copied(package: ModuleType, folder: Path) -> Dict[Path, str]:
    """Write the modules of the package, and of those inside it, into `folder`: each file with the full name of the
    module that it is.
    """
    copies = {}
    above = f"{package.__name__}."
    for module in pkgutil.walk_packages(package.__path__, above):
        inner = module.name[len(above) :].replace(".", "/")
        file = f"{inner}/__init__.py" if module.ispkg else f"{inner}.py"
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pkgutil.get_data(package.__name__, file) or b"")
        copies[path] = module.name
    return copies
