"""The JUnit file that a stage's own command asks for: of several, pytest writes only the last, which is the agent's."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import Iterator, Sequence

import pytest

_OPTIONS = ("--junitxml", "--junit-xml")


def asked_for(config: pytest.Config) -> str:
    """The path of the last one that is not the agent's, absolute; blank if there is none."""
    given = [*config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    own = config.option.xmlpath
    paths = [path for path in _paths([*given, *map(str, config.invocation_params.args)]) if path != own]
    return os.path.abspath(os.path.expanduser(os.path.expandvars(paths[-1]))) if paths else ""


def _paths(args: Sequence[str]) -> Iterator[str]:
    for word, following in zip(args, [*args[1:], ""]):
        option, given, path = word.partition("=")
        if option in _OPTIONS and (path if given else following):
            yield path if given else following


def copy(source: str, target: str) -> None:
    """Put the agent's file there too; as with pytest, a session that ends early has none."""
    if os.path.isfile(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
