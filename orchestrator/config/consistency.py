"""What only the whole of a stage or runbook tells, of the text as it was read: its parts may be wrong as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ModelWrapValidatorHandler, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from orchestrator.config import shell_lines
from orchestrator.config.commands import is_shell, pytest_arguments
from orchestrator.shared.pythons import is_python
from orchestrator.shared.schema import MISSING, Error, Location
from orchestrator.text import nearest
from orchestrator.verdict.artifacts.asked import normal

M = TypeVar("M")
_SAID = "said"


def all_at_once(data: object, handler: ModelWrapValidatorHandler[M], also: Iterator[Error]) -> M:
    """The model of `data`; ValidationError says what is wrong with its fields, and `also` with the whole."""
    found: list[InitErrorDetails] = []
    made: M | None = None
    try:
        made = handler(data)
    except ValidationError as e:
        found = [_again(details) for details in e.errors(include_url=False)]
    found += [as_pydantic(error, data) for error in also]
    if found or made is None:
        raise ValidationError.from_exception_data("input", found)
    return made


def _at(data: object, location: Location) -> object:
    """The part of the data that stands there; an empty mapping for one that does not."""
    for part in location:
        try:
            data = data[part]  # type: ignore[index]
        except (LookupError, TypeError):
            return {}
    return data


def as_pydantic(error: Error, data: object) -> InitErrorDetails:
    """What is wrong with a part of the data, which is shown with it."""
    return InitErrorDetails(type=_kind(error), loc=error.at, input=_at(data, error.at))


def _kind(error: Error) -> PydanticCustomError:
    """With pydantic's own names for what its errors also say: keys that are missing, or not known."""
    if error.known:
        said = f"{error.sentence}{nearest(str(error.at[-1]), error.known)}"
        return PydanticCustomError("unknown_key", "{said}", {_SAID: said})
    kind = "missing" if error.sentence == MISSING else "expectation"
    return PydanticCustomError(kind, "{said}", {_SAID: error.sentence})


def _again(details: Any) -> InitErrorDetails:
    context = details.get("ctx", {})
    kind = details["type"]
    if _SAID in context:
        kind = PydanticCustomError(kind, "{said}", context)
    return InitErrorDetails(type=kind, loc=details["loc"], input=details["input"], ctx=context)


def of_stage(stage: object) -> Iterator[Error]:
    """A command, and evidence that fits it."""
    if not isinstance(stage, Mapping):
        return
    run, shell = stage.get("run"), stage.get("shell")
    if (run is None) == (shell is None):
        yield Error((), "expected either 'run' (a command and its arguments) or 'shell' (lines for bash)")
    expect = _mapping(stage.get("expect"))
    argv = shell_lines.argv(shell) if isinstance(shell, str) else _texts(run)
    if not argv or pytest_arguments(argv) is None:
        if expect.get("routes"):
            yield Error(("expect", "routes"), "expected only of a stage that runs pytest")
        if shell is None and argv[:1] > [""] and "tests" in expect and not _may_run_tests(argv):
            what = "expected only of a stage that runs pytest, a program or a script; lines go under 'shell'"
            yield Error(("expect", "tests"), what)
        for key in ("kills", "mutants"):
            if expect.get(key):
                yield Error(("expect", key), "expected only of a stage that runs pytest: its tests are run again")
    yield from _twice(expect)


def _may_run_tests(argv: Sequence[str]) -> bool:
    """Whether it may be a program or a script whose tests are seen, whoever runs them: no lines of a shell, and of
    Python's modules such as are called so, or are told so.
    """
    program, *rest = argv or [""]
    if is_shell(program):
        return bool(rest) and not any(re.fullmatch(r"-[a-z]*c", word) for word in rest)
    if not is_python(program):
        return bool(program)
    return bool(rest) and ("-m" not in rest or any(re.search(r"test|nose|trial|[nt]ox", word) for word in rest))


def _twice(expect: Mapping[str, Any]) -> Iterator[Error]:
    patches = [_mapping(mutant).get("patch") for mutant in _list(expect.get("mutants"))]
    seen: set[str] = set()
    for key, names in (("kills", _list(expect.get("kills"))), ("mutants", patches)):
        for number, name in enumerate(names):
            if isinstance(name, str) and name in seen:
                yield Error(("expect", key, number), f"expected each of 'kills' and 'mutants' once, got {name!r} twice")
            elif isinstance(name, str):
                seen.add(name)


def of_runbook(runbook: object) -> Iterator[Error]:
    """One stage of each name, whatever its case, stages after those that they need, and one owner of each artifact."""
    seen: dict[str, str] = {}
    owners: dict[str, str] = {}
    stages = _list(_mapping(runbook).get("stages"))
    names = [_mapping(stage).get("name") for stage in stages]
    for number, stage in enumerate(stages):
        given = _mapping(stage)
        name = given.get("name")
        at = ("stages", number)
        for position, need in enumerate(_texts(given.get("needs"))):
            if need not in seen.values():
                hint = ", and that one comes later" if need in names[number + 1 :] else nearest(need, seen.values())
                said = f"stage {name!r} needs {need!r}: expected an earlier stage{hint}"
                yield Error((*at, "needs", position), said)
        if not isinstance(name, str):
            continue
        other = seen.setdefault(name.casefold(), name)  # some disks do not tell the folders `a` and `A` apart
        if other == name and name in names[:number]:
            yield Error((*at, "name"), f"expected one stage of each name, got two called {name!r}")
        elif other != name:
            yield Error((*at, "name"), f"expected names that differ in more than case, got {other!r} and {name!r}")
        artifacts = _list(_mapping(given.get("expect")).get("artifacts"))
        for position, artifact in enumerate(artifacts):
            path = _path_of(artifact)
            owner = owners.setdefault(path, name) if path else name
            folder = next((other for other in owners if _is_in(path, other) or _is_in(other, path)), None)
            said = ""
            if folder is not None:
                said = f"artifact {path!r}: expected a file that is no folder of another, and there is {folder!r}"
            elif owner != name:
                said = f"artifact {path!r}: expected one owner, got stages {owner!r} and {name!r}"
            elif _is_made_twice(path, artifacts[: position + 1]):
                said = f"artifact {path!r}: expected it once where it has a 'from', as nothing is copied twice"
            if said:
                yield Error((*at, "expect", "artifacts", position, "path"), said)


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")


def _is_made_twice(path: str, artifacts: Sequence[object]) -> bool:
    """Whether the last one of `path` is there before; what a stage writes itself may be asked about twice."""
    sources = [_mapping(artifact).get("from") for artifact in artifacts if path and _path_of(artifact) == path]
    return len(sources) > 1 and any(sources)


def _path_of(artifact: object) -> str:
    path = _mapping(artifact).get("path")
    return str(normal({"path": path})["path"]) if isinstance(path, str) and path else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [item for item in _list(value) if isinstance(item, str)]
