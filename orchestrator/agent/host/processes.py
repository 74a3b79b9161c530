"""Processes that a stage started: found wherever they have gone, asked for their stacks, ended and reaped (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional

from orchestrator.agent.injected.stage import MARK, stack_signal
from orchestrator.shared.text import plain

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Elsewhere a stage's processes are only known by their group.
LINUX = sys.platform.startswith("linux")


class Process(NamedTuple):
    pid: int
    parent: int
    state: str


def become_subreaper() -> None:
    """Let orphans below this process become its children, so that a daemon cannot leave its stage unseen."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ending_with_parent() -> Callable[[], None]:
    """What a child has to do before its exec to be killed when this process ends, however and whenever that is."""
    parent, libc = os.getpid(), ctypes.CDLL(None) if LINUX else None

    def prepare() -> None:
        if libc:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it had ended before the kernel was asked
                os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def descendants(ancestor: int, without: Iterable[int] = ()) -> list[int]:
    """Living processes below `ancestor`, but for `without`; always empty where there is no /proc."""
    children: dict[int, list[Process]] = {}
    for process in _all_processes():
        children.setdefault(process.parent, []).append(process)
    found: list[int] = []
    waiting = [ancestor]
    excluded = set(without)
    while waiting:
        below = [p for p in children.get(waiting.pop(), ()) if p.pid not in excluded]
        waiting += [p.pid for p in below]
        found += [p.pid for p in below if p.state not in "ZX"]
    return found


def marked(run_id: str) -> list[int]:
    """Living processes that carry the run's mark in the environment that they were started with."""
    mark = f"\0{MARK}={run_id}\0".encode()
    return [p.pid for p in _all_processes() if p.state not in "ZX" and mark in b"\0" + _read(p.pid, "environ")]


def all_marked() -> Dict[int, str]:
    """The run id in the mark of each living process that carries one."""
    found = {}
    for process in _all_processes():
        _, mark, rest = (b"\0" + _read(process.pid, "environ")).partition(f"\0{MARK}=".encode())
        run_id = rest.partition(b"\0")[0].decode("utf-8", "replace")
        if mark and run_id and "/" not in run_id and process.state not in "ZX":
            found[process.pid] = run_id
    return found


def started_as(*words: str) -> List[int]:
    """Living processes with these words, one after the other, in the command line that they were started with."""
    wanted = "".join(f"\0{word}" for word in words).encode(errors="surrogateescape") + b"\0"
    return [p.pid for p in _all_processes() if p.state not in "ZX" and wanted in _read(p.pid, "cmdline")]


def describe(pid: int) -> dict[str, object]:
    """{"pid", "command"}, for the record."""
    command = _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
    return {"pid": pid, "command": plain(command or _read(pid, "comm").decode("utf-8", "replace"), 200)}


def send(signum: int, pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):  # ended meanwhile, or changed its user
            continue


def send_to_group(signum: int, leader: int) -> None:
    try:
        os.killpg(leader, signum)
    except (ProcessLookupError, PermissionError):
        return


def dump_stacks(pids: Iterable[int]) -> bool:
    """Ask for a stack dump those that are prepared for it; whether any was asked.

    A bash with an EXIT trap catches every signal that ends it, only to run that first.
    """
    ready = [pid for pid in pids if _catches(pid, stack_signal()) and not _is_bash(pid)]
    send(stack_signal(), ready)
    return bool(ready)


def reap_orphans(child: int) -> None:
    """Reap ended processes that became ours, and leave `child` to who started it."""
    if not hasattr(os, "waitid"):
        return
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == child:
            return
        os.waitpid(ended.si_pid, 0)


def is_alive(pid: int) -> bool:
    """Whether the process runs still; one that has ended and that nobody reaps, as in many a container, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    found = _process(pid) if LINUX else None
    return found is None or found.state not in "ZX"


def _all_processes() -> Iterator[Process]:
    for name in os.listdir("/proc") if LINUX else ():
        found = _process(int(name)) if name.isdigit() else None
        if found:
            yield found


def _process(pid: int) -> Optional[Process]:
    """None if it is gone, or is hidden from this user."""
    # pid (command) state parent ...; the command may hold anything, also spaces and parentheses.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return Process(pid, int(fields[1]), fields[0].decode()) if len(fields) > 1 else None


def _catches(pid: int, signum: int) -> bool:
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def _is_bash(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("bash")
    except OSError:
        return False


def _read(pid: int, name: str) -> bytes:
    """A file of /proc/<pid>; empty if the process is gone or is another user's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as f:
            return f.read()
    except OSError:
        return b""
