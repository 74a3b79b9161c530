"""A second stream beside the current one, for what a card has room for while another kernel's last programs run."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch


class One:
    """Where there are no streams: what is beside comes after."""

    handle = 0

    def join(self) -> None:
        """Have the current stream go on only after all that is queued on the other."""

    def on(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(*arguments), queued on the other stream."""
        return function(*arguments)


class Two(One):
    """The current stream of a device, and one beside it, whose small kernels go first where large ones leave room.

    Attributes:
        handle: the other's, as the driver knows it.
    """

    def __init__(self, device: torch.device) -> None:
        self._current, self._other = torch.cuda.current_stream(device), torch.cuda.Stream(device, priority=-1)
        self._begun, self._done = torch.cuda.Event(), torch.cuda.Event()
        self.handle = self._other.cuda_stream

    def fork(self) -> Two:
        """Have the other stream go on after all that is queued on the current one."""
        self._begun.record(self._current)
        self._other.wait_event(self._begun)
        return self

    def join(self) -> None:
        self._done.record(self._other)
        self._current.wait_event(self._done)

    def on(self, function: Callable[..., Any], *arguments: Any) -> Any:
        torch.cuda.set_stream(self._other)
        try:
            return function(*arguments)
        finally:
            torch.cuda.set_stream(self._current)


@lru_cache(maxsize=64)
def _two(device: torch.device, current: int) -> Two:
    """Of each stream its own: into a CUDA graph that another thread captures nothing must be launched from here."""
    return Two(device)


def fork(device: torch.device) -> One:
    """The current stream and one beside it, from where all that is queued is done."""
    return _two(device, torch._C._cuda_getCurrentRawStream(device.index)).fork() if device.type == "cuda" else One()
