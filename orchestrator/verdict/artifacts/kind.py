"""What a kind of artifact is: what may be asked of it beside its path, and how it is read."""

from __future__ import annotations

from typing import Any, BinaryIO, Callable, Iterator, Mapping, NamedTuple, Optional

from orchestrator.shared.schema import Error, Location


class Bad(Exception):
    """The artifact is not what was asked for; the message is a clause that follows its name."""


def _nothing_more(given: Mapping[str, Any], at: Location) -> Iterator[Error]:
    return iter(())


class Kind(NamedTuple):
    """`asks` is the TypedDict of its own keys; `read` raises Bad; `also` finds what the types alone do not tell."""

    name: str
    asks: Any
    read: Callable[[Mapping[str, Any], BinaryIO], None]
    also: Callable[[Mapping[str, Any], Location], Iterator[Error]] = _nothing_more
    most_bytes: Optional[int] = None
