"""A comparison of which a script makes no more than to print that it failed: `[ "$out" = "$want" ] || echo wrong`."""

from __future__ import annotations

import re
from typing import Iterator

from orchestrator.agent.evidence.shell.commands import (
    LEAVING,
    QUESTIONS,
    reads_status,
    set_by,
    simple,
    text_of,
    written_by,
)
from orchestrator.agent.evidence.shell.reactions import is_asked
from orchestrator.agent.evidence.shell.scripts import Scripts
from orchestrator.agent.evidence.shell.tree import Block, Chain, Command, Compound, Pipeline, Simple

_COMPARED = re.compile(r"(?<=\s)([=!]?=|=~|[<>]|-(eq|ne|lt|le|gt|ge))(?=\s)")
_COMPARED_NUMBERS = re.compile(r"[=!]=|[<>]")
_COMPARES = ("cmp", "diff")
# What a script says of a comparison that failed, first or last; not of what it only warns of.
_FAILURE = re.compile(
    r"(?i)\W*(error|fail(ed|ure)?|different|wrong|incorrect|not (ok|equal|the same))\b(?! to ).*"
    r"|.*\b(mismatch(es)?|differs?|do(es)? not match|not equal)\b.*|.*\b(failed|fail|wrong|incorrect)\W*"
)
_NO_FAILURE = re.compile(
    r"(?i)\b(warn\w*|note|info|hint|version\w*|skip\w*|expected to|known|no|not fail\w*|using|default\w*)\b"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")


def only_worded(scripts: Scripts, command: Simple) -> str:
    """The comparison of which a script makes no more than to print, by this command, that it failed; blank if none."""
    if not _says_failure(command):
        return ""
    conditions = list(_conditions_of(command))
    files = [] if _says_difference(command) else [c for c in conditions if _compares_files(c)]
    question = next((c for c in conditions if _is_comparison(c) and _is_of_output(scripts, c)), next(iter(files), None))
    if question is None or _jumps_beside(command) or is_asked(scripts, question):
        return ""
    return " ".join(word.text for word in question.words)


def _is_of_output(scripts: Scripts, question: Simple) -> bool:
    """Whether a comparison is of what commands printed: of their statuses, and of numbers that count these, it is told
    where they were lost.
    """
    text = text_of(question)
    if reads_status(text) or "$(" in text or "`" in text:
        return not reads_status(text)
    named = set(_VARIABLE.findall(text) if question.name != "((" else _NAME.findall(text))
    setters = (c for scope in scripts.scopes(question) for c in scope.walk() if isinstance(c, Simple))
    texts = [_text_of_all(c) for c in setters if not named.isdisjoint(set_by(c))]
    return any("$(" in t or "`" in t for t in texts) and not any(map(reads_status, texts))


def _jumps_beside(command: Simple) -> bool:
    """Whether the statements that run with it leave a turn, a function or the script: what they leave out may act."""
    block = next((node for node in command.above() if isinstance(node, Block)), None)
    held = simple([block]) if block is not None and isinstance(block.parent, Compound) else ()
    return any(c.name in ("continue", *LEAVING) for c in held)


def _conditions_of(command: Command) -> Iterator[Simple]:
    """What decides whether a command runs: before it in its list, or in the `if` around that."""
    pipeline = command.parent
    chain = pipeline.parent if isinstance(pipeline, Pipeline) else None
    if not isinstance(chain, Chain):
        return
    before = chain.pipelines[: chain.pipelines.index(pipeline)]  # type: ignore[arg-type]
    yield from simple(before[-1:])
    block = chain.parent
    holder = block.parent if isinstance(block, Block) else None
    if before or not isinstance(holder, Compound):
        return
    if holder.kind == "{":
        yield from _conditions_of(holder)
    elif holder.kind == "if":
        index = next((i for i, body in enumerate(holder.bodies) if body is block), None)
        if index is not None:
            yield from simple(holder.conditions[index : index + 1] or holder.conditions[-1:])


def _is_comparison(command: Simple) -> bool:
    """Whether it compares two things, and not a number of arguments."""
    text = text_of(command)
    is_asked = command.name in QUESTIONS and "$#" not in text
    return is_asked and (_COMPARED_NUMBERS if command.name == "((" else _COMPARED).search(text) is not None


def _compares_files(command: Simple) -> bool:
    """Whether it is a program of which it is as well an answer, and no failure, that two files differ."""
    return command.name in _COMPARES


def _says_failure(command: Simple) -> bool:
    """Whether it prints that something failed, by its words, and to no file."""
    if command.name not in ("echo", "printf") or any(written_by(command)):
        return False
    words = [word.text for word in command.words[1:] if not re.fullmatch("-[neE]+", word.text)]
    said = re.sub(r"['\"]|\\n", "", " ".join(words))
    return _FAILURE.fullmatch(said) is not None and _NO_FAILURE.search(said) is None


def _says_difference(command: Simple) -> bool:
    """Whether what it prints of a failure is no more than that things are not the same."""
    return re.search(r"(?i)\b(error|fail(ed|ure)?|mismatch|wrong|incorrect)\b", command.text) is None


def _text_of_all(command: Simple) -> str:
    """Of a command with what it assigns."""
    return " ".join([*(word.text for _, word in command.assignments), text_of(command)])
