"""Many commands over one channel to an agent that serves: each one question, and its answer when it comes."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from orchestrator.errors import CommandTimeout, ContactLost, NsaPodError, PodError, PodFull
from orchestrator.shared import frames
from orchestrator.text import size
from orchestrator.transports.base import Channel, Completed
from orchestrator.transports.limits import FEED_LIMIT, OUTPUT_LIMIT, Pace

# The pod ends what takes too long, and gives it two seconds; what does not say so then is not waited for.
_GRACE_S = 8.0
_POLL_S = 0.5
_SEND_POLL_S = 0.01
_BUFFER = 1 << 16
_PORTION = 1 << 20


@dataclass
class _Answer:
    """What has come of an answer; `end` is the payload of its last frame. One that `may_wait` is read as it comes: what
    is too much to be held until then is dropped with all after it, and it `is_cut`.
    """

    what: str
    may_wait: bool = False
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    end: bytes | None = None
    is_cut: bool = False

    def take(self, piece: frames.Frame) -> None:
        if piece.kind == frames.END:
            self.end = piece.payload
        elif self.may_wait and piece.kind == frames.OUT and (self.is_cut or len(self.out) > FEED_LIMIT):
            self.is_cut = True
        elif piece.kind in (frames.OUT, frames.ERR):
            (self.out if piece.kind == frames.OUT else self.err).extend(piece.payload)
        if len(self.out) + len(self.err) > OUTPUT_LIMIT + (FEED_LIMIT if self.may_wait else 0):
            raise PodError(f"{self.what} prints more than {size(OUTPUT_LIMIT)}")

    @property
    def exit_code(self) -> int:
        try:
            return int(self.end or b"")
        except ValueError:
            raise PodError(f"{self.what}: the agent does not say how it ended") from None


class Dialogue:
    """With the agent at the other end of `channel`, on `pod`; after an error, if it `is_over`, another one is needed.

    `begun` is what has been received of it already.
    """

    def __init__(self, channel: Channel, pod: str, begun: bytes = b"") -> None:
        self.is_over = False
        self._channel, self._pod = channel, pod
        self._frames = frames.Frames(frames.PIECE_LIMIT)
        self._answers: dict[int, _Answer] = {}
        self._last = 0
        self._route(begun)

    def close(self) -> None:
        """The agent goes when what it was asked has ended."""
        self.is_over = True
        self._channel.close()

    def run(self, argv: Sequence[str], input: bytes, timeout: float, what: str) -> Completed:
        """As `Transport.run`; errors call it `what`."""
        with self._asked(argv, input, timeout, what) as answer:
            deadline = time.monotonic() + timeout + _GRACE_S
            while answer.end is None:
                if time.monotonic() > deadline:
                    self.close()
                    raise CommandTimeout(f"{what} did not end within {timeout:g} s, and may still be running there")
                self._hear(_POLL_S)
            if answer.end == frames.TIMED_OUT:
                raise CommandTimeout(f"{what} did not end within {timeout:g} s")
            return Completed(answer.exit_code, bytes(answer.out), bytes(answer.err))

    @contextmanager
    def stream(self, argv: Sequence[str], input: bytes, silence: float, what: str) -> Iterator[BinaryIO]:
        """As `Transport.stream`, for what need not be fast."""
        with self._asked(argv, input, None, what) as answer:
            output = _Output(Feed(self, answer), silence, Pace(what))
            try:
                with io.BufferedReader(output, _BUFFER) as out:
                    yield cast(BinaryIO, out)
                    if out.read(1):
                        raise PodError(f"{what} sends more than was asked for")
            except (ContactLost, CommandTimeout):
                raise
            except Exception as error:
                if answer.end is not None and answer.exit_code != 0:
                    raise _failed(answer) from error
                raise
            if answer.exit_code != 0:
                raise _failed(answer)

    @contextmanager
    def feed(self, argv: Sequence[str], what: str) -> Iterator[Feed]:
        """The output of a command that goes on for as long as somebody listens."""
        with self._asked(argv, b"", None, what, may_wait=True) as answer:
            yield Feed(self, answer)

    @contextmanager
    def _asked(
        self, argv: Sequence[str], input: bytes, limit: float | None, what: str, may_wait: bool = False
    ) -> Iterator[_Answer]:
        """The answer to come; what comes of it after the context is dropped, and what has no limit is stopped."""
        self._last += 1
        number = self._last
        answer = self._answers[number] = _Answer(what, may_wait)
        try:
            self._send(frames.frame(frames.ASK, number, frames.question({"argv": [*argv], "limit": limit}, input)))
            yield answer
        finally:
            del self._answers[number]
            if limit is None and answer.end is None and not self.is_over:
                with suppress(NsaPodError):
                    self._send(frames.frame(frames.STOP, number))

    def _send(self, data: bytes) -> None:
        """All of it; what comes meanwhile is taken, for the agent may be waiting to be heard."""
        rest = memoryview(data)
        with self._over_if_lost():
            while rest:
                sent = self._channel.send(bytes(rest[:_BUFFER]))
                rest = rest[sent:]
                if not sent:
                    self._hear(_SEND_POLL_S)

    def _hear(self, limit: float) -> bool:
        """Take what comes within `limit` seconds; whether anything did."""
        with self._over_if_lost():
            data = self._channel.receive(limit)
            if data is None:
                raise ContactLost(f"the agent on the pod has ended ({self._channel.complaint()})")
            self._route(data)
            return bool(data)

    def _route(self, data: bytes) -> None:
        try:
            for piece in self._frames.feed(data):
                if piece.number in self._answers:
                    self._answers[piece.number].take(piece)
        except PodError:  # it may go on for ever
            self.close()
            raise
        except ValueError as e:
            self.close()
            raise PodError(f"the agent on the pod does not answer as it should: {e}") from None

    @contextmanager
    def _over_if_lost(self) -> Iterator[None]:
        if self.is_over:
            raise ContactLost("the agent on the pod is not spoken with any more")
        try:
            yield
        except ContactLost as lost:
            self.close()
            raise PodFull.of(f"pod {self._pod!r}", str(lost)) or lost from None
        except KeyboardInterrupt:  # a frame may have gone in half
            self.close()
            raise


@dataclass(frozen=True)
class Feed:
    """The output of one command, as it comes."""

    dialogue: Dialogue
    answer: _Answer

    @property
    def has_ended(self) -> bool:
        """Whether the command has, and all that it wrote is read."""
        return self.answer.end is not None and not self.answer.out and not self.answer.is_cut

    @property
    def is_cut(self) -> bool:
        """Whether what is held of it is read, and what follows was too much to be held: ask anew for that."""
        return self.answer.is_cut and not self.answer.out

    def completed(self) -> Completed:
        """How it ended, after `has_ended`."""
        return Completed(self.answer.exit_code, b"", bytes(self.answer.err))

    def read(self, wait: float, most: int) -> bytes:
        """At most `most` bytes, as soon as there are some; none after `wait` seconds without, or at the end."""
        deadline = time.monotonic() + wait
        while not self.answer.out and self.answer.end is None and not self.answer.is_cut:
            left = deadline - time.monotonic()
            self.dialogue._hear(max(0.0, min(left, _POLL_S)))
            if left <= 0:
                break
        while self.answer.out and len(self.answer.out) < _PORTION and self.answer.end is None:
            if not self.dialogue._hear(0.0):  # what is there already comes along
                break
        data = bytes(self.answer.out[:most])
        del self.answer.out[:most]
        return data


class _Output(io.RawIOBase):
    """A feed as a file, which may be silent, or slow, for a limited time only."""

    def __init__(self, feed: Feed, silence: float, pace: Pace) -> None:
        self._feed, self._silence, self._pace = feed, silence, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        began = time.monotonic()
        data = self._feed.read(self._silence, len(buffer))
        self._pace.moved(len(data), time.monotonic() - began)
        if not data and not self._feed.has_ended:
            raise CommandTimeout(f"{self._feed.answer.what} sent nothing for {self._silence:g} s")
        buffer[: len(data)] = data
        return len(data)


def _failed(answer: _Answer) -> PodError:
    return PodError(f"{answer.what} failed: {Completed(answer.exit_code, b'', bytes(answer.err)).complaint()}")
