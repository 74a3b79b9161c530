"""One exception for each kind of failure: its sentence is what the user reads, its exit code what a script sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from orchestrator.shared.answers import Holder
from orchestrator.shared.text import plain

T = TypeVar("T")

_LONGEST = 2000
# What programs say, the agent with how much is free; GNU tar names the cause only if a write fails from its first byte.
_FULL_DISK = re.compile(
    r"(?:No space left on device|Disk quota exceeded)(?:.*\(([^()]* are free)\))?"
    r"|tar: .*: Wrote only \d+ of \d+ bytes"
)
_MOST = 100


class NsaPodError(Exception):
    """A failure of the infrastructure: the pod, the connection, the environment. Exit code 4.

    The sentence quotes files, names and what pods say: it is made one printable line.
    """

    exit_code = 4

    def __init__(self, sentence: str) -> None:
        super().__init__(plain(sentence, _LONGEST))

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is to be said, each on a line of its own."""
        return (str(self),)


class InputError(NsaPodError):
    """Bad input that can be judged without contacting a pod: YAML, names, revisions, usage. Exit code 2."""

    exit_code = 2


class InputErrors(InputError):
    """All that is wrong with what was given, not only the first of it."""

    def __init__(self, sentences: Iterable[str]) -> None:
        found = [plain(sentence, _LONGEST) for sentence in dict.fromkeys(sentences)]
        more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
        self._sentences = (*found[:_MOST], *more)
        super().__init__("; ".join(self._sentences))

    @property
    def sentences(self) -> tuple[str, ...]:
        """One for each mistake."""
        return self._sentences


class Together:
    """Steps that do not need each other: what is wrong with each is said, not only the first of it."""

    def __init__(self) -> None:
        self._wrong: list[str] = []

    def attempt(self, step: Callable[[], T]) -> T | None:
        """What the step finds; None if there is something wrong with it."""
        try:
            return step()
        except InputError as e:
            self.add(e.sentences)
        return None

    def add(self, sentences: Iterable[str]) -> None:
        """What else is wrong."""
        self._wrong += sentences

    def finish(self) -> None:
        """InputErrors if anything was wrong."""
        if self._wrong:
            raise InputErrors(self._wrong)


class Unreachable(NsaPodError):
    """No connection to the pod could be made: network, port, authentication."""


class HostKeyError(NsaPodError):
    """The pod's host key is unknown or is not the pinned one."""


class Untrusted(NsaPodError):
    """The inventory was found in a directory that nobody has trusted: no pod of it is contacted."""


class ContactLost(NsaPodError):
    """The connection broke or the peer stalled; what runs on the pod is not affected."""


class GaveUp(ContactLost):
    """No connection brought the work further for as long as was waited for one that does."""


class CommandTimeout(NsaPodError):
    """A command on the pod did not end within its limit."""


class PodError(NsaPodError):
    """The pod cannot do what is needed: no Python, no disk, another GPU than promised, a step failed there."""


class NoShell(PodError):
    """What logs in is no shell that runs commands, whatever the command was."""


class PodFull(PodError):
    """The pod's disk takes nothing more."""

    @classmethod
    def of(cls, what: str, said: str) -> PodFull | None:
        """The error of a pod that has no space left, if that is what was complained of."""
        found = _FULL_DISK.search(said)
        if not found:
            return None
        more = f"{found[1]}, not enough" if found[1] else "bytes or inodes"
        return cls(
            f"{what}: its disk is full ({more}): free some (nsa-pod prune --keep 1 --dry-run "
            "says what can go), or set another `workdir`"
        )


class PodBusy(PodError):
    """Another run holds the pod's lock; `holder` is what it wrote into it."""

    def __init__(self, sentence: str, holder: Holder) -> None:
        super().__init__(sentence)
        self.holder = holder


class EnvironmentFailed(PodError):
    """No environment fits the pod, or it could not be built or verified."""


class IntegrityError(PodError):
    """What came from the pod is not what its record says: size, hash, path, chain."""


class DiskError(NsaPodError):
    """This machine's disk does not take what is to be written: it is full, or read-only."""


class Interrupted(NsaPodError):
    """The user stopped waiting; what runs on the pod is not affected. The exit code is that of the interrupt."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
