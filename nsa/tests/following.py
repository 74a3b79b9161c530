"""A mode that follows a program, as a profiler or a checkpoint does, and changes nothing."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Following(TorchDispatchMode):
    """Sees every operation."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        return function(*arguments, **(named or {}))
