"""Unit tests start no process and open no socket; what another test needs is its marker.

A fixture that needs something marks every test that asks for it, directly or through another fixture; a test that does
by itself has its own mark. All that is left is `unit`, and is held to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
_BY_FIXTURE = {
    "ssh": ("sshd", "own_sshd", "boxed"),
    "root": ("boxed", "disk", "small_disk", "full_disk"),
    "process": ("project", "any_project", "pod", "pod_of", "pod_without_uv", "git", "repo", "uv"),
}
_OTHERS = ("process", "ssh", "root", "torch")
_PROCESS, _SOCKET = "starts a process", "opens a socket"
_EVENTS = {
    "subprocess.Popen": _PROCESS,
    "os.system": _PROCESS,
    "os.fork": _PROCESS,
    "os.forkpty": _PROCESS,
    "os.posix_spawn": _PROCESS,
    "os.exec": _PROCESS,
    "multiprocessing": _PROCESS,
    "socket.__new__": _SOCKET,
    "socket.getaddrinfo": "asks the network for an address",
}


class _Guard:
    """While it watches, what a unit test does not do raises in the test, however deep; `seen` if that was swallowed."""

    def __init__(self) -> None:
        self.watches = False
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watches or event not in _EVENTS:
            return
        sentence = (
            f"a unit test {_EVENTS[event]} ({event}: {arguments[0] if arguments else ''!s:.80}): "
            "do without, or mark it (`process`, `ssh`: see tests/support/kinds.py)"
        )
        self.seen.append(sentence)
        pytest.fail(sentence)


GUARD = _Guard()


def pytest_configure() -> None:
    sys.addaudithook(GUARD)  # it stays for good: Python takes none back
    start = BaseProcess.start  # a process that is spawned, not forked, raises no event

    def guarded(self: BaseProcess) -> None:
        GUARD("multiprocessing", (self.name,))
        start(self)

    BaseProcess.start = guarded  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)  # `-m` comes after it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(TESTS):
            for kind, fixtures in _BY_FIXTURE.items():
                if not {*fixtures}.isdisjoint(item.fixturenames):
                    item.add_marker(kind)
            needs = any(item.get_closest_marker(kind) for kind in _OTHERS)
            item.add_marker("process" if needs else "unit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from _watched(item))


def _watched(item: pytest.Item) -> Iterator[None]:
    GUARD.watches, GUARD.seen = item.get_closest_marker("unit") is not None, []
    try:
        result = yield
    finally:
        GUARD.watches = False
    if GUARD.seen:
        pytest.fail(GUARD.seen[0])
    return result
