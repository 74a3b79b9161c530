"""What a program's text says at first sight of its `main`: reading it whole takes longer than many a program."""

from __future__ import annotations

from ..files import read

MAINS = ("main", "_main", "cli")
"""What the function is called that does all that a program does."""


def may_be_inert(file: str) -> bool:
    """Whether it is worth reading: its guard is another one, or holds no call of a `main` that is no generator or
    coroutine.
    """
    source = read(file)
    guards = (f"__name__ == {quote}__main__{quote}".encode() for quote in ("'", '"'))
    held = next((after for guard in guards for _, found, after in [source.partition(guard)] if found), None)
    if held is None:
        return b"__name__" in source or any(f"def {name}(".encode() in source for name in MAINS)
    if any(line.strip().decode("latin-1") in MAINS for line in held.splitlines()):
        return True
    return b"async def main" in source or (b"yield" in source and b"def main" in source)
