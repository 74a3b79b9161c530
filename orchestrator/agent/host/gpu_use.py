"""Who uses the GPUs, as nvidia-smi shows it: a bench wants them for itself, and `doctor` tells it beforehand."""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from orchestrator.agent.host import gpu, processes
from orchestrator.shared.query import ask
from orchestrator.shared.text import plain

EXCLUSIVE = "gpu"
# Drivers and displays keep some memory for themselves; what a stage used just before takes a moment to be given back.
_MOST_MEMORY_MIB = 1024
_MOST_UTILIZATION_PERCENT = 10
_LOOKS = 5
_PAUSE_S = 0.8
_DEVICE = re.compile(r"\d+|GPU-[0-9a-fA-F-]+")


class Use(NamedTuple):
    """`by` says who uses a GPU, as a clause; `unknown` why that cannot be told. Neither: nobody does, it is idle."""

    by: Optional[str] = None
    unknown: Optional[str] = None


class Holder(NamedTuple):
    """A process that nvidia-smi lists on a GPU; `memory_mib` is None where it is not told."""

    uuid: str
    pid: int
    memory_mib: Optional[int]
    name: str


def use_by_others(variables: Mapping[str, str]) -> Use:
    """Who else uses the GPUs that a stage with these environment variables sees, looked at until it is nobody."""
    found = _look(variables)
    for _ in range(_LOOKS - 1):
        if found.by is None:
            break
        time.sleep(_PAUSE_S)
        found = _look(variables)
    return found


def uses(gpus: Sequence[Mapping[str, Any]], listed: Iterable[Holder]) -> List[Use]:
    """Who uses each of `gpus`, beside this process and those below it; `listed` are all holders."""
    own = {os.getpid(), *processes.descendants(os.getpid())}
    others = [found for found in listed if found.pid not in own]
    return [_use(card, others) for card in gpus]


def holders() -> List[Holder]:
    """The processes that have a context on a GPU; in a container they may be hidden, or have other pids."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader,nounits"]
    rows = [[cell.strip() for cell in line.split(",", 3)] for line in (ask(["nvidia-smi", *query]) or "").splitlines()]
    return [
        Holder(row[0], int(row[1]), int(row[2]) if row[2].isdigit() else None, plain(os.path.basename(row[3]), 80))
        for row in rows
        if len(row) == 4 and row[1].isdigit()
    ]


def memory_of(pids: List[int]) -> Dict[int, int]:
    """MiB of GPU memory that each of the processes holds; those that hold none are left out."""
    wanted = set(pids)
    return {found.pid: found.memory_mib or 0 for found in holders() if found.pid in wanted} if wanted else {}


def _look(variables: Mapping[str, str]) -> Use:
    if shutil.which("nvidia-smi") is None:
        return Use(unknown="there is no nvidia-smi")
    gpus = gpu.list_gpus()
    if not gpus:
        return Use(unknown="nvidia-smi does not answer")
    found = uses([card for card in gpus if _is_visible(card, variables)], holders())
    return next((use for use in found if use.by), next((use for use in found if use.unknown), Use()))


def _use(card: Mapping[str, Any], others: List[Holder]) -> Use:
    """By its memory and utilisation where no process is shown."""
    for found in others:
        if found.uuid == card["uuid"]:
            held = "memory that is not told" if found.memory_mib is None else f"{found.memory_mib} MiB"
            return Use(by=f"pid {found.pid} ({found.name}) holds {held} on GPU {card['index']}")
    memory, load = (_number(card[name]) for name in ("memory_used_mib", "utilization_percent"))
    if memory > _MOST_MEMORY_MIB or load > _MOST_UTILIZATION_PERCENT:
        taken = f"{memory} MiB of GPU {card['index']} are taken and it is {load} % busy"
        return Use(by=f"{taken}, by a process that is not visible")
    told = isinstance(card["memory_used_mib"], int)
    return Use() if told else Use(unknown=f"the driver does not tell how much memory of GPU {card['index']} is taken")


def _number(value: Any) -> int:
    """What the GPU does not tell counts as nothing."""
    return value if isinstance(value, int) else 0


def _is_visible(card: Mapping[str, Any], variables: Mapping[str, str]) -> bool:
    """By CUDA_VISIBLE_DEVICES, where it can be understood; else every GPU counts."""
    named = [word.strip() for word in variables.get("CUDA_VISIBLE_DEVICES", "all").split(",")]
    if not all(_DEVICE.fullmatch(word) for word in named):
        return True
    return any(word == str(card["index"]) or str(card["uuid"]).startswith(word) for word in named)
