"""What the injected modules saw in a stage's Pythons, folded into what its record holds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Set

from orchestrator.agent.run.provenance import Seen
from orchestrator.shared.files import Refused, open_inside
from orchestrator.shared.stage_record import Executed
from orchestrator.shared.text import plain

OBSERVED = "observed.jsonl"
"""The report, in a stage's folder: one JSON object a line, from any number of processes."""

_MAX_BYTES = 256 << 20
_MOST_KERNELS = 200


@dataclass
class Observed:
    """What was seen of a stage.

    `guarded` is None if no Python was guarded, and False if the report is not, or not whole, the guard's; `used_cuda`
    is None if no Python knew torch; `executed` has the launches by device.
    """

    guarded: Optional[bool] = None
    used_cuda: Optional[bool] = None
    origins: Seen = field(default_factory=Seen)
    unseen_sessions: Dict[str, str] = field(default_factory=dict)
    launches: Dict[str, int] = field(default_factory=dict)
    kernels: Dict[str, Set[str]] = field(default_factory=dict)

    @property
    def executed(self) -> Dict[str, Executed]:
        return {
            device: {"launches": n, "kernels": sorted(self.kernels[device])[:_MOST_KERNELS]}
            for device, n in sorted(self.launches.items())
        }


def read_observed(folder: Path) -> Observed:
    """The report in a stage's folder."""
    seen = Observed()
    try:
        with open_inside(folder, OBSERVED) as f:
            seen.guarded = True
            for line in f.read(_MAX_BYTES).splitlines():
                _fold(seen, json.loads(line))
    except FileNotFoundError:
        return seen
    except (OSError, Refused, ValueError, LookupError, TypeError, AttributeError):
        return Observed(guarded=False)
    return seen


def _fold(seen: Observed, line: Mapping[str, Any]) -> None:
    seen.origins.fold(line)
    if "session" in line:
        seen.unseen_sessions[line["session"]] = plain(line["wrong"])
    if "cuda" in line:
        seen.used_cuda = bool(seen.used_cuda) or line["cuda"] == "used"
    for device, counts in line.get("ran", {}).items():
        where = plain(device, 80)
        seen.launches[where] = seen.launches.get(where, 0) + sum(counts.values())
        seen.kernels.setdefault(where, set()).update(plain(name, 200) for name in counts)
