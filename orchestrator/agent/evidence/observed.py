"""What the injected modules saw in a stage's Pythons, folded into what its record holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set

from orchestrator.agent.evidence.exit_codes import Child
from orchestrator.agent.evidence.processes import End, Processes
from orchestrator.agent.evidence.provenance import Seen
from orchestrator.agent.evidence.shell.record import Above
from orchestrator.shared.files import Refused, open_inside
from orchestrator.shared.text import plain
from orchestrator.verdict.execution import FILE, Execution, lines
from orchestrator.verdict.outcomes import Malformed


@dataclass
class Observed:
    """What was seen of a stage.

    `guarded` is None if no Python was guarded, and False if the report is not, or not whole, the guard's. Its
    `children` have failed, and the Pythons that started them did not look at that;
    the programs in `idle` hold tests and called none of them, those in `inert` only define; `doubts` are sentences.
    Processes of it say why kernels have `never_ran` in them, and which kernels are behind what `tests_call`.
    It has `read` files, some of them `named` by code of the tree, or `linked` from it by such a path, and `started`
    programs by their paths; so many kernels were `launched_aside`, by fixtures that hand tests nothing. Of a stage that
    owes artifacts: whether it `has_clock`, what `measures` beside that, whether work on CUDA was `unwaited` for, and
    whether it `ran_cells` of notebooks.
    """

    guarded: Optional[bool] = None
    origins: Seen = field(default_factory=Seen)
    unseen_sessions: Dict[str, str] = field(default_factory=dict)
    execution: Execution = field(default_factory=Execution)
    children: List[Child] = field(default_factory=list)
    processes: Processes = field(default_factory=Processes)
    idle: Dict[str, None] = field(default_factory=dict)
    inert: Dict[str, None] = field(default_factory=dict)
    doubts: Dict[str, None] = field(default_factory=dict)
    never_ran: Dict[str, str] = field(default_factory=dict)
    tests_call: Dict[str, Set[str]] = field(default_factory=dict)
    read: Dict[str, None] = field(default_factory=dict)
    named: Set[str] = field(default_factory=set)
    linked: Dict[str, str] = field(default_factory=dict)
    started: Dict[str, None] = field(default_factory=dict)
    measures: Dict[str, None] = field(default_factory=dict)
    launched_aside: int = 0
    has_clock: bool = False
    unwaited: bool = False
    ran_cells: bool = False


def read_observed(folder: Path) -> Observed:
    """The report in a stage's folder."""
    seen = Observed()
    try:
        with open_inside(folder, FILE) as f:
            seen.guarded = True
            for line in lines(f):
                _fold(seen, line)
            seen.doubts.update(dict.fromkeys(_of_kernels(seen)))
    except FileNotFoundError:
        return seen
    except (OSError, Refused, Malformed, ValueError, LookupError, TypeError, AttributeError):
        return Observed(guarded=False)
    return seen


def _of_kernels(seen: Observed) -> Iterator[str]:
    launched = seen.execution.whole.kernels("cpu")
    for kernel, why in seen.never_ran.items():
        if kernel not in launched:
            yield f"the kernel {kernel} never ran: {why}"
    for function, kernels in seen.tests_call.items():
        if kernels.isdisjoint({*launched, *seen.never_ran}):
            yield f"tests call {function}, and no kernel behind it ever ran ({', '.join(sorted(kernels)[:3])})"


def _fold(seen: Observed, line: Mapping[str, Any]) -> None:
    seen.origins.fold(line)
    if "session" in line:
        seen.unseen_sessions[line["session"]] = plain(line["wrong"])
    if "idle" in line:
        seen.idle[plain(line["idle"])] = None
    if "inert" in line:
        seen.inert[plain(line["inert"])] = None
    if "doubt" in line:
        seen.doubts[plain(line["doubt"])] = None
    if "never_ran" in line:
        seen.never_ran.setdefault(plain(line["never_ran"], 200), plain(line["why"]))
    if "tests_call" in line:
        seen.tests_call[plain(line["tests_call"], 200)] = {plain(kernel, 200) for kernel in line["kernels"]}
    if "read" in line:
        seen.read[str(line["read"])] = None
        if line.get("named"):
            seen.named.add(str(line["read"]))
        if "link" in line:
            seen.linked[str(line["read"])] = str(line["link"])
    if "started" in line:
        seen.started[str(line["started"])] = None
    if "measures" in line:
        seen.measures[plain(line["measures"])] = None
    seen.launched_aside += int(line.get("aside", 0))
    seen.has_clock |= "clock" in line
    seen.unwaited |= "unwaited" in line
    seen.ran_cells |= "cells" in line
    if "child" in line:
        place = str(line["file"]), int(line["line"])
        seen.children.append(Child(str(line["child"]), int(line["code"]), *place, int(line["pid"]), str(line["how"])))
        seen.processes.handled.add(line["pid"])
    _fold_process(seen.processes, line)
    seen.execution.fold(line)


def _fold_process(processes: Processes, line: Mapping[str, Any]) -> None:
    if "loaded" in line:
        processes.pythons.add(line["loaded"])
    elif "ended" in line:
        above = [Above(int(pid), str(name)) for pid, name in line["above"]]
        how = (bool(line[key]) for key in ("asks", "cut_short", "hidden"))
        processes.ended.append(End(int(line["ended"]), int(line["code"]), above, str(line["command"]), *how))
    elif "well" in line:
        processes.well.add(line["well"])
    elif "handled" in line:
        processes.handled.add(line["handled"])
        if "by" in line:
            processes.by[line["handled"]] = plain(line["by"])
    elif "answered" in line:
        processes.by.pop(line["answered"], None)
    elif "handled_by" in line:
        processes.handling.add(line["handled_by"])
    elif "under" in line:
        processes.under[line["under"]] = plain(line["shell"])
