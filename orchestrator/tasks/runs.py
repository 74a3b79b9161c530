"""The runs that there are: on a pod, or kept here."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from orchestrator.errors import InputError
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import RunState, RunSummary
from orchestrator.store.run_directory import kept
from orchestrator.verdict.status import Verdict


class KeptRun(TypedDict, total=False):
    """A run kept here, as it is judged now; `error` is what keeps one that is damaged from being judged."""

    run_id: str
    pod: str
    state: RunState
    verdict: Verdict
    error: str


def on_pod(session: PodSession) -> list[RunSummary]:
    """The runs on the pod, newest first."""
    with session.open() as agent:
        return sorted(agent.runs(), key=lambda run: run["run_id"], reverse=True)


def kept_here(artifacts: Path, repo: Path) -> list[KeptRun]:
    """The runs kept under `artifacts`, newest first, each judged again."""
    listed: list[KeptRun] = []
    for run in kept(artifacts, repo):
        try:
            result = run.rejudge()
        except FileNotFoundError:  # its pod has just refused it
            continue
        except InputError as e:  # one that is damaged does not hide the others
            listed.append({"run_id": run.path.name, "verdict": "error", "error": str(e)})
            continue
        listed.append({"run_id": result.run_id, "pod": result.pod, "state": result.state, "verdict": result.verdict})
    return listed
