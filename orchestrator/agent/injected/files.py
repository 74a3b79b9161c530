"""The one way in which a file is looked at; `source`, which asks what stands in it, takes `ast`."""


def read(file: str) -> bytes:
    """Nothing where it cannot be read, or has gone."""
    try:
        with open(file, "rb") as f:
            return f.read()
    except OSError:
        return b""


def may_hold_limits(source: bytes) -> bool:
    """Whether a difference, or its size, may be held to a limit in it: few files need be read for that."""
    by_hand = any(size in source for size in (b"abs(", b"norm(")) and any(
        order in source for order in (b" < ", b" > ", b" <= ", b" >= ")
    )
    return by_hand or (b"allclose(" in source and b" if " in source)
