"""The command line: call one verb, say in a sentence what failed."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence

import click

from orchestrator import __version__
from orchestrator.commands import Verbs, examples
from orchestrator.errors import NsaPodError
from orchestrator.text import plain

_INTERRUPTED = 130
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: each failure is one sentence on stderr, and with --json an object on stdout."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    as_json = "--json" in own
    try:
        code = cli.main(given, prog_name="nsa-pod", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        code = e.exit_code
    except click.ClickException as e:
        code = _fail([e.format_message() + _meant(e)], e.exit_code, as_json)
    except NsaPodError as e:
        code = _fail(e.sentences, e.exit_code, as_json)
    except BrokenPipeError:  # whoever read stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _PIPE_CLOSED
    except OSError as e:  # this machine's disk, where nothing more can be said of it
        code = _fail([f"{e.filename or 'this machine'}: {e.strerror or e}"], NsaPodError.exit_code, as_json)
    except BaseException as e:
        if not _is_interrupt(e):
            raise
        sys.unraisablehook = lambda _: None  # what the interrupt left half done complains when it is collected
        code = _fail(["interrupted"], _INTERRUPTED, as_json)
    sys.exit(code or 0)


def _is_interrupt(e: BaseException | None) -> bool:
    """Whether it came of an interrupt: one in the middle of a `with` can come out as what its end made of it."""
    return e is not None and (isinstance(e, (KeyboardInterrupt, click.Abort)) or _is_interrupt(e.__context__))


def _meant(e: click.ClickException) -> str:
    """What to write instead of a pod's name alone, where a verb takes it as an option."""
    found = re.search(r"unexpected extra argument \((\S+)\)", e.format_message())
    command = e.ctx.command if isinstance(e, click.UsageError) and e.ctx else None
    takes_pod = command is not None and any("--pod" in parameter.opts for parameter in command.params)
    return f": did you mean --pod {found[1]}?" if found and takes_pod else ""


def _fail(sentences: Sequence[str], code: int, as_json: bool) -> int:
    from rich.console import Console  # as many modules as all else here, for what rarely happens
    from rich.markup import escape

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for sentence in sentences:
        console.print(f"[red]error:[/] {escape(plain(sentence, 2000))}")
    if as_json:
        each = {"errors": list(sentences)} if len(sentences) > 1 else {}
        click.echo(json.dumps({"verdict": "error", "error": "; ".join(sentences), **each}))
    return code


if __name__ == "__main__":  # that nothing was done must not look like a success
    main()
