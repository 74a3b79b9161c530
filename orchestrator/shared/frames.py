"""Frames: how the questions of a laptop and the answers of an agent that serves it share one connection."""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, Iterator, NamedTuple, Tuple

ASK, STOP = 1, 2
"""From the laptop: run a command (its payload is made by `question`); end one."""
OUT, ERR, END = 3, 4, 5
"""From the pod: what a command writes; its exit code in decimal digits, or TIMED_OUT."""
TIMED_OUT = b"timeout"

#: What one question may hold, its input included.
QUESTION_LIMIT = 65 << 20
#: What an answer comes in.
PIECE_LIMIT = 1 << 20

_HEADER = struct.Struct(">BII")


class Frame(NamedTuple):
    """`number` is that of the question."""

    kind: int
    number: int
    payload: bytes


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    """A frame as it travels."""
    return _HEADER.pack(kind, number, len(payload)) + payload


class Frames:
    """Bytes that arrive in any portions, as frames."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole with `data`. ValueError for one of more than the limit."""
        self._held += data
        while len(self._held) >= _HEADER.size:
            kind, number, length = _HEADER.unpack_from(self._held)
            if length > self._limit:
                raise ValueError(f"a frame of {length} bytes")
            end = _HEADER.size + length
            if len(self._held) < end:
                return
            payload = bytes(memoryview(self._held)[_HEADER.size : end])
            del self._held[:end]
            yield Frame(kind, number, payload)


def question(asked: Dict[str, Any], given: bytes) -> bytes:
    """The payload of ASK: what is asked, as JSON, and the input of the command."""
    head = json.dumps(asked).encode()
    return struct.pack(">I", len(head)) + head + given


def read_question(payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """What `question` was made from."""
    (length,) = struct.unpack_from(">I", payload)
    return json.loads(payload[4 : 4 + length]), payload[4 + length :]
