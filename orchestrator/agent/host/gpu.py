"""The pod's NVIDIA GPUs as nvidia-smi shows them; the driver's CUDA limit is not an installed toolkit."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any, Mapping, Sequence

from orchestrator.shared.query import TIMEOUT_S, ask

# Field of nvidia-smi -> field of ours. Memory in MiB, utilization in percent.
_FIELDS = {
    "index": "index",
    "uuid": "uuid",
    "name": "name",
    "driver_version": "driver",
    "memory.total": "memory_total_mib",
    "memory.used": "memory_used_mib",
    "utilization.gpu": "utilization_percent",
}
_NUMBERS = frozenset(["index", "memory_total_mib", "memory_used_mib", "utilization_percent"])
_WORDS = 200
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*([0-9.]+)")


def list_gpus() -> list[dict[str, Any]]:
    """One entry for each GPU; `compute_cap` ("8.9") is None where the driver does not tell. Empty without a GPU."""
    if shutil.which("nvidia-smi") is None:
        return []
    gpus = _query([*_FIELDS, "compute_cap"]) or _query(list(_FIELDS))  # drivers before 510 do not know compute_cap
    return [{"compute_cap": None, **gpu} for gpu in gpus]


def complaint() -> str | None:
    """What nvidia-smi says first when asked for the GPUs, where it is there: why `list_gpus` found none."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    try:
        done = subprocess.run(
            [smi, "-L"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"it does not answer within {TIMEOUT_S:.0f} s"
    except OSError as e:
        return f"it cannot be run: {e.strerror}"
    said = done.stdout.decode("utf-8", "replace").strip()
    return said.splitlines()[0][:_WORDS] if said else "it says nothing"


def sees_any(visible: str, gpus: Sequence[Mapping[str, Any]]) -> bool:
    """Whether CUDA_VISIBLE_DEVICES=`visible` leaves any of `gpus`: CUDA takes the entries up to the first wrong one."""
    first = visible.partition(",")[0].strip()
    if first.startswith("MIG-") or not gpus:
        return first not in ("", "-1")
    return any(first == str(gpu.get("index")) or (first and str(gpu.get("uuid")).startswith(first)) for gpu in gpus)


def driver_cuda() -> str | None:
    """The newest CUDA that the driver supports, as nvidia-smi's header says; None without a driver."""
    match = _CUDA.search((ask(["nvidia-smi"]) or "") if shutil.which("nvidia-smi") else "")
    return match[1] if match else None


def _query(fields: Sequence[str]) -> list[dict[str, Any]]:
    said = ask(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in line.split(",")] for line in (said or "").splitlines()]
    names = [_FIELDS.get(field, field) for field in fields]
    return [{name: _value(name, row[i]) for i, name in enumerate(names)} for row in rows if len(row) == len(names)]


def _value(name: str, text: str) -> Any:
    """Numbers as numbers; what the GPU does not tell ("[N/A]") as None."""
    if text.startswith("[") or not text:
        return None
    return int(text) if name in _NUMBERS and text.isdigit() else text
