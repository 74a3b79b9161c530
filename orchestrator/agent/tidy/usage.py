"""What the files of a workdir take on its disk; one that several items share counts once, and stays with the last."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Counter as Counts
from typing import DefaultDict, Dict, Iterable, Set

from orchestrator.agent.tidy.survey import Item
from orchestrator.shared.files import walk

_BLOCK = 512


class Usage:
    """`total` bytes of disk, of which items are taken away one by one."""

    def __init__(self, workdir: Path, items: Iterable[Item] = ()) -> None:
        self._own: Counts[str] = Counter()
        self._shared: DefaultDict[str, Set[int]] = defaultdict(set)
        self._bytes: Dict[int, int] = {}
        self._users: Counts[int] = Counter()
        links: Counts[int] = Counter()  # that were not seen
        paths = {path for item in items for path in item.paths}
        for name, entry in walk(workdir):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                path = _place(name, paths)
                if status.st_nlink == 1:
                    self._own[path] += status.st_blocks * _BLOCK
                    continue
                links[status.st_ino] += 1 if status.st_ino in links else 1 - status.st_nlink
                if status.st_ino not in self._shared[path]:
                    self._shared[path].add(status.st_ino)
                    self._users[status.st_ino] += 1
                    self._bytes[status.st_ino] = status.st_blocks * _BLOCK
        self._elsewhere = {inode for inode, missing in links.items() if missing < 0}
        self.total = sum(self._own.values()) + sum(self._bytes.values())

    def size(self, item: Item) -> int:
        """What the item's files take, those that others share too."""
        inodes = set().union(*(self._shared.get(path, set()) for path in item.paths))
        return sum(self._own[path] for path in item.paths) + sum(self._bytes[inode] for inode in inodes)

    def is_alone(self, item: Item) -> bool:
        """Whether nobody else shares a file with this item, in the workdir or elsewhere."""
        inodes = set().union(*(self._shared.get(path, set()) for path in item.paths))
        return inodes.isdisjoint(self._elsewhere) and all(self._users[inode] == 1 for inode in inodes)

    def remove(self, item: Item) -> int:
        """Count the item no more; what that gives back."""
        freed = 0
        for path in item.paths:
            freed += self._own.pop(path, 0)
            for inode in self._shared.pop(path, ()):
                self._users[inode] -= 1
                freed += 0 if self._users[inode] else self._bytes[inode]
        self.total -= freed
        return freed


def _place(name: str, paths: Set[str]) -> str:
    """The longest of `paths` that the file `name` is below; empty for none."""
    while name not in paths and name:
        name = name.rpartition("/")[0]
    return name
