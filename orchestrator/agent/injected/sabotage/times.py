"""What tests read from a clock: numbers that stay times while tests calculate with them, and tell where one was found
too long. What the code under test makes of a time is its result, as any other number is.
"""

from __future__ import annotations

import operator
import sys
import time
from sys import _getframe  # bound here, as in `hooks`

from ..frames import OWN, is_of, is_written_there
from ..hooks import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Container

_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_LESS = ("lt", "le")
_EQUAL = ("eq", "ne")
_COMPARE = (*_LESS, "gt", "ge", *_EQUAL)
_KEEP = ("add", "sub", "mul", "truediv", "floordiv", "mod", "radd", "rmul")
_TURN = ("rsub", "rtruediv", "rfloordiv")  # of less, more is left


class Times:
    """Of this process; `tests` are the files that hold them. `too_long` has the places where a time was compared and
    found so, with the comparison's answer.
    """

    def __init__(self, tests: Container[str]) -> None:
        self.tests = tests
        self.too_long: set[tuple[str, int, bool]] = set()

    def start(self) -> None:
        """From now on tests are given times."""
        import timeit

        _Time.times = self
        for name in _CLOCKS:
            for clock in (name, f"{name}_ns"):
                replace(time, clock, self._giving)
        replace(timeit.Timer, "timeit", self._giving)
        timeit.default_timer = time.perf_counter

    def watch_events(self) -> None:
        """CUDA's tell times too, once torch is there."""
        streams = sys.modules.get("torch.cuda.streams")
        if streams is not None:
            replace(streams.Event, "elapsed_time", self._giving)

    def _giving(self, clock: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.as_time(clock(*args, **kwargs), 1, _getframe(1))

    def as_time(self, value: Any, slower: int, frame: FrameType | None) -> Any:
        """A number that tests have asked for in this `frame`, or what is installed for them."""
        kind = _KINDS.get(type(value))
        asker = _asker(frame)
        if kind is None or asker is None or asker.f_code.co_filename not in self.tests:
            return value
        made = kind(value)
        made.slower = slower
        return made

    def note(self, answer: bool, frame: FrameType | None) -> None:
        asker = _asker(frame)
        if asker is not None:
            self.too_long.add((asker.f_code.co_filename, asker.f_lineno, answer))


def plain(value: Any) -> Any:
    """The number that a time is; anything else as it is."""
    return value.number(value) if isinstance(value, _Time) else value


class _Time:
    """`slower` is 1 where more of it is slower, -1 where less is, and 0 where either may be; `is_ahead` where it is a
    time to come.
    """

    slower = 1
    is_ahead = False
    number: type
    times: Times

    def __neg__(self) -> Any:
        return self.times.as_time(-plain(self), -self.slower, _getframe(1))

    def __abs__(self) -> Any:
        turns = -1 if plain(self) < 0 else 1
        return self.times.as_time(abs(plain(self)), self.slower * turns, _getframe(1))

    def __round__(self, digits: Any = None) -> Any:
        return self.times.as_time(round(plain(self), digits), self.slower, _getframe(1))

    def __floor__(self) -> Any:
        return self.times.as_time(int(plain(self) // 1), self.slower, _getframe(1))

    def __ceil__(self) -> Any:
        return self.times.as_time(-int(-plain(self) // 1), self.slower, _getframe(1))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __reduce__(self) -> Any:
        return self.number, (plain(self),)


class _Seconds(_Time, float):
    number = float


class _Whole(_Time, int):
    number = int


_KINDS: dict[type, Any] = {kind.number: kind for kind in (_Seconds, _Whole)}


def _calculating(name: str) -> Callable[[_Time, Any], Any]:
    is_right = name.startswith("r")
    function = getattr(operator, name[1:] if is_right else name)
    turns = -1 if name in _TURN else 1

    def calculate(self: _Time, other: Any) -> Any:
        pair = (other, plain(self)) if is_right else (plain(self), plain(other))
        of_two = isinstance(other, _Time)
        is_left = of_two and name == "sub" and self.is_ahead and not other.is_ahead  # how much time is left
        slower = 0 if of_two and name == "truediv" else self.slower * (-1 if is_left else turns)
        made = self.times.as_time(function(*pair), slower, _getframe(1))
        if isinstance(made, _Time):
            made.is_ahead = name in ("add", "radd") and not of_two
        return made

    return calculate


def _comparing(name: str) -> Callable[[_Time, Any], Any]:
    function = getattr(operator, name)

    def compare(self: _Time, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented  # it may compare itself
        answer = function(plain(self), plain(other))
        is_more = plain(self) > plain(other) if name in _EQUAL else answer != (name in _LESS)
        if isinstance(other, _Time) or self.slower == 0 or is_more == (self.slower > 0):
            self.times.note(answer, _getframe(1))
        return answer

    return compare


for _name in _COMPARE:
    setattr(_Time, f"__{_name}__", _comparing(_name))
for _name in (*_KEEP, *_TURN):
    setattr(_Time, f"__{_name}__", _calculating(_name))


def _asker(frame: FrameType | None) -> FrameType | None:
    """The first frame upwards of code that is neither Python's, nor installed, nor ours."""
    while frame is not None and (is_of(frame, OWN) or not is_written_there(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame
