"""The first program on a pod, sent as text: PYTHON WORKDIR AGENT SHA256. Standard library, Python 3.8.

It makes sure that the workdir is this user's alone, made or tightened where need be, and that the agent in it is the
one that was meant, byte for byte; only then does it become that agent. On stdout, a line each: the Python, the workdir,
and `there`, nothing where the agent is to be brought, or `refused: ` and a sentence.
"""

from __future__ import annotations

import errno
import glob
import grp
import hashlib
import os
import pwd
import stat
import sys

# Its own umask, for what the agent starts to have; the agent and all that it writes are for this user alone.
UMASK = "NSA_POD_UMASK"
# What agents leave in a workdir, whatever else was taken out of it.
TRACES = ("agent-*", "lock", "holds", "runs/*/plan.json", "envs/*/env.json")


def shared(status: os.stat_result) -> bool:
    """Whether another user can write: as anybody, or in a group that is not this user's alone."""
    return bool(status.st_mode & (0o002 if is_own_group(status.st_gid) else 0o022))


def is_own_group(gid: int) -> bool:
    """Whether the group is the one of the user's own name, as many systems make them, and nobody else is in it."""
    try:
        me, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and not set(group.gr_mem) - {me.pw_name}


def wrong_way(path: str) -> str | None:
    """What is wrong with the way to `path`, each folder and link of it; None if nothing is."""
    seen, place, rest = 0, "/", [part for part in path.split("/") if part]
    while rest:
        status = os.lstat(place)
        if status.st_uid not in (0, os.getuid()):
            return f"{place} belongs to another user (uid {status.st_uid})"
        sticky = status.st_mode & stat.S_ISVTX and status.st_uid == 0
        if shared(status) and not sticky:
            return f"other users can write {place} (mode {stat.S_IMODE(status.st_mode):o})"
        inner = os.path.join(place, rest.pop(0))
        if not os.path.lexists(inner):
            return None
        if os.path.islink(inner):
            owner, seen = os.lstat(inner).st_uid, seen + 1
            if owner not in (0, os.getuid()) or seen > 40:
                return f"{inner} is a link of another user (uid {owner}), or one of too many"
            target = os.readlink(inner)
            rest = [part for part in target.split("/") if part] + rest
            inner = "/" if target.startswith("/") else place
        place = os.path.normpath(inner)
    return None


def wrong_workdir(path: str) -> str | None:
    """As `wrong_way`, of the workdir itself, which is made, or closed to others who could only read it.

    OSError for a folder that is not nsa-pod's own: to be closed, and tidied, it would be taken from others.
    """
    os.makedirs(os.path.realpath(path), mode=0o700, exist_ok=True)  # a link may be there before what it leads to
    status = os.stat(path)
    if status.st_uid != os.getuid():
        return f"{path} belongs to another user (uid {status.st_uid})"
    if shared(status):
        return f"other users can write {path} (mode {stat.S_IMODE(status.st_mode):o})"
    others = others_in(path, status.st_mode & 0o077 != 0)
    if others:
        raise OSError(errno.ENOTEMPTY, others, path)
    if status.st_mode & 0o077:
        os.chmod(path, stat.S_IMODE(status.st_mode) & 0o700)
    return None


def others_in(path: str, is_open: bool) -> str | None:
    """Why the folder is somebody else's: it is the home, or it is open to others and holds things, and no agent has
    been there; None if it is not.
    """
    if os.path.realpath(path) == os.path.realpath(os.path.expanduser("~")):
        return "it is the user's home, and not nsa-pod's own folder"
    there = sorted({*os.listdir(path)} - {"lost+found"}) if is_open else []
    is_own = any(glob.glob(os.path.join(glob.escape(path), trace)) for trace in TRACES)
    return None if is_own or not there else f"{there[0]} lies there, which is not nsa-pod's"


def is_whole(path: str, digest: str) -> bool:
    """Whether the file is the one that was meant; one that is not is removed, to be brought again."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as f:
            regular = stat.S_ISREG(os.fstat(fd).st_mode)
            if regular and hashlib.sha256(f.read()).hexdigest() == digest:
                return True
    except FileNotFoundError:
        return False
    except OSError:  # a link, or what its disk cannot read any more
        pass
    os.unlink(path)
    return False


def main() -> None:
    python, workdir, agent, digest = sys.argv[1:5]
    os.environ[UMASK] = f"{os.umask(0o077):o}"
    try:
        wrong = wrong_way(workdir) or wrong_workdir(workdir)
        there = not wrong and is_whole(os.path.join(workdir, agent), digest)
        said = f"refused: {wrong}, so what lies in {workdir} could be theirs" if wrong else "there" if there else ""
    except OSError as e:
        full = e.errno in (errno.ENOSPC, errno.EDQUOT)  # then bringing the agent says so
        said = "" if full else f"unusable: {e.filename or workdir}: {e.strerror}"
    sys.stdout.write(f"{python}\n{workdir}\n{said}\n")
    sys.stdout.flush()
    if said == "there":
        os.execv(python, [python, "-I", os.path.join(workdir, agent), "serve"])


if __name__ == "__main__":
    main()
