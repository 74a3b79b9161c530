"""The run's tree from stage to stage: what a stage did to it is found in one walk, and each begins with a clean one."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from orchestrator.agent.evidence.code_files import is_code
from orchestrator.agent.git.directory import GitDirectory
from orchestrator.agent.host.file_watch import FileWatch
from orchestrator.agent.host.moment import tick_after
from orchestrator.agent.host.removal import remove
from orchestrator.agent.layout import Layout
from orchestrator.shared import tree
from orchestrator.shared.files import Identity, folders_of, identity, walk
from orchestrator.shared.globs import matcher
from orchestrator.shared.plan import Plan, Stage, artifacts_of
from orchestrator.shared.stage_record import Built, Left
from orchestrator.shared.text import plain

_MOST_BUILT_BYTES = 64 << 30
_NAMED = 20
_HEAD = ".git/HEAD"


@dataclass
class Aftermath:
    """What a stage did: files of the commit that are not as they were (`changed`), code that was written and is as it
    was (`rewritten`), the same of data (`set_back`), what it left besides, what it built for later stages, and what of
    it could not be removed (`stuck`).
    """

    changed: List[str] = field(default_factory=list)
    rewritten: List[str] = field(default_factory=list)
    set_back: List[str] = field(default_factory=list)
    left: List[str] = field(default_factory=list)
    built: tree.Manifest = field(default_factory=dict)
    stuck: List[str] = field(default_factory=list)

    @property
    def told_left(self) -> Left:
        return {"count": len(self.left), "first": [plain(path) for path in self.left[:_NAMED]]}

    @property
    def told_built(self) -> Optional[Built]:
        if not self.built:
            return None
        first = [plain(path) for path in sorted(self.built)[:_NAMED]]
        return {"count": len(self.built), "first": first, "tree": tree.tree_hash(self.built)}


class Workspace:
    """The tree of a run whose commit has the files `manifest`; what finished stages built is put back into it."""

    def __init__(self, plan: Plan, places: Layout, manifest: tree.Manifest) -> None:
        self._root = places.tree
        self._pristine = places.pristine(plan["tree"])
        self._builds = places.builds
        self._manifest = manifest
        self._code = {path for path, (mode, _) in manifest.items() if is_code(path, mode)}
        self._watched = sorted({"", *folders_of(manifest)})
        # What earlier stages built: its entry, and the folder that has it as it was left.
        self._carried: Dict[str, Tuple[Tuple[str, str], Path]] = {}
        self._identities: Dict[str, Identity] = {}
        self._modes: Dict[str, int] = {}
        self._watch: Optional[FileWatch] = None
        self._git = GitDirectory(places.tree, plan, manifest, places.objects)
        for stage in plan["stages"]:
            self._carry(self._builds / stage["name"])
        self._expect()
        for path in self._carried:
            self._restore(path)
        self._survey(self._note)
        self._wait_for_tick()
        self._git.renew()

    def begin(self) -> None:
        """A stage is about to start."""
        if self._watch and self._watch.is_whole:
            self._watch.take()  # what setting the tree in order has done
            return
        if self._watch:
            self._watch.close()
        self._watch = FileWatch(self._root, self._watched)

    def end(self, stage: Stage, is_kept: Callable[[str], bool] = lambda path: True) -> Aftermath:
        """See what the stage did, and set the tree in order for the next; `is_kept` may refuse what it built."""
        events = self._watch.take() if self._watch else None
        if self._root.is_symlink() or not self._root.is_dir():  # the stage did away with all of it
            remove(str(self._root))
            self._root.mkdir()
        found: Dict[str, Identity] = {}
        untracked = self._survey(found.__setitem__)
        done = Aftermath()
        touched = [path for path in self._expected if found.get(path) != self._identities.get(path)]
        entries = {path: self._entry(path) if path in found else None for path in touched}
        self._judge(done, found, entries, events)
        built = self._built(stage, untracked, entries, is_kept)
        done.built = {path: tree.entry_of(self._root / path) for path in built}
        self._clean(done, untracked, set(built))
        if built:
            self._save(stage["name"], built)
        for path, entry in entries.items():
            if path not in built and entry != self._wanted(path):
                self._repair(path, done)
        for path in touched:
            self._set_mode(path)
        if not self._git.is_at_commit():
            done.changed.append(_HEAD)
        if touched or built or events:
            self._survey(self._note)
            self._wait_for_tick()
        self._git.renew(stale=bool(touched))
        return done

    # What is there ---------------------------------------------------------------------------------------------------

    def _expect(self) -> None:
        self._expected = {**dict.fromkeys(self._manifest), **dict.fromkeys(self._carried)}
        self._folders = {"", *folders_of(self._expected)}

    def _survey(self, note: Callable[[str, Identity], None]) -> List[str]:
        """Tell the identity of each expected file that is there; what else is there, folders ending with a slash."""
        others: List[str] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            for path, entry in self._entries(folder):
                if path == ".git":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    (folders if path in self._folders else others).append(path if path in self._folders else f"{path}/")
                elif path in self._expected:
                    with contextlib.suppress(FileNotFoundError):
                        note(path, identity(entry.stat(follow_symlinks=False)))
                else:
                    others.append(path)
        return sorted(others)

    def _entries(self, folder: str) -> Iterator[Tuple[str, "os.DirEntry[str]"]]:
        """What is in a folder of the commit, which gets back the permissions that it had."""
        place = os.path.join(self._root, folder)
        prefix = f"{folder}/" if folder else ""
        with contextlib.suppress(OSError):
            mode = stat.S_IMODE(os.lstat(place).st_mode)
            if self._modes.setdefault(folder, mode) != mode:
                os.chmod(place, self._modes[folder])
        with contextlib.suppress(OSError), os.scandir(place) as found:
            yield from [(prefix + entry.name, entry) for entry in found]

    def _note(self, path: str, found: Identity) -> None:
        self._identities[path] = found

    def _wait_for_tick(self) -> None:
        """Whatever is written from now on gets another time."""
        tick_after(max((found.changed for found in self._identities.values()), default=0), self._root.parent)

    # What the stage did ----------------------------------------------------------------------------------------------

    def _judge(
        self,
        done: Aftermath,
        found: Dict[str, Identity],
        entries: Dict[str, Optional[Tuple[str, str]]],
        events: Optional[Set[str]],
    ) -> None:
        """Content counts first; then whether it was written meanwhile: events tell, else the time of the last write."""
        done.changed = sorted(path for path, entry in entries.items() if self._manifest.get(path, entry) != entry)
        written = self._written(events)
        for path in sorted((written | set(entries)).intersection(self._manifest).difference(done.changed)):
            before, now = self._identities[path], found[path]
            by_time = events is None and before.modified != now.modified
            if path in written or by_time or before.inode != now.inode:
                (done.rewritten if path in self._code else done.set_back).append(path)

    def _written(self, events: Optional[Set[str]]) -> Set[str]:
        """Files of which events tell that, or their folders: one that is moved away and back leaves no other trace."""
        if not events:
            return set()
        folders = tuple(f"{path}/" for path in events if path in self._folders)
        moved = {path for path in self._manifest if path.startswith(folders)} if folders else set()
        return moved | events.intersection(self._manifest)

    def _entry(self, path: str) -> Tuple[str, str]:
        """Of a file that may be there and not be readable."""
        place = self._root / path
        status = os.lstat(place)
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o600 != 0o600:
            with contextlib.suppress(OSError):
                os.chmod(place, stat.S_IMODE(status.st_mode) | 0o600)
        return tree.entry_of(place)

    def _wanted(self, path: str) -> Tuple[str, str]:
        return self._manifest.get(path) or self._carried[path][0]

    # What stays, and what goes ---------------------------------------------------------------------------------------

    def _built(
        self,
        stage: Stage,
        untracked: Sequence[str],
        entries: Dict[str, Optional[Tuple[str, str]]],
        is_kept: Callable[[str], bool],
    ) -> List[str]:
        """What later stages get: regular files and links, as many as there is room for."""
        owed = {str(a.get("from") or "") for a in artifacts_of(stage)}
        matches = matcher(stage.get("builds") or ())
        if "trial" in stage or (not stage.get("builds") and not any(name.startswith("tree:") for name in owed)):
            return []
        again = (path for path in entries if path in self._carried and entries[path] is not None)
        room = _MOST_BUILT_BYTES
        built = []
        for path in (*self._files_of(untracked), *again):
            status = os.lstat(self._root / path)
            if not (matches(path) or f"tree:{path}" in owed) or stat.S_IFMT(status.st_mode) not in _KEPT:
                continue
            room -= status.st_size
            if room >= 0 and is_kept(path):
                built.append(path)
        return built

    def _files_of(self, untracked: Iterable[str]) -> Iterator[str]:
        for path in untracked:
            if path.endswith("/"):
                yield from (path + name for name, _ in walk(self._root / path))
            else:
                yield path

    def _clean(self, done: Aftermath, untracked: Iterable[str], built: Set[str]) -> None:
        """Remove what is not kept; whole folders are named as such."""
        holding = folders_of(built)
        rest = list(untracked)
        for path in rest:
            if path.rstrip("/") in holding:
                with os.scandir(self._root / path) as found:
                    rest += sorted(path + e.name + "/" * e.is_dir(follow_symlinks=False) for e in found)
            elif path not in built:
                done.left.append(path)
                remove(str(self._root / path.rstrip("/")))
                if os.path.lexists(self._root / path.rstrip("/")):
                    done.stuck.append(path)

    def _save(self, stage: str, built: Iterable[str]) -> None:
        """Keep what was built as it is now: a later stage may do something to it, or the agent may die."""
        for path in built:
            kept = self._builds / stage / path
            kept.parent.mkdir(parents=True, exist_ok=True)
            remove(str(kept))
            tree.copy_file(str(self._root / path), str(kept))
        self._carry(self._builds / stage)
        self._expect()

    def _carry(self, folder: Path) -> None:
        self._carried.update({path: (entry, folder) for path, entry in tree.scan(folder).items()})

    def _repair(self, path: str, done: Aftermath) -> None:
        try:
            self._restore(path)
        except OSError:  # something that cannot be removed is in its place
            done.stuck.append(path)

    def _restore(self, path: str) -> None:
        source = self._pristine if path in self._manifest else self._carried[path][1]
        target = self._root / path
        if os.path.lexists(target):
            remove(str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        tree.copy_file(str(source / path), str(target))

    def _set_mode(self, path: str) -> None:
        """As it was before the stage; git itself knows only who may execute it."""
        before = self._identities.get(path)
        if before and not stat.S_ISLNK(before.mode):
            with contextlib.suppress(OSError):
                os.chmod(self._root / path, stat.S_IMODE(before.mode))


_KEPT = (stat.S_IFREG, stat.S_IFLNK)
