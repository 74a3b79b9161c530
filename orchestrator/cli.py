"""The command line: call one verb, say in a sentence what failed."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from orchestrator import __version__, interrupts
from orchestrator.commands import Verbs, examples
from orchestrator.errors import InputError, NsaPodError
from orchestrator.text import plain

_PIPE_CLOSED = 141


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
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
    try:
        os.getcwd()
    except FileNotFoundError as e:
        raise InputError("the current directory is not there any more: change to one that is") from e


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: each failure is one sentence on stderr, and with --json an object on stdout."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    as_json = "--json" in own
    _open_streams()
    try:
        code = cli.main(given, prog_name="nsa-pod", standalone_mode=False)
    except BaseException as e:
        code = _ended_by(e, as_json)
    sys.exit(code or 0)


def _ended_by(e: BaseException, as_json: bool) -> int:
    """Say what has ended a verb; its exit code. Python, click and rich have only 1, which says that a stage failed."""
    if isinstance(e, click.exceptions.NoArgsIsHelpError):
        click.echo(e.format_message(), err=True)
        return e.exit_code
    if isinstance(e, click.ClickException):
        return _fail([e.format_message() + _meant(e)], e.exit_code, as_json)
    if isinstance(e, NsaPodError):
        return _fail(e.sentences, e.exit_code, as_json)
    if isinstance(e, SystemExit) and _origin(e, BrokenPipeError):  # whoever read has seen enough
        return _fail([], _PIPE_CLOSED, as_json=False)
    if interrupt := _origin(e, KeyboardInterrupt) or _origin(e, click.Abort):
        sys.unraisablehook = lambda _: None  # what the interrupt left half done complains when it is collected
        return _fail(["interrupted"], interrupts.exit_code(interrupt), as_json)
    if isinstance(e, OSError):  # this machine's disk, where nothing more can be said of it
        return _fail([f"{e.filename or 'this machine'}: {e.strerror or e}"], NsaPodError.exit_code, as_json)
    if isinstance(e, Exception):
        with _while_it_takes(sys.stderr):
            traceback.print_exception(e)
        return _fail([f"a mistake of nsa-pod itself: {type(e).__name__}: {e}"], NsaPodError.exit_code, as_json)
    raise e


def _open_streams() -> None:
    """A standard stream that is closed (`nsa-pod ... <&-`) leads nowhere: no file of later may be taken for it."""
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


@contextmanager
def _while_it_takes(stream: TextIO) -> Iterator[None]:
    """Write to a stream whose disk may be full, or whose reader gone. What it still holds is dropped then: Python would
    write that at its end, fail, and make an exit code of its own of it.
    """
    try:
        yield
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _origin(e: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """What of this kind it came of: one in the middle of a `with` can come out as what its end made of it."""
    return e if e is None or isinstance(e, kind) else _origin(e.__context__, kind)


def _meant(e: click.ClickException) -> str:
    """What to write instead of a pod's name alone, where a verb takes it as an option."""
    found = re.search(r"unexpected extra argument \((\S+)\)", e.format_message())
    command = e.ctx.command if isinstance(e, click.UsageError) and e.ctx else None
    takes_pod = command is not None and any("--pod" in parameter.opts for parameter in command.params)
    return f": did you mean --pod {found[1]}?" if found and takes_pod else ""


def _fail(sentences: Sequence[str], code: int, as_json: bool) -> int:
    from rich.console import Console  # as many modules as all else here, for what rarely happens
    from rich.markup import escape

    with _while_it_takes(sys.stderr):
        console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
        for sentence in sentences:
            console.print(f"[red]error:[/] {escape(plain(sentence, 2000))}")
    with _while_it_takes(sys.stdout):
        if as_json:
            each = {"errors": list(sentences)} if len(sentences) > 1 else {}
            click.echo(json.dumps({"verdict": "error", "error": "; ".join(sentences), **each}))
    return code


if __name__ == "__main__":  # that nothing was done must not look like a success
    main()
