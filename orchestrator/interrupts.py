"""What ends a command from outside (Ctrl-C, SIGTERM, a terminal that goes), each as orderly, and saying as much."""

from __future__ import annotations

import signal
from types import FrameType

_LIKE_CTRL_C = (signal.SIGTERM, signal.SIGHUP)


def heed() -> None:
    """From now on SIGTERM and SIGHUP interrupt as Ctrl-C does, except one that is ignored here (nohup)."""
    for signum in _LIKE_CTRL_C:
        if signal.getsignal(signum) == signal.SIG_DFL:
            signal.signal(signum, _interrupt)


def exit_code(e: BaseException) -> int:
    """As shells have it for the signal that was the interrupt."""
    return 128 + (e.args[0] if e.args else signal.SIGINT)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Once: a closed terminal is told of by the kernel and by the shell. Not ignored, which programs would inherit."""
    for each in _LIKE_CTRL_C:
        if signal.getsignal(each) == _interrupt:
            signal.signal(each, lambda *_: None)
    raise KeyboardInterrupt(signum)
