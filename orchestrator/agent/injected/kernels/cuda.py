"""Whether a process worked on CUDA beside Triton: by torch's own account, else by the device file that CUDA maps.

CUPTI would know each kernel, and cost each of them, and there can be only one user of it: never here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..stage import Notes

MAPPED, OPENED = "/dev/nvidia-uvm", "/dev/dxg"
"""What a CUDA context maps into memory, and what it opens under WSL. Who only asks (nvidia-smi, NVML, cuInit) has the
first one open, too.
"""
_LIBRARIES = ("cupy", "numba.cuda", "jax", "pycuda", "cuda", "tensorflow", "paddle", "warp", "cudf")


class CudaWork:
    """Noted as `{"cuda": "used", "test": ID}` where there was any since the last time."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._allocated: dict[int, int] = {}
        self._has_context = False

    def note(self, test: str | None, *, at_end: bool = False) -> None:
        """Write down, as the work of `test`, whether there was any; `at_end` looks where it costs more, too."""
        if self._torch_allocated() or self._others_have(at_end):
            self._notes.add(cuda="used", test=test)

    def _torch_allocated(self) -> bool:
        """Asking which GPUs there are initializes nothing, or allocates nothing: that is no work."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        is_initialized = getattr(cuda, "is_initialized", None)  # it may still be half imported
        if is_initialized is None or not is_initialized():
            return False
        try:
            now = _allocated(sys.modules["torch"])
        except Exception:  # an allocator, or a torch, that keeps no account; or one that only says that it has CUDA
            return has_context("self")
        before, self._allocated = self._allocated, now
        return any(now[device] != before.get(device, 0) for device in now)

    def _others_have(self, at_end: bool) -> bool:
        """What other libraries compute is not told apart by test: a context stays, from the first on."""
        other = not sys.modules.keys().isdisjoint(_LIBRARIES)
        if not self._has_context and (other or (at_end and "torch" not in sys.modules)):
            self._has_context = has_context("self")
        return self._has_context


def has_allocated() -> bool:
    """Whether this process's torch has ever allocated on CUDA."""
    torch: Any = sys.modules.get("torch")
    try:
        return bool(torch) and torch.cuda.is_initialized() and any(_allocated(torch).values())
    except Exception:  # an allocator, or a torch, that keeps no account
        return False


def has_context(pid: int | str) -> bool:
    """Whether the process has a CUDA context; False if it is gone or is another user's."""
    process = f"/proc/{pid}"
    try:
        with open(f"{process}/maps", "rb") as maps:
            if any(line.endswith(b" %s\n" % MAPPED.encode()) for line in maps):
                return True
        numbers = os.listdir(f"{process}/fd")
    except OSError:
        return False
    return any(_target(f"{process}/fd/{number}") == OPENED for number in numbers)


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _allocated(torch: Any) -> dict[int, int]:
    """Bytes that torch has ever allocated, on each device where it has a context."""
    devices = [i for i in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(i)]
    return {i: torch._C._cuda_memoryStats(i)["allocated_bytes"]["all"]["allocated"] for i in devices}
