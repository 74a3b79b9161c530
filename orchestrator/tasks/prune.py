"""Remove from a pod what nobody uses: runs, and the trees, environments and caches that only they needed."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import InputError
from orchestrator.pod.client import Agent
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import Pruned

_LIMIT_S = 3600.0


@dataclass(frozen=True)
class Wish:
    """What stays: the `keep` newest runs, and what was used in the last `older_than` seconds; None where that does not
    count. With neither, what fits under the pod's `max_disk`.
    """

    keep: int | None = None
    older_than: float | None = None


def prune(session: PodSession, wish: Wish, *, dry_run: bool = False) -> Pruned:
    """Remove the rest; with `dry_run`, only say what that would be. What is in use or waited for is never removed."""
    arguments = _arguments(session, wish)
    with session.open() as agent:
        return ask(agent, *arguments, *(["--dry-run"] if dry_run else []))


def ask(agent: Agent, *arguments: str) -> Pruned:
    """The agent's `prune`, of its whole workdir."""
    return agent.call(Pruned, "prune", agent.workdir, *arguments, timeout=_LIMIT_S)


def _arguments(session: PodSession, wish: Wish) -> list[str]:
    limit = session.pod.max_disk
    if wish == Wish():
        if limit is None:
            raise InputError(
                f"prune: expected --keep or --older-than, or both; pod {session.pod.name!r} has no max_disk to go by"
            )
        return ["--limit", str(limit)]
    asked = {"--keep": wish.keep, "--older-than": wish.older_than}
    return [text for option, value in asked.items() if value is not None for text in (option, str(value))]
