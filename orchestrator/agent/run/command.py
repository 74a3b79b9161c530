"""From a planned stage to the command that the supervisor runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict

from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.env.thin_venv import ThinVenv
from orchestrator.agent.evidence.shell import recorder
from orchestrator.agent.host.inherited import inherited
from orchestrator.agent.layout import Layout
from orchestrator.agent.run import prepare
from orchestrator.agent.run.bytecode import Bytecode
from orchestrator.agent.run.secret_values import Secrets
from orchestrator.agent.run.supervise import Command
from orchestrator.agent.run.variables import stage_variables
from orchestrator.shared.plan import Stage

FD_VARIABLE = "NSA_POD_PYTEST_FD"
EVENTS = "pytest.jsonl"


@dataclass(frozen=True)
class Commands:
    """Makes the commands of a run's stages; `cache` is where compiled code is kept."""

    commit: str
    places: Layout
    interpreter: Interpreter
    venv: ThinVenv
    secrets: Secrets
    cache: Path
    bytecode: Bytecode

    def of(self, stage: Stage, tmp: Path) -> Command:
        """The command of `stage`, with `tmp` as its TMPDIR."""
        folder = self.places.stage(stage["name"])
        places = replace(self.places, below=stage.get("folder", ""))
        cwd = places.tree / stage.get("cwd", "")
        argv = [self._fill(word, places) for word in prepare.with_python(stage["argv"], self.venv.python)]
        argv[0] = self.venv.instead_of(argv[0])
        if stage["pytest"]:
            argv = prepare.with_pytest_options(argv, places.tree, folder / "junit.xml")
        planned = {name: self._fill(value, places) for name, value in stage["env"].items()}
        planned.update(self.secrets.of(stage["name"]))
        bins = [str(self.venv.bin), *self.interpreter.bins]
        env = stage_variables({**self.bytecode.variables(), **planned}, places, bins, tmp, self.cache)
        if not stage["pytest"]:  # what a test runs in a shell is the test's to judge
            argv, env = recorder.recorded(argv, env, places, cwd, folder / recorder.REPORT)
        return Command(
            argv=argv,
            cwd=cwd,
            env=env,
            stdout=folder / "stdout",
            stderr=folder / "stderr",
            log_bytes=stage["limits"]["log_bytes"],
            events=folder / EVENTS if stage["pytest"] else None,
            fd_variable=FD_VARIABLE,
            redactor=self.secrets.redactor,
        )

    def _fill(self, text: str, places: Layout) -> str:
        return prepare.fill(text, self.commit, self.venv.python, places)


def seen_by(command: Command) -> Dict[str, str]:
    """All variables that the command's process has."""
    return {**inherited(), **command.env}
