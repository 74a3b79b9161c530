"""One exception for each kind of failure: its sentence is what the user reads, its exit code what a script sees."""

from __future__ import annotations

from orchestrator.shared.answers import Holder
from orchestrator.shared.text import plain

_LONGEST = 2000


class NsaPodError(Exception):
    """A failure of the infrastructure: the pod, the connection, the environment. Exit code 4.

    The sentence quotes files, names and what pods say: it is made one printable line.
    """

    exit_code = 4

    def __init__(self, sentence: str) -> None:
        super().__init__(plain(sentence, _LONGEST))


class InputError(NsaPodError):
    """Bad input that can be judged without contacting a pod: YAML, names, revisions, usage. Exit code 2."""

    exit_code = 2


class Unreachable(NsaPodError):
    """No connection to the pod could be made: network, port, authentication."""


class HostKeyError(NsaPodError):
    """The pod's host key is unknown or is not the pinned one."""


class ContactLost(NsaPodError):
    """The connection broke or the peer stalled; what runs on the pod is not affected."""


class CommandTimeout(NsaPodError):
    """A command on the pod did not end within its limit."""


class PodError(NsaPodError):
    """The pod cannot do what is needed: no Python, no disk, another GPU than promised, a step failed there."""


class PodFull(PodError):
    """The pod's disk takes nothing more."""


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
    """The user stopped waiting; what runs on the pod is not affected. Exit code 130, as shells have it for SIGINT."""

    exit_code = 130
