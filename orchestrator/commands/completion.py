"""Print a shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from orchestrator.commands import examples

_SHELLS = ("bash", "zsh", "fish")


@click.command(epilog=examples('eval "$(nsa-pod completion bash)"'))
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the shell's completion script."""
    complete = get_completion_class(shell)
    assert complete is not None  # click knows the shells that the argument allows
    click.echo(complete(ctx.find_root().command, {}, "nsa-pod", "_NSA_POD_COMPLETE").source())
    return 0
