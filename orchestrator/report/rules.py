"""The tables of docs/verdict.md, from the rules themselves: `python -m orchestrator.report.rules docs/verdict.md`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator.verdict.rules import RULES
from orchestrator.verdict.status import OUTCOMES, making

_BLOCK = re.compile(r"(<!-- (\w+): written by [^>]* -->\n).*?(<!-- end -->)", re.DOTALL)


def statuses() -> str:
    """What a stage may be called: the first row that matches."""
    rows = [f"| {n} | `{rule.status}` | {rule.when} |" for n, rule in enumerate(RULES, start=1)]
    return "\n".join(["| | status | when |", "|---|---|---|", *rows]) + "\n"


def verdicts() -> str:
    """What a run may be called: the first row that matches."""
    listed = {verdict: " or ".join(f"`{status}`" for status in making(verdict)) for verdict in OUTCOMES}
    rows = [f"| `{v}` | {o.exit_code} | {o.when.format(**listed)} |" for v, o in OUTCOMES.items()]
    return "\n".join(["| verdict | exit code | when |", "|---|---|---|", *rows]) + "\n"


def filled(text: str) -> str:
    """A document with its tables written anew."""
    tables = {"statuses": statuses, "verdicts": verdicts}
    return _BLOCK.sub(lambda found: f"{found[1]}{tables[found[2]]()}{found[3]}", text)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(paths: Sequence[Path]) -> None:
    """Write the tables of the documents PATHS anew."""
    for path in paths:
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    main()
