"""Failures that someone may still ask for: until then they lie in a future, a result, or a context."""

from __future__ import annotations

from ..frames import drops_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Sequence

_HELD = "_nsa_pod_pending"
_GIVEN_UP = "_nsa_pod_given_up"


class Pending:
    """A failure, as a sentence; `error` where a holder has several."""

    def __init__(self, sentence: str, error: BaseException | None = None) -> None:
        self.sentence = sentence
        self.error = error
        self.retrieved = False

    @property
    def is_lost(self) -> bool:
        return not self.retrieved


class Unentered(Pending):
    """A check that is made and has to be entered: lost if it is dropped as it is, by the call that `frame` is at."""

    def __init__(self, sentence: str, frame: FrameType) -> None:
        super().__init__(sentence)
        self._code, self._last = frame.f_code, frame.f_lasti

    @property
    def is_lost(self) -> bool:
        return not self.retrieved and drops_at(self._code, self._last)


def hold(pending: Pending, holder: Any) -> None:
    """Who asks `holder` has seen what is pending."""
    pending.retrieved |= _GIVEN_UP in holder.__dict__
    holder.__dict__.setdefault(_HELD, []).append(pending)


def held_by(holder: Any) -> Sequence[Pending]:
    found: Sequence[Pending] = holder.__dict__.get(_HELD, ())
    return found


def retrieve(holder: Any) -> None:
    """Somebody asks: all that it holds was seen."""
    for pending in held_by(holder):
        pending.retrieved = True


def give_up(holder: Any) -> None:
    """What it holds, or will hold, another one's failure stands for."""
    holder.__dict__[_GIVEN_UP] = True
    retrieve(holder)
