"""What the agent tells the injected modules of the stage, and where they tell the agent what they saw."""

from __future__ import annotations

import os
import sys
from os import close, fstat, stat, write  # bound here: a test may replace them while it runs
from os import open as open_number

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would cost more than all the rest
    from typing import Any, Callable, Iterable, Mapping

_PACKAGE = __name__.rpartition(".")[0]  # `__package__` is not yet there where an archive is imported by Python 3.8
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(str(sys.modules[_PACKAGE].__file__))))
"""Around this package, not where it leads to: what the agent brings into a stage's processes."""
FILE = "stage"
"""In that folder: lines of `key=value`, a key may come again."""
HIGH_FDS = (300, 100)
"""Beyond what programs and tests close wholesale (`os.closerange(3, 256)`), where the process may have as many."""
MARK = "NSA_POD_RUN"
"""In every stage's environment variables; processes that carry a run's mark are that run's, whoever their parent is."""
TEST_VARIABLE = "NSA_POD_TEST"
"""Not pytest's own, which a session inside a test takes away."""


def stack_signal() -> int:
    """What asks a process for its stacks: a signal that programs hardly use, and by which none is to be ended."""
    import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations, which cost more than all the rest

    return int(getattr(_signal, "SIGRTMAX", _signal.SIGUSR1))


def _refused(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is no part of what is told")


def _encoder() -> Callable[[object, int], Iterable[str]]:
    """What `json.dumps` makes anew for each call, without `json`, which most processes can do without."""
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:  # a Python that has it not in C
        from json import JSONEncoder

        return lambda value, level: JSONEncoder().iterencode(value)
    return make_encoder(None, _refused, encode_basestring_ascii, None, ": ", ", ", False, False, True)


encoded = _encoder()
"""JSON in pieces, of a value and the level 0."""


def config_text(values: Mapping[str, str | Iterable[str]]) -> str:
    """The stage's configuration: for each key a value, or several."""
    several = {key: [value] if isinstance(value, str) else value for key, value in values.items()}
    return "".join(f"{key}={value}\n" for key, items in several.items() for value in items)


class Config:
    """A stage's configuration: where its Pythons report (`report`, `sessions`), its `tree`, the top-level `name`s that
    it provides, the folders where other code is at `home`, each `prefix` of the environment's interpreters, the pattern
    of what a `python` is called, and where files that are `marked` are kept for the stage.
    """

    def __init__(self, text: str) -> None:
        self._values: dict[str, list[str]] = {}
        for line in text.splitlines():
            key, _, value = line.partition("=")
            self._values.setdefault(key, []).append(value)

    def one(self, key: str) -> str:
        return self._values[key][0]

    def all(self, key: str) -> list[str]:
        return self._values.get(key, [])


def read_config() -> Config | None:
    """Of the stage that this process belongs to; None where nobody left one."""
    try:
        with open(os.path.join(FOLDER, FILE), encoding="utf-8", errors="surrogateescape") as f:
            return Config(f.read())
    except OSError:
        return None


class Notes:
    """Lines for the agent, in one file for all processes of the stage.

    It is open only while a line is written, for programs count what they have open; but in a pytest, which has files of
    its own, and writes many lines. A process that may not write it any more (another user by now, a limit of its own)
    goes on without.
    """

    def __init__(self, path: str) -> None:
        """OSError where it cannot be written."""
        self._path = path
        self._kept: int | None = None
        self._file = 0
        close(self._open())

    def keep_open(self) -> None:
        """From now on, also after this process has become one that could not open it."""
        try:
            if self._kept is None:
                self._keep()
        except OSError:
            return

    def _keep(self) -> int:
        self._kept = moved_up(self._open())
        self._file = fstat(self._kept).st_ino
        return self._kept

    def _open(self) -> int:
        return open_number(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, **fields: object) -> None:
        """Write one line, at once: the process may end in any way."""
        self.write("".join(encoded(fields, 0)))

    def write(self, line: str) -> None:
        """Write a line that is JSON already."""
        try:
            if self._kept is not None:  # a daemon closes all it has open, and the number may be another file's by now
                write(self._kept if self._is_open(self._kept) else self._keep(), line.encode("ascii") + b"\n")
                return
            fd = self._open()
            try:
                write(fd, line.encode("ascii") + b"\n")
            finally:
                close(fd)
        except Exception:  # an audit hook of the program's may raise anything
            return

    def _is_open(self, fd: int) -> bool:
        try:
            return fstat(fd).st_ino == self._file
        except OSError:
            return False

    def size(self) -> int:
        """How much all processes have written by now."""
        try:
            return stat(self._path).st_size
        except OSError:
            return 0

    def since(self, offset: int) -> bytes:
        """The lines that were written after `offset`."""
        with open(self._path, "rb") as f:
            f.seek(offset)
            return f.read()


def moved_up(fd: int) -> int:
    """`fd` under a high number, for programs count on the low ones; at least above the standard streams, which may be
    closed, where that is beyond the process's limit.
    """
    import fcntl

    try:
        for least in (*HIGH_FDS, 3):
            try:
                return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
            except OSError:
                continue
    finally:
        os.close(fd)
    raise OSError("no number is left for another file")


known_test: list[str] = []
"""The test that has started this process, or that it is at: environment variables may be given anew, or cleared."""


def test_around() -> str | None:
    """The test that this process, or one above it, is at."""
    return os.environ.get(TEST_VARIABLE) or (known_test[0] if known_test else None)


sessions: list[object] = []
"""Of pytest, that have begun in this process; but for those after which a program has gone on."""


def runs_pytest() -> bool:
    """Whether a session of pytest runs in this process; that pytest is imported, as files of tests do, is none."""
    return bool(sessions)
