"""What the shell completes: each kind of name as click asks for it; what cannot be read completes nothing."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from orchestrator.errors import NsaPodError

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(kind: str) -> Completer:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from orchestrator import candidates  # most commands complete nothing, and need little of what it takes

        try:
            found = list(getattr(candidates, kind)(ctx))
        except (NsaPodError, OSError):
            return []
        return [CompletionItem(name, help=help) for name, help in found if name.startswith(incomplete)]

    return complete


pods = _completer("pods")
runbooks = _completer("runbooks")
runs = _completer("runs")
stages = _completer("stages")
commits = _completer("commits")
