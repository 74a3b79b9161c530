"""What a stage was seen to compute on, and in which test: not what it says of itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Iterator, Literal, Mapping, Optional, Set

from orchestrator.shared.plan import Stage
from orchestrator.shared.stage_record import Executed
from orchestrator.shared.text import listing, plain
from orchestrator.verdict.outcomes import Malformed

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

FILE = "observed.jsonl"
"""In a stage's folder: one JSON object a line, from any number of processes."""
INTERPRETED = "cpu:interpreted"
Asked = Literal["cuda", "any"]
"""Whether the stage must compute on CUDA. A plan says so of each stage that is for it; where it says nothing, no."""

_MAX_LINE_BYTES = 4 << 20
_MAX_LINES = 1_000_000
_MOST_KERNELS = 200
_ON = ("1", "true", "yes", "on", "y")
"""What Triton takes for yes."""


@dataclass
class Work:
    """Launches of Triton's kernels by device (`cuda:0`, `cpu:interpreted`) and name; whether CUDA did other work."""

    launches: Dict[str, Dict[str, int]] = field(default_factory=dict)
    other_cuda: bool = False

    @property
    def on_cuda(self) -> bool:
        return self.other_cuda or bool(self.kernels("cuda"))

    def kernels(self, device: str) -> Set[str]:
        """Names of what was launched on `device`, or, without a number, on any of its kind."""
        return {
            kernel
            for where, kernels in self.launches.items()
            if where == device or where.startswith(device + ":")
            for kernel in kernels
        }

    def add(self, launches: Mapping[str, Mapping[str, int]], other_cuda: bool) -> None:
        self.other_cuda = self.other_cuda or other_cuda
        for device, kernels in launches.items():
            known = self.launches.setdefault(plain(device, 80), {})
            for kernel, n in kernels.items():
                name = plain(kernel, 200)
                known[name] = known.get(name, 0) + int(n)


@dataclass
class Execution:
    """The work of a stage, and of each of its tests."""

    whole: Work = field(default_factory=Work)
    tests: Dict[str, Work] = field(default_factory=dict)

    def of(self, test: str) -> Work:
        return self.tests.get(test, Work())

    def fold(self, line: Mapping[str, Any]) -> None:
        """Add what a line of the report says."""
        launches, other_cuda = line.get("ran", {}), line.get("cuda") == "used"
        self.whole.add(launches, other_cuda)
        if line.get("test") is not None and (launches or other_cuda):
            self.tests.setdefault(str(line["test"]), Work()).add(launches, other_cuda)

    @property
    def executed(self) -> Dict[str, Executed]:
        """By device; `cuda` stands for work there that was none of Triton's, where that is all."""
        found: Dict[str, Executed] = {
            device: {"launches": sum(kernels.values()), "kernels": sorted(kernels)[:_MOST_KERNELS]}
            for device, kernels in sorted(self.whole.launches.items())
        }
        if self.whole.other_cuda and not self.whole.kernels("cuda"):
            found["cuda"] = {"launches": 0, "kernels": []}
        return found


def read(f: BinaryIO) -> Execution:
    """Fold the report in `f`; Malformed if a line is not what the injected modules write."""
    found = Execution()
    for line in lines(f):
        try:
            found.fold(line)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as e:
            raise Malformed("holds what no process of the stage was asked to write") from e
    return found


def lines(f: BinaryIO) -> Iterator[Dict[str, Any]]:
    """The objects in the report, one a line; Malformed for anything else."""
    for number, line in enumerate(iter(lambda: f.readline(_MAX_LINE_BYTES), b""), start=1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise Malformed(f"has a line {number} that is not whole") from e
        if not isinstance(found, dict) or number > _MAX_LINES:
            raise Malformed(f"has a line {number} that does not belong there")
        yield found


def is_for_cuda(stage: Stage) -> bool:
    """Whether the stage must compute on CUDA; plans before this was asked say only that it needs CUDA."""
    device = stage["expect"].get("device")
    return device == "cuda" or (device is None and stage["cuda"])


def doubts(case: Case) -> Iterator[Optional[str]]:
    """A CUDA stage that ran kernels in the interpreter, or was told to: they prove nothing about the GPU."""
    if not is_for_cuda(case.stage):
        return
    told = case.stage["env"].get("TRITON_INTERPRET", "")
    if told.lower() in _ON:
        yield f"it is for CUDA, and TRITON_INTERPRET={told} interprets Triton's kernels on the CPU"
    interpreted = case.evidence["executed"].get(INTERPRETED)
    if interpreted:
        yield f"it is for CUDA, and Triton's interpreter ran its kernels on the CPU: {listing(interpreted['kernels'])}"


def problems(case: Case) -> Iterator[Optional[str]]:
    """A CUDA stage that launched nothing there."""
    if case.expect.get("device") == "cuda" and not case.evidence["used_cuda"]:
        yield "it is for CUDA, and launched no kernel on the GPU"
