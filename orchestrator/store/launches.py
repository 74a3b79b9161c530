"""What the laptop remembers between commands: under $NSA_POD_HOME, one small JSON file for each launch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.files import write_atomically
from orchestrator.home import home


@dataclass(frozen=True)
class Launch:
    """A launch that this laptop made: which run, on which pod, and where its results are kept.

    `plan_sha256` is of the plan's whole content: only a plan with it is the one that was launched from here.
    """

    run_id: str
    pod: str
    commit: str
    repo: str
    directory: str
    plan_sha256: str = ""


def remember(launch: Launch) -> None:
    """Record `launch` before the pod is asked for it, so that a failed one is never mistaken for an older run."""
    write_atomically(_record(launch.run_id), json.dumps(asdict(launch), indent=1))


def forget(run_id: str) -> None:
    """Drop the record of a launch that the pod refused."""
    _record(run_id).unlink()


def launches(pod: str | None = None) -> list[Launch]:
    """The launches made from here, newest first; run ids begin with their time."""
    return sorted(_read(pod), key=lambda launch: launch.run_id, reverse=True)


def launch_of(run_id: str) -> Launch | None:
    """The launch with this run id (or the one that begins with it), if it was made from here."""
    matches = [launch for launch in launches() if launch.run_id.startswith(run_id)]
    return matches[0] if len(matches) == 1 else None


def _record(run_id: str) -> Path:
    return home() / "runs" / f"{run_id}.json"


def _read(pod: str | None) -> Iterator[Launch]:
    for path in (home() / "runs").glob("*.json"):
        try:
            launch = Launch(**json.loads(path.read_bytes()))
            if not all(isinstance(value, str) for value in asdict(launch).values()):
                raise TypeError("expected text")
        except FileNotFoundError:  # its pod has just refused it
            continue
        except (ValueError, TypeError, RecursionError) as e:
            raise InputError(f"{path} is damaged: expected the record of a launch; delete it to go on") from e
        if pod in (None, launch.pod):
            yield launch
