"""Which kernels a process launched, on which device: Triton's by its hooks, other CUDA work by torch's own account."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from .stage import Notes

INTERPRETED = "cpu:interpreted"


class Launches:
    """Counts since they were last noted, by device and kernel; noted as `{"ran": {device: {kernel: n}}, "test": ID}`.

    Kernel launches that are replayed by a CUDA graph or made by Inductor's static launcher pass the hooks by; such
    work is seen as other CUDA work, `{"cuda": "used"}`.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._counts: dict[str, dict[str, int]] = {}
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "triton": self._watch_triton,
            "triton.runtime.interpreter": self._watch_interpreter,
        }

    def note(self, test: str | None) -> None:
        """Write down what was counted, as the work of `test` where there is one."""
        if self._counts:
            counts, self._counts = self._counts, {}
            self._notes.add(ran=counts, test=test)

    def forget(self) -> None:
        """In a forked child, what its parent had counted."""
        self._counts = {}

    def note_cuda(self) -> None:
        """Whether torch, where it is loaded, has used CUDA in this process."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and hasattr(cuda, "is_initialized"):  # it may still be half imported
            self._notes.add(cuda="used" if cuda.is_initialized() else "unused")

    def _count(self, device: str, kernel: str) -> None:
        of_device = self._counts.setdefault(device, {})
        of_device[kernel] = of_device.get(kernel, 0) + 1

    def _watch_triton(self, triton: Any) -> None:
        version = tuple(int(part) for part in triton.__version__.split(".")[:2])
        if version >= (3, 5):
            triton.knobs.runtime.launch_enter_hook.add(self._launched)
        elif version >= (3, 4):
            triton.knobs.runtime.launch_enter_hook = self._before(triton.knobs.runtime.launch_enter_hook)
        else:
            compiled = triton.compiler.CompiledKernel
            compiled.launch_enter_hook = self._before(compiled.launch_enter_hook)

    def _before(self, other: Any) -> Callable[[Any], None]:
        def hook(metadata: Any) -> None:
            self._launched(metadata)
            if other is not None:
                other(metadata)

        return hook

    def _launched(self, metadata: Any) -> None:
        driver = sys.modules["triton"].runtime.driver.active
        kernel = metadata.get()["name"]
        self._count(f"{driver.get_current_target().backend}:{driver.get_current_device()}", kernel)

    def _watch_interpreter(self, interpreter: Any) -> None:
        call = interpreter.GridExecutor.__call__

        def counted(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self._count(INTERPRETED, executor.fn.__name__)
            return call(executor, *args, **kwargs)

        interpreter.GridExecutor.__call__ = counted
