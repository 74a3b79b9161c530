"""Who has made a call, and what it makes of the result."""

from __future__ import annotations

OWN = __name__.partition(".")[0]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def drops_result(frame: FrameType) -> bool:
    """Whether the call that `frame` is in the midst of is a statement by itself."""
    import dis

    after = (i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti and i.opname != "CACHE")
    found = next(after, None)
    return found is not None and found.opname == "POP_TOP"


def outside(frame: FrameType | None, *packages: str) -> FrameType | None:
    """The first frame from `frame` upwards that runs no code of the packages, nor of this one."""
    while frame is not None and is_of(frame, OWN, *packages):
        frame = frame.f_back
    return frame


def is_of(frame: FrameType, *packages: str) -> bool:
    """Whether `frame` runs code of one of the packages."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in packages
