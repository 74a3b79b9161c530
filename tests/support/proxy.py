"""A TCP proxy between a test and a server, which can delay, stall and cut what goes through it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine
from typing import Any

_CHUNK = 1 << 16
# A connection that is to be cut is cut before so many bytes have passed: a handshake has about 4000.
_MOST_BEFORE_CUT = 20_000


class _Fate:
    """Whether and when one connection, a pair of sides, is reset by chance."""

    def __init__(self, pair: set[asyncio.StreamWriter], left: int | None) -> None:
        self._pair, self._left = pair, left

    def has_come(self, count: int) -> bool:
        """Count bytes that are about to pass; reset the connection if they were too many."""
        if self._left is None:
            return False
        self._left -= count
        if self._left > 0:
            return False
        for side in self._pair:
            side.transport.abort()
        return True


class _Talk:
    """The round trips of one connection: how often who connects has said something that may have waited for an answer.

    What comes from the server is an answer when it was said after the round trip had reached the server: what was on
    its way by then, as a command's end is after its output, would have come without.
    """

    def __init__(self) -> None:
        self.round_trips = 0
        self._there = 0  # the last one that has reached the server
        self._back = 0  # the last one that an answer has come to

    def heard(self, back: bool) -> int:
        """The round trip of what one side says now."""
        if back:
            return self._there
        if self._back == self.round_trips:
            self.round_trips += 1
        return self.round_trips

    def passed(self, number: int, back: bool) -> None:
        """What one side said in it has reached the other."""
        if back:
            self._back = number
        else:
            self._there = number


class Proxy:
    """Forwards `port` on loopback to `target`; runs in a thread of its own from `start` to `stop`.

    delay: seconds by which every byte is late, each way. stall(): nothing more passes, the connections stay open.
    cut_after(n): each connection is reset when n more bytes have passed through the proxy, and so are all later ones;
    cut_once_after(n): those that are open then, and no other. cut(): all are reset now. cut_some(share, chance): of the
    connections made from now on this share is reset, each after a number of bytes that `chance` picks; `doomed` counts.
    cut_each(n): every connection made from now on is reset when n bytes have passed through it.
    round_trips: of all connections; with a delay that is longer than what the server does by itself, always the same.
    """

    def __init__(self, target: int, delay: float = 0.0) -> None:
        self.delay = delay
        self.port = 0
        self.passed = 0
        self.accepted = 0
        self.doomed = 0
        self._talks: list[_Talk] = []
        self._target = target
        self._left: int | None = None
        self._once = False
        self._share = 0.0
        self._each: int | None = None
        self._chance = random.Random()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def round_trips(self) -> int:
        return sum(talk.round_trips for talk in self._talks)

    def start(self) -> Proxy:
        self._thread.start()
        self._flowing.set()
        server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        return self

    def stop(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def stall(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def resume(self) -> None:
        self._loop.call_soon_threadsafe(self._flowing.set)

    def cut(self) -> None:
        self._do(self._abort())

    def cut_after(self, count: int | None) -> None:
        self._once, self._left = False, count

    def cut_once_after(self, count: int) -> None:
        self._once, self._left = True, count

    def cut_some(self, share: float, chance: random.Random) -> None:
        self._share, self._chance = share, chance

    def cut_each(self, count: int | None) -> None:
        self._each = count

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._abort()

    async def _abort(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        pair = {writer, there}
        self._open |= pair
        fate, talk = self._fate(pair), _Talk()
        self._talks.append(talk)
        try:
            await asyncio.gather(
                self._pump(reader, there, fate, talk), self._pump(there_reader, writer, fate, talk, back=True)
            )
        except (OSError, asyncio.CancelledError):
            pass  # one side has hung up, or the proxy ends
        finally:
            self._open -= pair
            for side in pair:
                side.transport.abort()

    def _fate(self, pair: set[asyncio.StreamWriter]) -> _Fate:
        if self._chance.random() >= self._share:
            return _Fate(pair, self._each)
        self.doomed += 1
        return _Fate(pair, self._chance.randrange(1, _MOST_BEFORE_CUT))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: _Fate, talk: _Talk, back: bool = False
    ) -> None:
        late: asyncio.Queue[tuple[float, bytes, int]] = asyncio.Queue(256)
        sender = asyncio.create_task(self._send(late, writer, fate, talk, back))
        try:
            while data := await reader.read(_CHUNK):
                await late.put((time.monotonic() + self.delay, data, talk.heard(back)))
            await late.put((time.monotonic() + self.delay, b"", 0))
            await sender
        finally:
            sender.cancel()

    async def _send(
        self,
        late: asyncio.Queue[tuple[float, bytes, int]],
        writer: asyncio.StreamWriter,
        fate: _Fate,
        talk: _Talk,
        back: bool,
    ) -> None:
        while True:
            at, data, number = await late.get()
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            await self._flowing.wait()
            if not data:
                writer.write_eof()
                return
            self.passed += len(data)
            if self._left is not None:
                self._left -= len(data)
                if self._left <= 0:
                    self._left = None if self._once else self._left
                    await self._abort()
                    return
            if fate.has_come(len(data)):
                return
            talk.passed(number, back)
            writer.write(data)
            await writer.drain()
