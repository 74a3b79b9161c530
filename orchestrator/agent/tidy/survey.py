"""All that a workdir holds, who uses it and since when nobody has. Nothing is changed."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from orchestrator.agent import holds, lock
from orchestrator.agent.env import lease
from orchestrator.agent.env.store import Store
from orchestrator.agent.layout import BESIDE, cache_key
from orchestrator.agent.runs import state_of
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import read_json, walk
from orchestrator.shared.locks import is_held

ABANDONED_S = 300.0
"""A transfer that has written nothing for so long has ended: one that stalls is given up sooner."""
_BEGINS_S = 900.0
_OLD_AGENT_S = 86400.0
_SAYS_S, _PAUSE_S = 2.0, 0.02  # whoever takes the lock writes into it next, and empties it before letting go
_NAMED = re.compile(r"(?:envs|layers|python)/[^/\s]+")
_CACHE = re.compile(r"[0-9a-f]{16}")
_WORKSPACE = ("tree", "venv", "injected", "builds", BESIDE)
_TOPS = ("trees", "layers", "wheelhouses", "tools/carried", "incoming")
_PARTS = re.compile(r"(agent-[0-9a-f]+\.pyz|doctor-[0-9a-f]+)\.\d+(\.part(\.\d+)?)?")
_BEGINNING = 1 << 20  # of a journal, which may be large


@dataclass(frozen=True)
class Item:
    """One thing that can be kept or removed as a whole.

    `paths` are below the workdir (of a run, the parts of its workspace too), `used` is when it was used last (as
    time.time), `needs` are the paths of what it cannot do without, `in_use` says by whom it is used, as a clause; None
    if nobody does.
    """

    kind: str
    paths: Tuple[str, ...]
    used: float
    needs: FrozenSet[str] = frozenset()
    in_use: Optional[str] = None

    @property
    def name(self) -> str:
        return self.paths[0].split("/")[1] if self.kind == "workspace" else os.path.basename(self.paths[0])


def survey(workdir: Path) -> List[Item]:
    """Everything below `workdir` that could go, or may not."""
    store = Store(workdir)
    building = "something is being built" if store.is_building() else None
    held = holds.held(workdir)
    runs = list(_runs(workdir))
    found = [
        *runs,
        *_workspaces(workdir, runs),
        *_folders("tree", workdir / "trees"),
        *_environments(store),
        *(_leased(item, workdir) for item in _folders("layer", workdir / "layers")),
        *(item for item in _folders("cache", workdir / "cache") if _CACHE.fullmatch(item.name)),
        *_objects(workdir, runs),
        *(replace(item, in_use=building) for item in _folders("Python", workdir / "python")),
        *_wheels(store, building),
        *_downloads(store, building),
        *_agents(workdir, runs, building),
        *_leftovers(workdir, runs, building),
    ]
    last = _last_uses(runs)
    return [_seen(item, held, last) for item in found]


def _seen(item: Item, held: Set[str], last: Mapping[str, float]) -> Item:
    """The item as it is used by laptops, and by the runs that need it."""
    used = max([item.used, *(last.get(path, 0.0) for path in item.paths)])
    waits = None if held.isdisjoint(item.paths) else "a laptop is about to use it, or is bringing it home"
    return replace(item, used=used, in_use=item.in_use or waits)


def _last_uses(runs: Iterable[Item]) -> Dict[str, float]:
    found: Dict[str, float] = {}
    for run in runs:
        for path in run.needs:
            found[path] = max(found.get(path, 0.0), run.used)
    return found


def _runs(workdir: Path) -> Iterator[Item]:
    going = _going(workdir)
    for folder in _visible(workdir / "runs"):
        if not (folder / "plan.json").is_file():
            continue
        began = folder / "journal.jsonl"
        used = _modified(began if began.exists() else folder)
        in_use = None
        if folder.name == going:
            in_use = "it goes on"
        elif not began.exists() and time.time() - used < _BEGINS_S:
            in_use = "it is about to begin"
        paths = (f"runs/{folder.name}", *_workspace(folder))
        yield Item("run", paths, used, frozenset(_needs(folder, workdir, going=folder.name == going)), in_use)


def _going(workdir: Path) -> Optional[str]:
    """The run that has the pod; Failure if somebody has it who does not say for which."""
    end = time.monotonic() + _SAYS_S
    holder = lock.holder(workdir)
    while holder is not None and not holder.get("run_id"):
        if time.monotonic() > end:
            raise Failure(f"{workdir} is held by an unknown run: wait until it has ended")
        time.sleep(_PAUSE_S)
        holder = lock.holder(workdir)
    return str(holder["run_id"]) if holder else None


def _workspace(run_dir: Path) -> Iterator[str]:
    return (f"runs/{run_dir.name}/{name}" for name in _WORKSPACE if (run_dir / name).exists())


def _needs(run_dir: Path, workdir: Path, *, going: bool) -> Iterator[str]:
    """What a run cannot do without: its tree, and all that its plan names below the workdir."""
    plan = read_json(run_dir / "plan.json")
    beside = plan.get("beside")
    others = [parts for parts in beside.values() if isinstance(parts, dict)] if isinstance(beside, dict) else []
    trees = [str(parts.get("tree")) for parts in (plan, *others)]
    yield from (f"trees/{tree}" for tree in trees)
    tops = {f"{top}/" for top in (plan.get("workdir"), str(workdir)) if isinstance(top, str)}
    for text in _texts({key: value for key, value in plan.items() if key not in ("stages", "ancestry")}):
        for top in filter(text.startswith, tops):
            match = _NAMED.match(text, len(top))
            if match:
                yield match[0]
    for event in _beginnings(run_dir, sys.maxsize if going else _BEGINNING):
        if isinstance(event.get("fingerprint"), str):
            yield from (f"cache/{cache_key(tree, event['fingerprint'])}" for tree in trees)
        if isinstance(event.get("agent"), str):
            yield f"agent-{event['agent']}.pyz"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _beginnings(run_dir: Path, most: int) -> Iterator[Dict[str, Any]]:
    """What the journal's first `most` bytes say of the run's agents and its environment."""
    try:
        with (run_dir / "journal.jsonl").open("rb") as f:
            for line in itertools.takewhile(lambda _: f.tell() <= most, f):
                if b'"run_started"' in line or b'"run_resumed"' in line or b'"environment_checked"' in line:
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event
    except (OSError, ValueError, RecursionError):
        return


def _workspaces(workdir: Path, runs: Iterable[Item]) -> Iterator[Item]:
    """What ended runs worked in, which is no evidence."""
    for run in runs:
        if run.paths[1:] and run.in_use is None and state_of(workdir / run.paths[0])["state"] == "ended":
            yield Item("workspace", run.paths[1:], run.used)


def _environments(store: Store) -> Iterator[Item]:
    for item in _folders("environment", store.root):
        root = store.environment(item.name)
        stamp = root / "env.json"
        rebuilt = "it is being rebuilt" if _is_held(store.key_lock(item.name)) else None
        used = _modified(stamp if stamp.exists() else root)
        yield _leased(replace(item, used=used, needs=frozenset(_base(root)), in_use=rebuilt), store.workdir)


def _base(root: Path) -> Iterator[str]:
    """The Python below the workdir that the environment at `root` stands on."""
    with_links = os.path.realpath(root / "bin" / "python")
    match = re.search(r"/(python/[^/]+)/bin/[^/]+$", with_links)
    if match:
        yield match[1]


def _leased(item: Item, workdir: Path) -> Item:
    taken = lease.is_taken(workdir / item.paths[0])
    return replace(item, in_use=item.in_use or ("a run uses it" if taken else None))


def _objects(workdir: Path, runs: Iterable[Item]) -> Iterator[Item]:
    """Git's objects: a run borrows them while it goes on, and the next one brings what it lacks."""
    if (workdir / "objects").is_dir():
        borrowed = "a run borrows them" if any(run.in_use for run in runs) else None
        yield Item("git store", ("objects",), _modified(workdir / "objects" / "pack"), in_use=borrowed)


def _wheels(store: Store, building: Optional[str]) -> Iterator[Item]:
    """What was compiled, carried or downloaded: too dear to go for anything but its age, or a disk's limit."""
    for top in (store.built, store.workdir / "wheelhouses", store.downloads):
        for path in _visible(top):
            yield Item("wheel", (str(path.relative_to(store.workdir)),), _modified(path), in_use=building)


def _downloads(store: Store, building: Optional[str]) -> Iterator[Item]:
    """The installer's cache, whose unpacked wheels the environments share."""
    archives = tuple(str(path.relative_to(store.workdir)) for path in store.cache.glob("uv/archive-v*/*"))
    if (store.cache / "uv").is_dir():
        yield Item("download", ("cache/uv", *archives), 0.0, in_use=building)
    for path in archives:
        yield Item("download", (path,), 0.0, in_use=building)


def _agents(workdir: Path, runs: Iterable[Item], building: Optional[str]) -> Iterator[Item]:
    """Of all versions; those go that nobody has asked for a day, for each command of theirs makes them as new."""
    own = os.path.realpath(sys.argv[0])
    needed = set().union(*(run.needs for run in runs if run.in_use))
    for path in workdir.glob("agent-*.pyz"):
        idle = time.time() - _modified(path) > _OLD_AGENT_S
        is_old = idle and not building and path.name not in needed and os.path.realpath(path) != own
        yield Item("old agent" if is_old else "agent", (path.name,), _modified(path))


def _leftovers(workdir: Path, runs: Iterable[Item], building: Optional[str]) -> Iterator[Item]:
    """What interrupted transfers, builds, removals and stages have left."""
    going = {run.name[-8:] for run in runs if run.in_use}
    found = [
        *(path for top in _TOPS for path in _inner(workdir / top)),
        *(path for path in _all(workdir / "runs") if not (path / "plan.json").is_file()),
        *(path for path in _all(workdir / "tmp") if path.name.rpartition("-")[0] not in going),
        *(path for path in _all(workdir) if _PARTS.fullmatch(path.name)),
        *workdir.glob("doctor-*"),
        *(path for path in _all(workdir / "objects" / "pack") if path.name.startswith("tmp_")),
        *(path for path in _all(workdir / "envs") if path.name.startswith((".building-", ".trash-"))),
        *(() if building or not (workdir / "tools" / "uv").exists() else (workdir / "tools").glob("carried*")),
    ]
    for path in dict.fromkeys(found):
        if not _is_built(path) and time.time() - newest(path) > ABANDONED_S:
            yield Item("leftover", (str(path.relative_to(workdir)),), newest(path))
    for path in (workdir / "holds").glob("*"):
        if holds.is_over(path):
            yield Item("leftover", (f"holds/{path.name}",), 0.0)


def _inner(top: Path) -> Iterator[Path]:
    """What has no name of its own yet, or none any more; locks are none of that."""
    hidden = top.name != "incoming"
    return (path for path in _all(top) if path.is_dir() and path.name.startswith(".") is hidden)


def _is_built(path: Path) -> bool:
    """Whether a builder that is alive works in it."""
    key = path.name[len(".building-") :].rpartition("-")[0]
    return path.name.startswith(".building-") and _is_held(path.parent / f".{key}.lock")


def newest(path: Path) -> float:
    """When something was last written below `path`, or given its name there."""
    try:
        found = [entry.stat(follow_symlinks=False).st_ctime for _, entry in walk(path)] if path.is_dir() else []
        return max([os.lstat(path).st_ctime, *found])
    except FileNotFoundError:
        return time.time()


def _is_held(path: Path) -> bool:
    return path.exists() and is_held(path)


def _folders(kind: str, top: Path) -> Iterator[Item]:
    found = (path for path in _visible(top) if path.is_dir())
    return (Item(kind, (f"{top.name}/{path.name}",), _modified(path)) for path in found)


def _visible(top: Path) -> Iterator[Path]:
    return (path for path in _all(top) if not path.name.startswith("."))


def _all(top: Path) -> List[Path]:
    return sorted(top.iterdir()) if top.is_dir() else []


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()
