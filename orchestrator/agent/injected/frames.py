"""What a caller makes of the result of its call."""

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
