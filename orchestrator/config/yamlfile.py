"""YAML files checked against a model on load; each error names file, line, key and what was expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from orchestrator.errors import InputError
from orchestrator.text import size

M = TypeVar("M", bound=BaseModel)
Location = tuple[str | int, ...]
_MOST_PARTS = 100_000
_MOST_CHARACTERS = 1 << 20
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_UNKNOWN = ("extra_forbidden", "unknown_key")
_SECRET = "env"  # the key below which values may be secrets


def nearest(name: str, known: Iterable[str]) -> str:
    """': did you mean ...?' or the known names, ready to be appended to a sentence."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f": did you mean {' or '.join(close)}?"
    return f": known are {', '.join(names)}" if names else ": none is known"


def load(path: Path, model: type[M]) -> M:
    """Read `path` and validate it as `model`; InputError says file:line, key and what was expected."""
    return loads(read(path), str(path), model)


def read(path: Path) -> str:
    """The file's text, every byte of it as it is (no line endings are changed). InputError if it is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: cannot be read as UTF-8 text: {e}") from e


def loads(text: str, source: str, model: type[M]) -> M:
    """As `load`, for text that is already in memory; `source` is what errors call it."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"{source}: expected at most {size(_MOST_CHARACTERS)}")
    lines: dict[Location, int] = {}
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _index(node, (), lines, source, set())
        data = loader.construct_document(node) if node else None
    except yaml.YAMLError as e:
        raise InputError(_yaml_sentence(source, e)) from e
    except RecursionError as e:
        raise InputError(f"{source}: not valid YAML: it is nested too deeply") from e
    except (ValueError, LookupError, TypeError, AttributeError) as e:  # values that their tags do not fit, dates
        raise InputError(f"{source}: not valid YAML: a value cannot be read: {e}") from e
    if not isinstance(data, dict):
        raise InputError(f"{source}:1: expected a mapping with the keys {', '.join(_keys(model))}")
    try:
        return model.model_validate(data)
    except ValidationError as e:
        raise InputError(_model_sentence(source, e, lines, model)) from e


def _index(node: yaml.Node | None, at: Location, lines: dict[Location, int], source: str, open_nodes: set[int]) -> None:
    """Remember the line of each key; refuse duplicate keys, which YAML readers silently drop."""
    if node is None:
        return
    if id(node) in open_nodes:
        raise InputError(f"{source}:{node.start_mark.line + 1}: an alias refers to itself")
    if len(lines) >= _MOST_PARTS:  # aliases of aliases make much of little
        raise InputError(f"{source}: expected at most {_MOST_PARTS} values")
    for scalar in (node, *(key for key, _ in node.value)) if isinstance(node, yaml.MappingNode) else (node,):
        if isinstance(scalar, yaml.ScalarNode) and _UNWRITABLE.search(scalar.value):
            raise InputError(f"{source}:{scalar.start_mark.line + 1}: expected text without NUL and lone surrogates")
    lines.setdefault(at, node.start_mark.line + 1)
    open_nodes.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            where = (*at, str(key.value))
            if where in lines:
                raise InputError(f"{source}:{key.start_mark.line + 1}: duplicate key {key.value!r}")
            lines[where] = key.start_mark.line + 1
            _index(value, where, lines, source, open_nodes)
    elif isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            _index(item, (*at, i), lines, source, open_nodes)
    open_nodes.discard(id(node))


def _yaml_sentence(source: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{source}{line}: not valid YAML: {problem}"


def _model_sentence(source: str, error: ValidationError, lines: dict[Location, int], model: type[BaseModel]) -> str:
    # An unknown key first: a misspelt one also makes its right spelling missing.
    first = min(error.errors(), key=lambda e: e["type"] not in _UNKNOWN)
    at = _in_file(tuple(first["loc"]), lines, missing=first["type"] == "missing")
    known = next((lines[at[:n]] for n in range(len(at), -1, -1) if at[:n] in lines), 1)
    shown = ".".join(map(str, at))
    key = f" key '{shown}':" if shown else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{source}:{known}:{key} {_expectation(cast(dict[str, Any], first), at, model)}{more}"


def _in_file(location: Location, lines: dict[Location, int], missing: bool) -> Location:
    """What of pydantic's location is in the file (inside a union it holds the branch too), and a missing key."""
    at: Location = ()
    for part in location:
        if (*at, part) in lines:
            at = (*at, part)
    return (*at, location[-1]) if missing else at


def _expectation(first: dict[str, Any], at: Location, model: type[BaseModel]) -> str:
    if first["type"] == "extra_forbidden":
        return f"unknown key{nearest(str(at[-1]), _keys(_model_at(model, at[:-1])))}"
    if first["type"] == "missing":
        return "is missing"
    if first["type"] in ("expectation", "unknown_key"):  # already sentences too
        return cast(str, first["msg"])
    if first["type"] == "value_error":  # raised by our own validators, already a sentence
        return cast(str, first["msg"]).removeprefix("Value error, ")
    return f"expected {first['msg'].removeprefix('Input should be ')}, got {_short(first['input'], _SECRET in at)}"


def _short(value: object, secret: bool) -> str:
    """How an error shows a value; one that may be a secret only as its type."""
    text = repr(value) if isinstance(value, (bool, type(None))) or not secret else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], at: Location) -> type[BaseModel]:
    """The model that validates the part of the file at `at`, by following the annotations."""
    for part in at:
        field = next((f for n, f in model.model_fields.items() if part in (n, f.alias)), None)
        annotation = field.annotation if field else None
        inner = _inner_model(annotation)
        model = inner or model
    return model


def _inner_model(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_inner_model(a) for a in getattr(annotation, "__args__", ()))
    return next((m for m in found if m is not None), None)
