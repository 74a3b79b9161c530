"""What tox, nox and Hatch install before they run tests, as lines of a requirements file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.config.read import ini, lines_of, parsed, text_of

_TESTENV = re.compile(r"testenv(:(unit|tests?|py\d*))?")
_HATCH_ENV = re.compile(r"default|dev|(hatch-)?tests?")
_ONLY_IN_SOME = re.compile(r"[\w!{},.-]+:\s|.*\{")
_TOP = re.compile(r"\{(?:toxinidir|tox_root)\}[/\\]?")
_ASKED_OF_HATCH = {"dependencies": "{}", "extra-dependencies": "{}", "features": ".[{}]", "dependency-groups": ".[{}]"}
_ASKED = {"deps": "{}", "extras": ".[{}]", "dependency_groups": ".[{}]"}
_TAKES_A_VALUE = {"-r": "-r {}", "--requirement": "-r {}", "--group": ".[{}]", "-e": "-e {}", "--editable": "-e {}"}
_OF_THE_INSTALLER = {"-c", "--constraint", "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--python"}


def needs(folder: Path, hatch: Mapping[str, Any]) -> Iterator[str]:
    """By the files in the folder, and Hatch's environments."""
    yield from _tox(text_of(folder / "tox.ini"))
    yield from _nox(text_of(folder / "noxfile.py"))
    yield from _hatch(hatch)


def _hatch(environments: Mapping[str, Any]) -> Iterator[str]:
    for name, given in environments.items():
        if _HATCH_ENV.fullmatch(name) and isinstance(given, dict):
            asked = ((form, given.get(key)) for key, form in _ASKED_OF_HATCH.items())
            yield from (form.format(line) for form, lines in asked if isinstance(lines, list) for line in lines)


def _tox(text: str) -> Iterator[str]:
    """`deps`, extras and groups of its environments for tests; none that only some of them get."""
    read = ini(text)
    for section in filter(_TESTENV.fullmatch, read.sections()):
        for key, form in _ASKED.items():
            lines = [_TOP.sub("", line) for line in lines_of(read[section].get(key, ""))]
            yield from (form.format(line) for line in lines if not _ONLY_IN_SOME.match(line))


def _nox(text: str) -> Iterator[str]:
    """What functions that are named after tests give to `session.install`, in any case and in so many words."""
    functions = (node for node in parsed(text) if isinstance(node, ast.FunctionDef) and "test" in node.name)
    for node in (node.value for function in functions for node in function.body if isinstance(node, ast.Expr)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "install":
            yield from _install([word.value if isinstance(word, ast.Constant) else None for word in node.args])


def _install(words: Iterable[object]) -> Iterator[str]:
    form = "{}"
    for word in words:
        option, _, value = str(word).partition("=")
        if option in _TAKES_A_VALUE and not value:
            form = _TAKES_A_VALUE[option]
            continue
        if option in _OF_THE_INSTALLER:
            form = "" if not value else "{}"
            continue
        if isinstance(word, str) and form:
            yield _TAKES_A_VALUE[option].format(value) if option in _TAKES_A_VALUE else form.format(word)
        form = "{}"
