"""The verbs of the command line: one module for each, or for those that share their work, loaded when it is called.

Most of a quick command's time would be spent on importing the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from orchestrator.text import nearest


class Verb(NamedTuple):
    """Where a verb is, in this package, and the first sentence of its help."""

    module: str
    name: str
    help: str


# In the order of a user's day.
VERBS = {
    "validate": Verb(
        "validate", "validate", "Run a runbook on a pod, on exactly one commit, and judge what really ran."
    ),
    "check": Verb("check", "check", "Say all that is wrong with pods.yaml and RUNBOOK."),
    "bootstrap": Verb("bootstrap", "bootstrap", "Set up a pod's environment."),
    "fetch": Verb("follow", "fetch", "Bring a run home and judge it."),
    "follow": Verb("follow", "follow", "Follow a run that is going on, to its end."),
    "cancel": Verb("cancel", "cancel", "Stop a run; what has run until then is kept."),
    "doctor": Verb("doctor", "doctor", "Find out whether a pod can be used, and what to do if not."),
    "pods": Verb("inventory", "pods", "List the inventory."),
    "trust": Verb("inventory", "trust", "Answer for a pods.yaml that was found in a directory."),
    "runs": Verb("runs", "runs", "List the runs kept here, or with --pod those on the pod too."),
    "logs": Verb("logs", "logs", "Print what a stage wrote, or has until now."),
    "ssh": Verb("ssh", "ssh", "Log in to a pod by your own ssh."),
    "run": Verb("run", "run", "Run one command on a pod, without a verdict."),
    "compare": Verb("compare", "compare", "Say which of the commits A and B is faster, and how sure."),
    "bisect": Verb("bisect", "bisect", "Find the commit after GOOD, up to BAD, that made a stage fail, or slower."),
    "report": Verb("report", "report", "Judge a run again from its evidence."),
    "history": Verb("history", "history", "Show what the runs kept here measured, over their commits."),
    "pack": Verb("pack", "pack", "Put a run with all of its evidence into one file."),
    "open": Verb("pack", "open_", "Check a packed run file by file, keep it with the others, and judge it again."),
    "envs": Verb("envs", "envs", "List the environments on a pod, the last used first."),
    "prune": Verb("prune", "prune", "Remove runs, trees, environments, caches and leftovers from a pod."),
    "init": Verb("init", "init", "Look at the repository in FOLDER and write a pods.yaml and a runbook that fit."),
    "completion": Verb("completion", "completion", "Print the shell's completion script."),
}


class Verbs(click.Group):
    """VERBS as click's commands: each is loaded where it is called or asked for its options, and its help names all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in VERBS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}{nearest(name, VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would end with 1 here, which says that a stage failed
            raise SystemExit from None  # the command line finds what it came of

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(name, help=verb.help) for name, verb in VERBS.items() if name.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)


def load(name: str) -> click.Command:
    """The verb of this name."""
    verb = VERBS[name]
    command: click.Command = getattr(import_module(f"{__name__}.{verb.module}"), verb.name)
    return command


def examples(*lines: str) -> str:
    """The end of a verb's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
