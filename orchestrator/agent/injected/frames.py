"""Who has made a call, and what it makes of the result."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def drops_result(frame: FrameType) -> bool:
    """Whether the call that `frame` is in the midst of is a statement by itself."""
    import dis

    after = (i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti and i.opname != "CACHE")
    found = next(after, None)
    return found is not None and found.opname == "POP_TOP"


def is_of(frame: FrameType, *packages: str) -> bool:
    """Whether `frame` runs code of one of the packages."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in packages
