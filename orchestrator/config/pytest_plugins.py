"""Which plugins a project's configuration of pytest cannot do without: it names them, or gives options of theirs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

_OPTIONS = {
    "pytest-xdist": r"-n.*|--numprocesses|--maxprocesses|--dist|--tx|--maxschedchunk|--max-worker-restart",
    "pytest-cov": r"--(no-)?cov(-.*)?",
    "pytest-benchmark": r"--benchmark-.*",
    "pytest-timeout": r"--timeout(-.*)?|--session-timeout",
    "pytest-rerunfailures": r"--reruns(-delay)?|--only-rerun|--rerun-except",
    "pytest-asyncio": r"--asyncio-.*",
    "pytest-randomly": r"--randomly-.*",
    "pytest-random-order": r"--random-order.*",
    "pytest-repeat": r"--count|--repeat-scope",
    "pytest-forked": r"--forked",
    "pytest-socket": r"--(disable|force-enable|allow)-(socket|hosts|unix-socket)",
    "pytest-django": r"--ds|--reuse-db|--create-db|--(no-)?migrations|--nomigrations",
    "pytest-html": r"--html|--self-contained-html",
    "pytest-instafail": r"--instafail",
    "pytest-mypy": r"--mypy(-.*)?",
    "pytest-ruff": r"--ruff(-.*)?",
    "pytest-mpl": r"--mpl(-.*)?",
    "pytest-doctestplus": r"--doctest-plus(-.*)?|--doctest-rst|--doctest-ufunc",
    "pytest-remotedata": r"--remote-data",
    "pytest-recording": r"--record-mode|--block-network",
    "pytest-codspeed": r"--codspeed(-.*)?",
    "pytest-memray": r"--memray",
    "pytest-beartype": r"--beartype-.*",
    "hypothesis": r"--hypothesis-.*",
    "jaxtyping": r"--jaxtyping-.*",
    "typeguard": r"--typeguard-.*",
    "inline-snapshot": r"--inline-snapshot(-.*)?",
    "syrupy": r"--snapshot-.*",
    "nbval": r"--nbval(-.*)?",
    "xdoctest": r"--xdoc(test)?(-.*)?",
}
# Of each the usual one, and others that provide it too.
_MARKS = {
    "asyncio": ["pytest-asyncio"], "benchmark": ["pytest-benchmark", "pytest-codspeed"],
    "django_db": ["pytest-django"], "flaky": ["pytest-rerunfailures", "flaky"],
    "forked": ["pytest-forked"], "repeat": ["pytest-repeat"], "timeout": ["pytest-timeout"], "trio": ["pytest-trio"],
    "vcr": ["pytest-recording", "pytest-vcr"], "xdist_group": ["pytest-xdist"],
}  # fmt: skip
_FIXTURES = {
    "benchmark": ["pytest-benchmark", "pytest-codspeed"], "httpbin": ["pytest-httpbin"],
    "httpbin_secure": ["pytest-httpbin"], "httpserver": ["pytest-httpserver"], "mocker": ["pytest-mock"],
    "requests_mock": ["requests-mock"], "snapshot": ["syrupy", "snapshottest"],
}  # fmt: skip
_PARAMETERS = r"parametrize\(\s*(?:argnames\s*=\s*)?([\"'][^\"']*|[(\[][^)\]]*)"
_MODULES = {"xdist": "pytest-xdist", "randomly": "pytest-randomly"}
_OF_PYTEST = re.compile(r"no:.*|_pytest\..*|pytester.*|doctest|faulthandler|cacheprovider|junitxml|legacypath")


def needs(configuration: Mapping[str, Any], own: Iterable[str]) -> Iterator[str]:
    """As requirements. Of modules that `-p` names, those of the project's `own` are none."""
    yield from _words(configuration.get("required_plugins"))
    keys = (f"--{key.replace('_', '-')}" for key in configuration)  # called as options are
    yield from (name for key in keys for name in _plugins(key))
    for word, following in pairwise([*_words(configuration.get("addopts")), ""]):
        yield from _plugins(word.partition("=")[0])
        module = following if word == "-p" else word[2:] if re.match(r"-p\w", word) else ""
        top = module.partition(".")[0]
        if re.match(r"[a-zA-Z]", top) and not _OF_PYTEST.fullmatch(module) and top not in own:
            yield _MODULES.get(top, top.replace("_", "-"))


def of_tests(texts: Iterable[str], configuration: Mapping[str, Any], known: Container[str]) -> set[str]:
    """Those whose marks and fixtures the tests use, where nothing `known` nor the repository provides them: a guess."""
    texts = list(texts)
    text = "\n".join(texts)
    registered = "\n".join([str(configuration.get("markers")), *re.findall(r"addinivalue_line\([^)]*\)", text)])
    marks = {name for name in re.findall(r"pytest\.mark\.(\w+)", text) if not re.search(rf"\b{name}\b", registered)}
    arguments = {name for each in texts for name in _arguments(each)}
    fixtures = {name for name in arguments if not re.search(rf"def {name}\(|name=[\"']{name}[\"']", text)}
    using = [_MARKS[name] for name in marks & {*_MARKS}] + [_FIXTURES[name] for name in fixtures & {*_FIXTURES}]
    return {names[0] for names in using if not any(name in known for name in names)}


def _arguments(text: str) -> set[str]:
    """What the tests of one file take, but for what it parametrizes."""
    taken, given = (_words_of(pattern, text) for pattern in (r"def test\w*\(([^)]*)\)", _PARAMETERS))
    return taken - given


def _words_of(pattern: str, text: str) -> set[str]:
    return {name for found in re.findall(pattern, text) for name in re.findall(r"\w+", found)}


def _plugins(option: str) -> Iterator[str]:
    return (name for name, pattern in _OPTIONS.items() if re.fullmatch(pattern, option))


def _words(value: object) -> list[str]:
    """Of a line, or of a list."""
    if not isinstance(value, str):
        return [str(item) for item in value] if isinstance(value, list) else []
    try:
        return shlex.split(value, comments=True)
    except ValueError:  # a quotation mark that is not closed
        return value.split()
