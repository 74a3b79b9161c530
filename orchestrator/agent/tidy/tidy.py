"""Remove what nobody uses: looked for and put aside while nobody can take hold of it, then deleted."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Dict, List, Sequence

from orchestrator.agent import holds
from orchestrator.agent.env import lease
from orchestrator.agent.env.store import Store
from orchestrator.agent.host.removal import remove
from orchestrator.agent.tidy.choose import Wish, by_limit, by_wish
from orchestrator.agent.tidy.survey import Item, survey
from orchestrator.agent.tidy.usage import Usage
from orchestrator.shared.answers import KeptItem, Pruned, RemovedItem, Tidied
from orchestrator.shared.failure import Failure
from orchestrator.shared.locks import A_MOMENT_S, locked

_PATIENCE_S = 60.0
_ASIDE = ".gone-"
_MOST_TOLD = 5000  # of each, for an answer has an end
_PARTS = ("workspace", "download")  # said when they go

Choice = Callable[[Sequence[Item], Usage], List[Item]]


def wished(wish: Wish) -> Choice:
    """What goes by the number of runs, or by age."""

    def choose(items: Sequence[Item], usage: Usage) -> List[Item]:
        doomed = by_wish(items, wish)
        for item in doomed:
            usage.remove(item)
        return doomed + _unshared(items, usage, whole=_environments_stay(items, doomed))

    return choose


def under(limit: int) -> Choice:
    """What goes until the rest takes at most `limit` bytes."""

    def choose(items: Sequence[Item], usage: Usage) -> List[Item]:
        downloads: List[Item] = []

        def free(item: Item) -> int:
            before = usage.total
            usage.remove(item)
            downloads.extend(_unshared(items, usage, whole=True))
            return before - usage.total

        return by_limit(items, usage.total, limit, free) + downloads

    return choose


def prune(workdir: Path, choice: Choice, *, dry_run: bool = False) -> Pruned:
    """Remove what `choice` finds; with `dry_run` only say what that would be."""
    items = survey(workdir)
    usage = Usage(workdir, items)
    sizes = {item.paths: usage.size(item) for item in items}
    before = usage.total
    refused: Dict[Item, str] = {}
    if dry_run:
        doomed = choice(items, usage)
        after = usage.total
    else:
        with _gate(workdir):
            items = survey(workdir)
            doomed = choice(items, usage)
            refused = _put_aside(workdir, doomed)
        _sweep(workdir)
        after = Usage(workdir).total
    gone = [item for item in doomed if item not in refused]
    whole = (item for item in items if item not in gone and item.kind not in _PARTS)
    kept = [(item, refused.get(item) or item.in_use) for item in whole]
    return Pruned(
        dry_run=dry_run,
        before_bytes=before,
        after_bytes=after,
        free_bytes=shutil.disk_usage(str(workdir)).free,
        removed=[RemovedItem(kind=i.kind, name=i.name, bytes=sizes.get(i.paths, 0)) for i in gone[:_MOST_TOLD]],
        kept=[
            KeptItem(kind=i.kind, name=i.name, bytes=sizes.get(i.paths, 0), in_use=why) for i, why in kept[:_MOST_TOLD]
        ],
    )


def keep_under(workdir: Path, limit: int) -> Tidied:
    """At a launch; a disk that cannot be tidied keeps no run from starting."""
    try:
        done = prune(workdir, under(limit))
    except (Failure, OSError) as e:
        return Tidied(limit=limit, before_bytes=0, after_bytes=0, problem=str(e))
    return Tidied(limit=limit, before_bytes=done["before_bytes"], after_bytes=done["after_bytes"], problem=None)


def _unshared(items: Sequence[Item], usage: Usage, *, whole: bool) -> List[Item]:
    """The downloads that no environment shares, which leave `usage`; the whole cache unless there is one."""
    found = [i for i in items if i.kind == "download" and not i.in_use and (not whole or usage.is_alone(i))]
    return [item for item in found if usage.remove(item)]


def _environments_stay(items: Sequence[Item], doomed: Sequence[Item]) -> bool:
    return any(item.kind == "environment" and item not in doomed for item in items)


@contextlib.contextmanager
def _gate(workdir: Path) -> Iterator[None]:
    with holds.gate(workdir, _PATIENCE_S, shared=False) as through:
        if not through:
            raise Failure(f"{workdir} is being used by others all the time: try again in a minute")
        yield


def _put_aside(workdir: Path, doomed: Sequence[Item]) -> Dict[Item, str]:
    """Give them names under which nobody looks for them; those that cannot go, and why."""
    refused = {}
    for item in doomed:
        try:
            with _alone(workdir, item) as alone:
                if not alone:
                    refused[item] = "somebody began to use it"
                    continue
                for path in item.paths:
                    _rename(workdir / path)
        except OSError as e:
            refused[item] = f"it cannot be removed: {e.strerror}"
    return refused


def _rename(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.rename(path.with_name(f"{_ASIDE}{path.name.lstrip('.')}-{os.urandom(4).hex()}"))


@contextlib.contextmanager
def _alone(workdir: Path, item: Item) -> Iterator[bool]:
    """Whether nobody builds or uses the item; if so, nobody begins to. A lock that was never made is held by nobody."""
    root = workdir / item.paths[0]
    with contextlib.ExitStack() as stack:
        for lock in (root.parent / f".{root.name}.lock", lease.file_of(root)):
            if lock.exists() and not stack.enter_context(locked(lock, A_MOMENT_S)):
                yield False
                return
        if item.kind == "environment":
            for request in Store(workdir).requests_of(item.name):
                request.unlink()
        yield True


def _sweep(workdir: Path) -> None:
    """Delete what was put aside, by this process or by one that was killed."""
    for top in (workdir, *_folders(workdir), *_folders(workdir / "runs"), *_folders(workdir / "cache" / "uv")):
        for path in top.glob(f"{_ASIDE}*"):
            remove(str(path))


def _folders(top: Path) -> List[Path]:
    return [path for path in top.iterdir() if path.is_dir()] if top.is_dir() else []
