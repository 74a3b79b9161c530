"""The command line: parse, call one task, render. No logic."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import get_completion_class
from rich.console import Console, RenderableType
from rich.markup import escape

from orchestrator import __version__
from orchestrator.config.inventory import Inventory, Pod, load_inventory
from orchestrator.errors import InputError, NsaPodError
from orchestrator.plan.limits import run_limit
from orchestrator.pod.lock import Claim
from orchestrator.pod.session import Door
from orchestrator.report import hosts, markdown, terminal
from orchestrator.results import Result
from orchestrator.store.run_directory import find as find_run
from orchestrator.tasks import bootstrap as bootstrap_task
from orchestrator.tasks import doctor as doctor_task
from orchestrator.tasks import environments as envs_task
from orchestrator.tasks import init as init_task
from orchestrator.tasks import resume as resume_task
from orchestrator.tasks import runs as runs_task
from orchestrator.tasks import validate as validate_task
from orchestrator.tasks import wheelhouse as wheelhouse_task
from orchestrator.text import plain
from orchestrator.ui import Progress

_INTERRUPTED = 130
_PIPE_WIDTH = 240
# Of days, minutes or GiB.
_MOST = 1e9
_SHELLS = ("bash", "zsh", "fish")
F = TypeVar("F", bound=Callable[..., Any])


class _Group(click.Group):
    """Commands in the order of a user's day, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class _Amount(click.FloatRange):
    """A range of numbers; "nan", which Python reads as one, is in no range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


_amount = _Amount(min=0, max=_MOST)


class _Text(click.types.StringParamType):
    """Text that says something: an unset variable of a script must not stand for any run, commit or file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value, param, ctx) or self.fail("expected a name, got an empty text", param, ctx)


_text = _Text()


class _Folder(click.Path):
    """A directory; the empty text is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_text.convert(value, param, ctx), param, ctx)


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def _complete_pods(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        pods = load_inventory(ctx.params.get("inventory")).pods
    except InputError:
        return []
    return [name for name in pods if name.startswith(incomplete)]


def _options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def apply(f: F) -> F:
        for decorator in reversed(decorators):
            f = decorator(f)
        return f

    return apply


_folder = _Folder(path_type=Path, file_okay=False)
_inventory = click.option(
    "--inventory", type=_text, metavar="FILE", help="The inventory [default: $NSA_POD_INVENTORY, nearest pods.yaml]."
)
_pod = click.option(
    "--pod", metavar="NAME", required=True, shell_complete=_complete_pods, help="A pod of the inventory."
)
_maybe_pod = click.option("--pod", metavar="NAME", shell_complete=_complete_pods, help="A pod of the inventory.")
_repo = click.option("--repo", type=_folder, default=".", help="The git repository [default: the current directory].")
_artifacts = click.option("--artifacts", type=_folder, help="Where results are kept [default: <repo>/artifacts].")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout and nothing else there.")
_loudness = _options(
    click.option("-q", "--quiet", is_flag=True, help="Only warnings and the result."),
    click.option("-v", "--verbose", is_flag=True, help="More about each step."),
)
_trust = click.option(
    "--accept-new-host-key", is_flag=True, help="Accept the host key that this pod shows now, new or changed."
)
_gpu = click.option("--allow-different-gpu", is_flag=True, help="Go on although the GPU is not the promised one.")
_reaching = _options(_pod, _inventory, _trust, _json, _loudness)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_examples(
        "nsa-pod validate --pod local",
        "nsa-pod validate --pod pi-4090 --commit 4106f1b",
        "nsa-pod fetch --pod pi-4090",
    ),
)
@click.version_option(__version__, prog_name="nsa-pod")
def cli() -> None:
    """Turn a rented GPU pod into a verdict that can be trusted.

    Exit codes: 0 passed, 1 failed, 2 bad input, 3 incomplete, 4 the infrastructure failed.
    """


@cli.command(
    epilog=_examples("nsa-pod validate --pod pi-4090 --commit 4106f1b", "nsa-pod validate --pod local --dry-run")
)
@_reaching
@_repo
@_artifacts
@_gpu
@click.option(
    "--commit", type=_text, default="HEAD", metavar="REV", help="Any revision that git resolves [default: HEAD]."
)
@click.option("--runbook", type=_text, metavar="R", help="A name under runbooks/, or a FILE [default: the pod's].")
@click.option("--max-time", metavar="T", help="End the run after so long, such as 90m, 1h30m or 2700 (seconds).")
@click.option("--max-cost", metavar="AMOUNT", type=float, help="End the run at that cost, by the pod's cost_per_hour.")
@click.option("--wait", is_flag=True, help="Wait for the pod while another run holds it.")
@click.option("--steal", is_flag=True, help="Cancel the run that holds the pod, and take it.")
@click.option("--resume", metavar="[RUN]", is_flag=False, flag_value="", help="Go on with a run whose agent died.")
@click.option("--dry-run", is_flag=True, help="Print the plan as the inventory promises it; contact nothing.")
def validate(**given: Any) -> int:
    """Run a runbook on a pod, on exactly one commit, and judge what really ran."""
    pod, resumed = _the_pod(given), given["resume"]
    claim = Claim(given["wait"], given["steal"])
    limit = run_limit(pod, given["max_time"], given["max_cost"])
    if resumed is not None and (limit or given["dry_run"]):
        raise InputError("--resume goes on with the run's own plan: expected no --max-time, --max-cost or --dry-run")
    asked = validate_task.request(pod, given["repo"], given["commit"], given["runbook"], given["artifacts"], limit)
    with _progress(given) as progress:
        if given["dry_run"]:
            plan = validate_task.preview(asked)
            progress.say(validate_task.expected(plan))
            click.echo(plan.to_json(), nl=False)
            return 0
        door = _door(given, progress)
        if resumed is None:
            result = validate_task.validate(asked, door, progress, claim)
        else:
            result = resume_task.resume(asked, door, progress, claim, resumed)
    return _show(result, given)


@cli.command(epilog=_examples("nsa-pod bootstrap --pod pi-4090", "nsa-pod bootstrap --pod pi-4090 --explain"))
@_reaching
@_repo
@_gpu
@click.option("--runbook", type=_text, metavar="R", help="Whose packages are installed [default: the pod's runbook].")
@click.option("--explain", is_flag=True, help="Say which environment fits, and why others do not; install nothing.")
@click.option("--fresh", is_flag=True, help="Resolve the packages anew instead of keeping the last lock.")
@click.option("--wheelhouse", type=_folder, help="Carry this directory of wheels to the pod and ask no network there.")
@click.option("--offline", is_flag=True, help="Ask no network on the pod: use what lies there, or the --wheelhouse.")
@click.option(
    "--download-wheelhouse", type=_folder, help="Fill this directory here with the wheels for the pod; install nothing."
)
@click.option("--allow-source-build", is_flag=True, help="Compile flash-attn on the pod where it has no wheel.")
@click.option(
    "--build-limit",
    type=_Amount(min=0, min_open=True, max=_MOST),
    default=bootstrap_task.SOURCE_BUILD_S / 60,
    metavar="MINUTES",
    help="End a compilation that takes longer [default: 120].",
)
def bootstrap(**given: Any) -> int:
    """Set up a pod's environment: paired torch, triton and flash-attn, verified and reused."""
    if given["explain"] and given["download_wheelhouse"]:
        raise InputError("expected --explain or --download-wheelhouse, not both")
    spec = validate_task.needs_of(_the_pod(given), given["repo"], given["runbook"])
    options = bootstrap_task.Options(
        fresh=given["fresh"],
        wheelhouse=given["wheelhouse"],
        offline=given["offline"],
        source_build=given["allow_source_build"],
        source_build_s=given["build_limit"] * 60,
    )
    with _progress(given) as progress:
        door = _door(given, progress)
        if given["explain"]:
            told = envs_task.reasons(door, spec, options)
        elif given["download_wheelhouse"]:
            told = wheelhouse_task.download(door, spec, given["download_wheelhouse"], progress)
        else:
            told = envs_task.set_up(door, spec, progress, options)
    _print(told, given, terminal.facts)
    return 0


@cli.command(epilog=_examples("nsa-pod fetch --pod pi-4090", "nsa-pod fetch --pod pi-4090 --commit 4106f1b --no-wait"))
@_reaching
@_repo
@_artifacts
@click.option("--commit", type=_text, metavar="REV", help="Only a run of this commit.")
@click.option("--no-wait", is_flag=True, help="Bring what is there now; do not wait for the run's end.")
@click.argument("run", type=_text, required=False)
def fetch(**given: Any) -> int:
    """Bring a run home and judge it: RUN, or the newest on the pod whose commit is in the repository."""
    return _follow(given, wait=not given["no_wait"])


@cli.command(epilog=_examples("nsa-pod follow --pod pi-4090 20261121-101500-4106f1b-0a1b2c3d"))
@_reaching
@_repo
@_artifacts
@click.option("--commit", type=_text, metavar="REV", help="Only a run of this commit.")
@click.argument("run", type=_text, required=False)
def follow(**given: Any) -> int:
    """Follow a run that is going on, to its end."""
    return _follow(given, wait=True)


@cli.command(epilog=_examples("nsa-pod cancel --pod pi-4090"))
@_reaching
@click.argument("run", type=_text, required=False)
def cancel(**given: Any) -> int:
    """Stop a run; what has run until then is kept. Without RUN: the one that holds the pod."""

    with _progress(given) as progress:
        stopped = runs_task.cancel(_door(given, progress), given["run"])
    _print({"cancelled": stopped}, given, terminal.facts)
    return 0


@cli.command(epilog=_examples("nsa-pod doctor --pod pi-4090"))
@_reaching
def doctor(**given: Any) -> int:
    """Find out whether a pod can be used, and what to do if not. Exit code 4 if it cannot."""

    with _progress(given) as progress:
        checks = doctor_task.doctor(_door(given, progress))
    _print([check.as_dict() for check in checks], given, terminal.checks)
    return 4 if any(check.level == "fail" for check in checks) else 0


@cli.command(epilog=_examples("nsa-pod pods"))
@_inventory
@_json
def pods(**given: Any) -> int:
    """List the inventory."""
    listed = [pod.model_dump(exclude_none=True, exclude={"env"}) for pod in _the_inventory(given).pods.values()]
    _print(listed, given, terminal.pods)
    return 0


@cli.command(epilog=_examples("nsa-pod runs", "nsa-pod runs --pod pi-4090"))
@_maybe_pod
@_inventory
@_trust
@_json
@_loudness
@_repo
@_artifacts
def runs(**given: Any) -> int:
    """List the runs kept here, or with --pod those on the pod."""

    with _progress(given) as progress:
        listed = (
            runs_task.on_pod(_door(given, progress))
            if given["pod"]
            else runs_task.kept_here(_kept_in(given), given["repo"])
        )
    _print(listed, given, terminal.runs)
    return 0


@cli.command(epilog=_examples("nsa-pod report", "nsa-pod report 20261121-101500"))
@_repo
@_artifacts
@_json
@_inventory
@click.option("--markdown", is_flag=True, help="Print report.md instead of the table.")
@click.option("--redact-hosts", is_flag=True, help="Leave out hosts, addresses, users, ports, homes: to be shared.")
@click.argument("run", type=_text, required=False)
def report(**given: Any) -> int:
    """Judge a run again from its evidence: RUN (a run id or a directory), or the latest."""
    if given["markdown"] and given["as_json"]:
        raise InputError("expected --markdown or --json, not both")
    found = find_run(_kept_in(given), given["repo"], given["run"])
    hidden = hosts.Hosts(active=False)
    if given["redact_hosts"]:
        hidden = hosts.known_to(found.path, _the_inventory(given).pods.values())
    result = hidden.result(found.rejudge())
    if given["markdown"]:
        click.echo(hidden.text(markdown.render(result, found.plan(), found.path)), nl=False)
        return result.exit_code
    return _show(result, given)


@cli.command(epilog=_examples("nsa-pod envs --pod pi-4090"))
@_reaching
def envs(**given: Any) -> int:
    """List the environments on a pod, the last used first."""
    with _progress(given) as progress:
        listed = envs_task.on_pod(_door(given, progress))
    _print(listed, given, terminal.environments)
    return 0


@cli.command(epilog=_examples("nsa-pod prune --pod pi-4090 --days 14", "nsa-pod prune --pod pi-4090 --keep 20"))
@_reaching
@click.option("--days", type=_amount, help="Remove environments that were not used for so long.")
@click.option("--keep", type=_amount, metavar="GIB", help="Then the longest unused until the rest fits.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed; remove nothing.")
def prune(**given: Any) -> int:
    """Remove environments from a pod, never one that is in use."""
    if given["days"] is None and given["keep"] is None:
        raise InputError("prune: expected --days or --keep, or both")
    keep_bytes = None if given["keep"] is None else round(given["keep"] * 2**30)
    with _progress(given) as progress:
        door = _door(given, progress)
        pruned = envs_task.prune(door, days=given["days"], keep_bytes=keep_bytes, dry_run=given["dry_run"])
    _print(pruned, given, terminal.facts)
    return 0


@cli.command(epilog=_examples("nsa-pod init"))
@click.argument("folder", type=_folder, default=".")
def init(folder: Path) -> int:
    """Write an example pods.yaml and the packaged runbooks into FOLDER; nothing that exists is touched."""

    for path in init_task.init(folder):
        click.echo(path)
    return 0


@cli.command(epilog=_examples('eval "$(nsa-pod completion bash)"'))
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> int:
    """Print the shell's completion script."""
    complete = get_completion_class(shell)
    assert complete is not None  # click knows the shells that the argument allows
    click.echo(complete(cli, {}, "nsa-pod", "_NSA_POD_COMPLETE").source())
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: each failure is one sentence on stderr, and with --json an object on stdout."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        code = cli.main(given, prog_name="nsa-pod", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        code = e.exit_code
    except click.ClickException as e:
        code = _fail(e.format_message(), e.exit_code, as_json)
    except NsaPodError as e:
        code = _fail(str(e), e.exit_code, as_json)
    except OSError as e:  # this machine's disk, where nothing more can be said of it
        code = _fail(f"{e.filename or 'this machine'}: {e.strerror or e}", NsaPodError.exit_code, as_json)
    except BaseException as e:
        if not _is_interrupt(e):
            raise
        sys.unraisablehook = lambda _: None  # what the interrupt left half done complains when it is collected
        code = _fail("interrupted", _INTERRUPTED, as_json)
    sys.exit(code or 0)


def _is_interrupt(e: BaseException | None) -> bool:
    """Whether it came of an interrupt: one in the middle of a `with` can come out as what its end made of it."""
    return e is not None and (isinstance(e, (KeyboardInterrupt, click.Abort)) or _is_interrupt(e.__context__))


def _fail(sentence: str, code: int, as_json: bool) -> int:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]error:[/] {escape(plain(sentence, 2000))}")
    if as_json:
        click.echo(json.dumps({"verdict": "error", "error": sentence}))
    return code


def _follow(given: dict[str, Any], *, wait: bool) -> int:

    here = given["artifacts"] is not None
    choice = runs_task.Choice(given["repo"], given["commit"], given["run"], _kept_in(given), here)
    with _progress(given) as progress:
        result = runs_task.follow(_door(given, progress), choice, progress, wait=wait)
    return _show(result, given)


def _the_inventory(given: dict[str, Any]) -> Inventory:
    return load_inventory(given["inventory"])


def _the_pod(given: dict[str, Any]) -> Pod:
    return _the_inventory(given).pod(given["pod"])


def _door(given: dict[str, Any], progress: Progress) -> Door:
    return Door(
        _the_pod(given),
        progress,
        accept_new_host_key=given["accept_new_host_key"],
        allow_different_gpu=given.get("allow_different_gpu", False),
        ask=partial(click.confirm, err=True) if sys.stdin.isatty() else None,
    )


def _kept_in(given: dict[str, Any]) -> Path:
    artifacts: Path | None = given["artifacts"]
    return artifacts or given["repo"] / "artifacts"


def _progress(given: dict[str, Any]) -> Progress:
    return Progress(verbosity=-1 if given["quiet"] else int(given["verbose"]))


def _show(result: Result, given: dict[str, Any]) -> int:
    if given["as_json"]:
        click.echo(result.to_json(), nl=False)
    else:
        terminal.show(result, _stdout())
    return result.exit_code


def _print(value: Any, given: dict[str, Any], render: Callable[[Any], RenderableType]) -> None:
    if given["as_json"]:
        click.echo(json.dumps(value, indent=1))
    else:
        _stdout().print(render(value))


def _stdout() -> Console:
    """Wide where nobody looks: a file or a pipe has no width to wrap at."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
