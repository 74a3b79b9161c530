"""What the laptop remembers between commands: under $NSA_POD_HOME, one small JSON file for each launch."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from orchestrator.config.inventory import Pod
from orchestrator.errors import InputError
from orchestrator.files import write_atomically
from orchestrator.home import home
from orchestrator.shared.run_ids import order


@dataclass(frozen=True)
class Launch:
    """A launch that this laptop made: which run, on which pod, and where its results are kept.

    `plan_sha256` is of the plan's whole content: only a plan with it is the one that was launched from here.
    `inventory` is the file that the pod stands in; older records do not say. `number` counts this laptop's launches:
    run ids begin with a time, by a clock that can be wrong.
    """

    run_id: str
    pod: str
    commit: str
    repo: str
    directory: str
    plan_sha256: str = ""
    inventory: str = ""
    number: int = field(default=0, compare=False)

    @property
    def order(self) -> tuple[int, bool, str]:
        """What launches are sorted by, the last one last; of two that were made at once their dates decide."""
        return self.number, *((True, self.run_id) if self.number else order(self.run_id))

    def is_on(self, pod: Pod) -> bool:
        """Whether it was made on this pod, or on one of its name before inventories were told apart."""
        return self.pod == pod.name and self.inventory in ("", pod.inventory)


def remember(launch: Launch) -> None:
    """Record `launch` before the pod is asked for it, so that a failed one is never mistaken for an older run."""
    number = max((known.number for known in launches()), default=0) + 1
    write_atomically(file_of(launch.run_id), json.dumps(asdict(replace(launch, number=number)), indent=1))


def forget(run_id: str) -> None:
    """Drop the record of a launch that the pod refused."""
    file_of(run_id).unlink()


def launches(pod: Pod | None = None) -> list[Launch]:
    """The launches made from here, newest first. A damaged record hides no other."""
    found = (launch for run_id in _run_ids() if (launch := _read(run_id)) is not None)
    return sorted((one for one in found if pod is None or one.is_on(pod)), key=lambda one: one.order, reverse=True)


def damaged() -> list[str]:
    """The run ids of launches whose records cannot be read, newest first."""
    return [run_id for run_id in _run_ids() if _read(run_id) is None and file_of(run_id).exists()]


def launch_of(run_id: str) -> Launch | None:
    """The launch with this run id (or the one that begins with it), if it was made from here.

    InputError if its record is damaged: where the run is kept is not known then.
    """
    matches = [known for known in _run_ids() if known.startswith(run_id)]
    if len(matches) != 1:
        return None
    launch = _read(matches[0])
    path = file_of(matches[0])
    if launch is None and path.exists():
        raise InputError(f"{path} is damaged: expected the record of a launch; delete it to go on")
    return launch


def file_of(run_id: str) -> Path:
    """The file that records the launch of a run."""
    return home() / "runs" / f"{run_id}.json"


def _run_ids() -> list[str]:
    """Newest first; InputError where nobody can know which there are."""
    folder = home() / "runs"
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        said = f"{folder}: expected the runs that were launched from here ($NSA_POD_HOME), and it cannot be read"
        raise InputError(f"{said}: {e.strerror}") from e
    return sorted((name[:-5] for name in names if name.endswith(".json")), key=order, reverse=True)


def _read(run_id: str) -> Launch | None:
    """None for one that is damaged, or that its pod has just refused."""
    try:
        launch = Launch(**json.loads(file_of(run_id).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    texts = {name: value for name, value in asdict(launch).items() if name != "number"}
    return launch if type(launch.number) is int and all(isinstance(text, str) for text in texts.values()) else None
