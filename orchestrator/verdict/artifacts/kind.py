"""What a kind of artifact is: what may be asked of it beside its path, and how it is read."""

from __future__ import annotations

from typing import Any, BinaryIO, Callable, Iterator, Literal, Mapping, NamedTuple, Optional

from orchestrator.shared.schema import Error, Location
from orchestrator.verdict.artifacts.reading import Beside, Reading

Weight = Literal["unmet", "impossible", "borrowed", "elsewhere", "absent"]
"""Of a value that does not hold, of one that cannot be, of a file that is not the stage's own, of what was measured on
a GPU (nothing is wrong with it where the pod may have one), of what is not there."""


class Finding(NamedTuple):
    """What is wrong with an artifact, as a clause that follows its name; in runs of which formats, from `since` on."""

    sentence: str
    weight: Weight = "absent"
    since: int = 1


class Bad(Exception):
    """The artifact cannot be read further; the message is a clause that follows its name."""


def _nothing_more(given: Mapping[str, Any], at: Location) -> Iterator[Error]:
    return iter(())


def _no_figures(asked: Mapping[str, Any], f: BinaryIO, beside: Beside) -> Iterator[Reading]:
    return iter(())


class Kind(NamedTuple):
    """`asks` is the TypedDict of its own keys; `read` finds what is wrong, in the order of the file, and may end it
    with Bad; `also` finds what the types alone do not tell; `figures` are read of a file that is as it should be, with
    what opens a file beside it.
    """

    name: str
    asks: Any
    read: Callable[[Mapping[str, Any], BinaryIO], Iterator[Finding]]
    also: Callable[[Mapping[str, Any], Location], Iterator[Error]] = _nothing_more
    most_bytes: Optional[int] = None
    figures: Callable[[Mapping[str, Any], BinaryIO, Beside], Iterator[Reading]] = _no_figures
