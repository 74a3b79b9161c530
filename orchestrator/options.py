"""What each verb of the command line takes: the options as click reads them, and as the verb gets them."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator import completion
from orchestrator.config.inventory import Inventory, Pod, load_inventory
from orchestrator.errors import InputError
from orchestrator.files import require_room
from orchestrator.git.repository import top_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Of minutes.
MOST = 1e9


@dataclass(frozen=True, kw_only=True)
class Output:
    """How a verb speaks: with `as_json`, JSON on stdout and nothing else there."""

    as_json: bool
    quiet: bool
    verbose: bool

    @property
    def verbosity(self) -> int:
        return -1 if self.quiet else int(self.verbose)


@dataclass(frozen=True, kw_only=True)
class Inventoried:
    """Of verbs that read an inventory."""

    inventory: str | None

    @cached_property
    def the_inventory(self) -> Inventory:
        """Read once: what was trusted is what is used."""
        return load_inventory(self.inventory)


@dataclass(frozen=True, kw_only=True)
class Reaching(Output, Inventoried):
    """Of verbs that reach a pod."""

    pod: str | None
    accept_new_host_key: bool
    allow_different_gpu: bool = False

    @property
    def the_pod(self) -> Pod:
        """The one that was named, else the default."""
        return self.the_inventory.chosen(self.pod)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Where the repository and its results are; `repo` may be any folder of it."""

    repo: Path
    artifacts: Path | None

    @cached_property
    def top(self) -> Path:
        return top_of(self.repo)

    @property
    def kept_in(self) -> Path:
        return self.artifacts or self.top / "artifacts"


@dataclass(frozen=True, kw_only=True)
class Ssh(Reaching):
    """`named` is the pod as an argument."""

    named: str | None
    command: tuple[str, ...]

    @property
    def the_pod(self) -> Pod:
        return self.the_inventory.chosen(_one_of(self.named, self.pod))


def takes(kind: Callable[..., T]) -> Callable[[Callable[[T], int]], Callable[..., int]]:
    """Hand a verb its options as one object of this kind."""

    def decorate(verb: Callable[[T], int]) -> Callable[..., int]:
        @wraps(verb)
        def with_options(**given: Any) -> int:
            return verb(kind(**given))

        return with_options

    return decorate


class Amount(click.FloatRange):
    """A range of numbers; "nan", which Python reads as one, is in no range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Text(click.types.StringParamType):
    """Text that says something: an unset variable of a script must not stand for any run, commit or file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if isinstance(text, str) and not text.strip():
            self.fail("expected a name, got a blank text" if text else "expected a name, got an empty text", param, ctx)
        return text


class Words(click.types.StringParamType):
    """A command line as its words, as a shell would take them apart; no shell sees them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            words = tuple(shlex.split(value)) if isinstance(value, str) else value
        except ValueError as e:
            self.fail(f"{value!r}: {e}", param, ctx)
        return words or self.fail("expected a command, got an empty text", param, ctx)


class Folder(click.Path):
    """A directory, or a file; the empty text is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(TEXT.convert(value, param, ctx), param, ctx)


class New(Folder):
    """A file to be written, or a directory to be filled: that it can be is tried before the work for it is done."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Path = super().convert(value, param, ctx)
        if not os.path.exists(path) or path.is_file():  # no device, and no pipe
            require_room(*((path.parent, f"the file {path.name}") if self.file_okay else (path, "files")))
        return path.resolve() if path.is_symlink() and path.is_file() else path


TEXT = Text()
FOLDER = Folder(path_type=Path, file_okay=False)
FILE = Folder(path_type=Path, dir_okay=False)
NEW_FILE = New(path_type=Path, dir_okay=False)
NEW_FOLDER = New(path_type=Path, file_okay=False)


def one_pod(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The one pod that was named, None for none. Two are refused: the first would be left out in silence."""
    if len(given) > 1:
        raise click.BadParameter(f"expected one pod, got {', '.join(given)}: run the command for each", ctx, param)
    return given[0] if given else None


def _one_of(named: str | None, option: str | None) -> str | None:
    if named and option:
        raise InputError(f"expected one pod, got {named} and --pod {option}")
    return named or option


class WithCommand(click.Command):
    """A verb that takes, after `--`, the words of a command as they are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["command"] = tuple(args[at + 1 :])
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def together(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator."""

    def apply(f: F) -> F:
        for decorator in reversed(decorators):
            f = decorator(f)
        return f

    return apply


def pod_option(help: str) -> Callable[[F], F]:
    return click.option(
        "--pod", type=TEXT, metavar="NAME", multiple=True, callback=one_pod, shell_complete=completion.pods, help=help
    )


inventory = click.option(
    "--inventory", type=TEXT, metavar="FILE", help="The inventory [default: $NSA_POD_INVENTORY, nearest pods.yaml]."
)
pod = pod_option("A pod of the inventory [default: $NSA_POD_DEFAULT, the inventory's `default`].")
any_pod = pod_option("As for this pod [default: as for any].")
named_pod = click.argument("named", metavar="[POD]", type=TEXT, required=False, shell_complete=completion.pods)
run = click.argument("run", type=TEXT, required=False, shell_complete=completion.runs)
commit = click.option(
    "--commit",
    type=TEXT,
    default="HEAD",
    metavar="REV",
    shell_complete=completion.commits,
    help="Any revision that git resolves [default: HEAD].",
)
of_commit = click.option(
    "--commit", type=TEXT, metavar="REV", shell_complete=completion.commits, help="Only a run of this commit."
)
runbook = click.option(
    "--runbook",
    type=TEXT,
    metavar="R",
    shell_complete=completion.runbooks,
    help="A name under runbooks/, or a FILE [default: the pod's].",
)
repo = click.option("--repo", type=FOLDER, default=".", help="The git repository [default: the current directory].")
artifacts = click.option("--artifacts", type=FOLDER, help="Where results are kept [default: <repo>/artifacts].")
json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout and nothing else there.")
loudness = together(
    click.option("-q", "--quiet", is_flag=True, help="Only warnings and the result."),
    click.option("-v", "--verbose", is_flag=True, help="More about each step."),
)
trust = click.option(
    "--accept-new-host-key", is_flag=True, help="Accept the host key that this pod shows now, new or changed."
)
gpu = click.option("--allow-different-gpu", is_flag=True, help="Go on although the GPU is not the promised one.")
notify = click.option(
    "--notify",
    type=Words(),
    multiple=True,
    metavar="COMMAND",
    help="When it is over, run COMMAND with the verdict line as its last argument; `bell` rings the terminal's.",
)
limits = together(
    click.option("--max-time", metavar="T", help="End the run after so long, such as 90m, 1h30m or 2700 (seconds)."),
    click.option(
        "--max-cost", metavar="AMOUNT", type=float, help="End the run at that cost, by the pod's cost_per_hour."
    ),
)
claims = together(
    click.option("--wait", is_flag=True, help="Wait for the pod while another run holds it."),
    click.option("--steal", is_flag=True, help="Cancel the run that holds the pod, and take it."),
)
reaching = together(pod, inventory, trust, json, loudness)
page = click.option("--page", type=NEW_FILE, metavar="FILE", help="Write what was found there too, as a page (HTML).")
timed = click.option(
    "--stage",
    type=TEXT,
    metavar="S",
    multiple=True,
    help="The stage to time; may repeat [default: all that have figures].",
)
blocks = click.option(
    "--blocks",
    type=click.IntRange(6, 99),
    default=20,
    metavar="N",
    help="In each block both commits and the control run once [default: 20].",
)
harness = click.option(
    "--harness",
    type=click.Choice(["a", "b", "own"]),
    default="a",
    help="Whose bench files measure both, or each its own [default: a].",
)
