"""Which items go: by how many runs are kept, by age, or until the rest fits under a limit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, List, Optional, Sequence, Set

from orchestrator.agent.tidy.survey import Item

# In this order under a limit, each kind the longest unused first: what can be had again, evidence, what is dear.
_LAST = {"leftover": 0, "Python": 2, "run": 3, "wheel": 4}
_STAND = ("environment", "layer")
_OF_RUNS = ("tree", "environment", "layer", "cache", "Python")
_ALWAYS = ("leftover", "old agent")
_NOT_BY_ITSELF = ("agent", "download")


@dataclass(frozen=True)
class Wish:
    """The `keep` newest runs stay, and what was used after `since`; None: that does not count.

    Beside both, whatever is in use stays.
    """

    keep: Optional[int] = None
    since: Optional[float] = None


def by_wish(items: Sequence[Item], wish: Wish) -> List[Item]:
    """Runs that are neither among the newest nor recent, and what only they need; without runs that go, git's objects
    stay too. Wheels go by age alone.
    """
    idle = sorted((i for i in items if i.kind == "run" and not i.in_use), key=lambda run: run.used, reverse=True)
    gone = [run for run in idle[wish.keep or 0 :] if _is_older(run, wish)]
    kept = [i for i in items if i.in_use or (i.kind == "run" and i not in gone)]
    needed = _needed(items, kept)
    aged = {*_OF_RUNS, *(["git store"] if gone else []), *([] if wish.since is None else ["wheel"])}
    free = [i for i in items if not i.in_use and needed.isdisjoint(i.paths)]
    doomed = gone + [i for i in free if i.kind in _ALWAYS or (i.kind in aged and _is_older(i, wish))]
    stay = _needed(items, [i for i in items if i.kind in _STAND and i not in doomed])
    return [item for item in doomed if stay.isdisjoint(item.paths)]


def by_limit(items: Sequence[Item], total: int, limit: int, free: Callable[[Item], int]) -> List[Item]:
    """The longest unused until what stays takes no more than `limit`; `free` tells what the next one gives back."""
    needed = _needed(items, [i for i in items if i.in_use])
    idle = (i for i in items if not i.in_use and i.kind not in _NOT_BY_ITSELF and needed.isdisjoint(i.paths))
    doomed: List[Item] = []
    for item in sorted(idle, key=lambda i: (_LAST.get(i.kind, 1), i.used)):
        if total <= limit:
            break
        stand = [i for i in items if i.kind in _STAND and i not in doomed]
        if item.kind == "Python" and not _needed(items, stand).isdisjoint(item.paths):
            continue
        doomed.append(item)
        total -= free(item)
    return doomed


def _is_older(item: Item, wish: Wish) -> bool:
    return wish.since is None or item.used < wish.since


def _needed(items: Iterable[Item], by: Iterable[Item]) -> Set[str]:
    """The paths that the items `by` need, and what those need."""
    needs = {path: item.needs for item in items for path in item.paths}
    found: Set[str] = set()
    todo = [path for item in by for path in item.needs]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += needs.get(path, ())
    return found
