"""One case of the catalogue: a tiny repository and a runbook, what it pretends, and the one outcome that is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.project import Outcome, Project
from tests.support.stage_cases import Case as StageCase

Stage = Mapping[str, Any]
_VERDICTS = {"passed": "passed", "skipped": "incomplete", "blocked": "incomplete", "cancelled": "incomplete"}


@dataclass(frozen=True)
class Case:
    """`pretends` says in a sentence what the stage does; `honest` names the case that is the same without the lie.

    A case whose `honest` is None is honest itself, and passes. `status` is that of the stage called `name`, None where
    no stage is judged; `reason` is a pattern of the stage's reason, or of the error. A lie that changes no status has a
    `note`, a pattern of what the run says of it.
    """

    name: str
    pretends: str
    status: str | None
    reason: str = ""
    honest: str | None = None
    stage: Stage = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # of the commit
    beside: Mapping[str, bytes] = field(default_factory=dict)  # in the working tree, not committed
    before: Sequence[Stage] = ()  # stages that run before it
    runbook: Mapping[str, Any] = field(default_factory=dict)  # what the runbook says beside its stages
    play: Callable[[Project], Outcome] | None = None  # what is done with the repository, instead of one `validate`
    tamper: Callable[[Path], None] | None = None  # what is done to the run at home before it is judged again
    prepare: Callable[[Path], None] | None = None  # what is done to the repository's files before the commit
    run: str = ""  # which shared run it is part of, where not that of all of its verdict
    untampered: str = "passed"  # the verdict of the run that is tampered with
    verdict: str | None = None  # where it does not follow from the status
    exit_code: int | None = None  # where it does not follow from the verdict
    note: str = ""
    caught: str | None = None  # by rule, observation or only by sabotage, where its theme does not say it

    @property
    def right_verdict(self) -> str:
        """The verdict of a run of this stage alone."""
        return self.verdict or ("error" if self.status is None else _VERDICTS.get(self.status, "failed"))

    @property
    def right_exit_code(self) -> int:
        return self.exit_code or {"passed": 0, "failed": 1, "incomplete": 3, "error": 4}[self.right_verdict]

    @property
    def is_alone(self) -> bool:
        """Whether it needs a run of its own; the others share one, for none of them disturbs another."""
        return bool(self.runbook or self.play or self.verdict or (self.status is None and not self.tamper))

    @property
    def shared_run(self) -> str:
        """Which of the shared runs it is part of, named by its verdict unless the case says so."""
        if self.run:
            return self.run
        return self.untampered if self.tamper else self.right_verdict

    @property
    def stages(self) -> list[Stage]:
        """The runbook's stages."""
        return [*self.before, *([self.stage] if self.stage else [])]


def lie(made: StageCase, pretends: str, *, honest: str, **more: Any) -> Case:
    """A stage with its files, built as for the agent's own tests, beside its honest twin."""
    return _case(made, pretends, honest=honest, **more)


def truth(made: StageCase, says: str, **more: Any) -> Case:
    """An honest stage, which passes."""
    assert made.status == "passed"
    return _case(made, says, **more)


def first(name: str, code: str, path: str = "", **over: Any) -> list[Stage]:
    """A stage before that of the case `name`: it runs `code` and owes its stdout, or the artifact `path`."""
    artifact = {"path": path} if path else {"path": f"{name}.first.txt", "from": "stdout"}
    run = ["python", "-c", f"import os\nhere = os.environ['NSA_POD_ARTIFACTS']\n{code}\nprint('done')"]
    return [{"name": f"{name}.first", "run": run, "expect": {"artifacts": [artifact]}, **over}]


def twice(project: Project) -> Outcome:
    """Validate the same commit a second time."""
    assert project.validate("--runbook", "r").exit_code == 0
    return project.validate("--runbook", "r")


def _case(made: StageCase, pretends: str, **more: Any) -> Case:
    return Case(made.name, pretends, made.status, made.reason, stage=in_runbook(made), files=made.files, **more)


def in_runbook(made: StageCase) -> dict[str, Any]:
    """The stage as a runbook has it; the plan works out the rest."""
    planned = made.stage
    kept = ("name", "env", "paths", "needs", "required", "limits", "expect")
    return {"run": planned["argv"], **{key: planned[key] for key in kept}}
