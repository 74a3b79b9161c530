"""YAML files checked against a model on load; each error names file, line, key and what was expected."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import SkipJsonSchema

from orchestrator.errors import InputError, InputErrors
from orchestrator.shared.schema import MISSING
from orchestrator.text import close_to, nearest, size

M = TypeVar("M", bound=BaseModel)
Location = tuple[str | int, ...]
_MOST_PARTS = 100_000
_MOST_CHARACTERS = 1 << 20
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = ("tag:yaml.org,2002:str", _MERGE)  # what a key may be
_SECRET = "env"  # the key below which values may be secrets
_KINDS: dict[type, str] = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
_SENTENCES = ("expectation", "unknown_key")
# By pydantic's name of a mistake, what was expected.
_IN_WORDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "too_short": "at least {min_length} in the list",
    "string_too_short": "text that is not empty",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
}
# By how a YAML reader's words begin, what people did.
_IN_YAML = {
    "expected <block end>": "it is not indented as the lines are that it stands with",
    "found character '\\t'": "a tab, where YAML takes nothing but blanks",
    "mapping values are not allowed here": "a colon in text without quotes, or it is not indented as it should be",
    "could not find expected ':'": "a key without its colon",
    "found unexpected end of stream": "a quote that does not end",
    "but found another document": "a line of --- begins a second document, and one is expected",
    "could not determine a constructor": "a tag (such as !env) that is not known here",
}


class WrittenInt(int):
    """A whole number, and how it is `written` in the file: 010 is 10 when it is read."""

    written: str


class WrittenFloat(float):
    """A number, and how it is `written` in the file: 1.10 is 1.1 when it is read."""

    written: str


_INT, _FLOAT, _DATE = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))


class _Loader(yaml.SafeLoader):
    """Its numbers know how they are written, and are those of YAML 1.2, as people and their editors take them: 1e-3 is
    one, 010 is ten; 12:30, 1_000 and dates are text.
    """

    def _int(self, node: yaml.ScalarNode) -> WrittenInt:
        made = WrittenInt(node.value, 0 if node.value[:2] in ("0x", "0o") else 10)
        made.written = node.value
        return made

    def _float(self, node: yaml.ScalarNode) -> WrittenFloat:
        made = WrittenFloat(self.construct_yaml_float(node))
        made.written = node.value
        return made


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag not in (_INT, _FLOAT, _DATE)]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor(_INT, _Loader._int)
_Loader.add_constructor(_FLOAT, _Loader._float)
_Loader.add_implicit_resolver(_INT, re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), "-+0123456789")
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
    "-+.0123456789",
)


def read_numbers(value: Any) -> Any:
    """The same with numbers that no longer know how they were written."""
    if isinstance(value, dict):
        return {key: read_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [read_numbers(part) for part in value]
    if isinstance(value, WrittenFloat):
        return float(value)
    return int(value) if isinstance(value, WrittenInt) else value


@dataclass(frozen=True)
class Document(Generic[M]):
    """What was read from the file `source`; the line of each of its parts, and the names of those of lists."""

    source: str
    value: M
    lines: Mapping[Location, int]
    names: Mapping[Location, str]

    def place(self, at: Location) -> str:
        """`file:line: key '...'`, of the part or what of it is there."""
        return place(self.source, at, self.lines, self.names)


def load(path: Path, model: type[M]) -> M:
    """Read `path` and validate it as `model`; InputErrors says of all mistakes file:line, key and what was expected."""
    return loads(read(path), str(path), model)


def named_file(name: str, what: str, expected: str) -> Path:
    """The file that a person named, as `what`. InputError if there is none."""
    path = Path(os.path.expanduser(name))
    if os.path.isfile(path):  # False also for what cannot be a path
        return path
    raise InputError(f"{what} {path} {'is no file' if os.path.exists(path) else 'does not exist'}: expected {expected}")


def read(path: Path) -> str:
    """The file's text, every byte of it as it is (no line endings are changed). InputError if it is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: cannot be read as UTF-8 text: {e}") from e


def loads(text: str, source: str, model: type[M]) -> M:
    """As `load`, for text that is already in memory; `source` is what errors call it."""
    return document(text, source, model).value


def document(text: str, source: str, model: type[M]) -> Document[M]:
    """As `loads`, with the lines of all parts."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"{source}: expected at most {size(_MOST_CHARACTERS)}")
    index = _Index(source)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        index.add(node, ())
        if index.unusable:
            raise InputErrors(index.wrong)
        data = loader.construct_document(node) if node else None
    except yaml.YAMLError as e:
        raise InputError(_yaml_sentence(source, e, text)) from e
    except RecursionError as e:
        raise InputError(f"{source}: not valid YAML: it is nested too deeply") from e
    except (ValueError, LookupError, TypeError, AttributeError) as e:  # values that their tags do not fit
        raise InputError(f"{source}: not valid YAML: a value cannot be read: {e}") from e
    if not isinstance(data, dict):
        raise InputError(f"{source}:1: expected a mapping with the keys {', '.join(_keys(model))}")
    try:
        value = model.model_validate(data)
    except ValidationError as e:
        raise InputErrors([*index.wrong, *_model_sentences(source, e, index, model)]) from e
    if index.wrong:
        raise InputErrors(index.wrong)
    return Document(source, value, index.lines, index.names)


class _Index:
    """The line of each key, and the `name` of each part of a list that has one; `wrong` are duplicate keys, which YAML
    readers silently drop, keys that are no text, and what no text may hold. With the last two a file is `unusable`:
    there is no telling what else is wrong.
    """

    def __init__(self, source: str) -> None:
        self.lines: dict[Location, int] = {}
        self.names: dict[Location, str] = {}
        self.wrong: list[str] = []
        self.unusable = False
        self._source = source
        self._open: set[int] = set()

    def add(self, node: yaml.Node | None, at: Location) -> None:
        """A node and what is below it."""
        if node is None:
            return
        if id(node) in self._open:
            raise InputError(f"{self._source}:{node.start_mark.line + 1}: an alias refers to itself")
        if len(self.lines) >= _MOST_PARTS:  # aliases of aliases make much of little
            raise InputError(f"{self._source}: expected at most {_MOST_PARTS} values")
        self._refuse_unwritable(node)
        self.lines.setdefault(at, node.start_mark.line + 1)
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._refuse_other_than_text(key)
                where = (*at, str(key.value))
                if where in self.lines:
                    self.wrong.append(f"{self._source}:{key.start_mark.line + 1}: duplicate key {key.value!r}")
                    where = (*where, key.start_mark.line)  # what is below it is counted, and no duplicate too
                self.lines[where] = key.start_mark.line + 1
                self.add(value, where)
                if key.value == "name" and at and isinstance(at[-1], int) and isinstance(value, yaml.ScalarNode):
                    self.names[at] = value.value
            self._add_merged(node, at)
        elif isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                self.add(item, (*at, i))
        self._open.discard(id(node))

    def _add_merged(self, node: yaml.MappingNode, at: Location) -> None:
        """What `<<` takes over from other mappings, but for the keys that are there; its lines are theirs."""
        for merged in (value for key, value in node.value if key.tag == _MERGE):
            parts = merged.value if isinstance(merged, yaml.SequenceNode) else [merged]
            for part in (part for part in parts if isinstance(part, yaml.MappingNode)):
                for key, value in part.value:
                    where = (*at, str(key.value))
                    if key.tag != _MERGE and where not in self.lines:
                        self.lines[where] = key.start_mark.line + 1
                        self.add(value, where)
                self._add_merged(part, at)

    def _refuse_other_than_text(self, key: yaml.Node) -> None:
        """A number, a date, or a word that YAML takes for true or false."""
        if isinstance(key, yaml.ScalarNode) and key.tag not in _TEXT:
            self.unusable = True
            where = f"{self._source}:{key.start_mark.line + 1}"
            self.wrong.append(f"{where}: key '{key.value}': expected text, which this is in quotes")

    def _refuse_unwritable(self, node: yaml.Node) -> None:
        scalars = (node, *(key for key, _ in node.value)) if isinstance(node, yaml.MappingNode) else (node,)
        for scalar in scalars:
            if isinstance(scalar, yaml.ScalarNode) and _UNWRITABLE.search(scalar.value):
                self.unusable = True
                where = f"{self._source}:{scalar.start_mark.line + 1}"
                self.wrong.append(f"{where}: expected text without NUL and lone surrogates")


def _yaml_sentence(source: str, error: yaml.YAMLError, text: str) -> str:
    conflict = next((n for n, line in enumerate(text.splitlines(), 1) if line.startswith("<<<<<<< ")), 0)
    if conflict:
        return f"{source}:{conflict}: not valid YAML: git left a merge conflict in it"
    begin = getattr(error, "context_mark", None) if isinstance(error, yaml.scanner.ScannerError) else None
    mark = begin or getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    meant = next((words for begin, words in _IN_YAML.items() if problem.startswith(begin)), problem)
    return f"{source}{line}: not valid YAML: {meant}"


def place(source: str, at: Location, lines: Mapping[Location, int], names: Mapping[Location, str]) -> str:
    """`file:line: key '...' (NAME)`, of a part of a file or what of it is there; named as what it is in, by number."""
    if not at:
        return f"{source}:{_line(at, lines)}:"
    name = next((names[at[:n]] for n in range(len(at), 0, -1) if at[:n] in names), "")
    called = f" ({name})" if name and at[-1] != "name" else ""
    return f"{source}:{_line(at, lines)}: key '{'.'.join(map(str, at))}'{called}:"


def _line(at: Location, lines: Mapping[Location, int]) -> int:
    return next((lines[at[:n]] for n in range(len(at), -1, -1) if at[:n] in lines), 1)


def _model_sentences(source: str, error: ValidationError, index: _Index, model: type[BaseModel]) -> list[str]:
    """One for each mistake, in the order of the file; a misspelt key is not also the lack of its right spelling."""
    found: dict[tuple[Location, str], int] = {}
    meant: set[Location] = set()
    for details in cast(list[dict[str, Any]], error.errors(include_url=False)):
        at = _in_file(tuple(details["loc"]), index.lines, missing=details["type"] == "missing")
        if details["type"] == "extra_forbidden":
            meant |= {(*at[:-1], key) for key in close_to(str(at[-1]), _keys(_model_at(model, at[:-1])))}
        found[at, _expectation(details, at, model)] = _line(at, index.lines)
    kept = [(at, said) for at, said in found if not (said == MISSING and at in meant)]
    return [
        f"{place(source, at, index.lines, index.names)} {said}"
        for at, said in sorted(kept, key=lambda item: found[item])
    ]


def _in_file(location: Location, lines: Mapping[Location, int], missing: bool) -> Location:
    """What of pydantic's location is in the file (inside a union it holds the branch too), and a missing key."""
    at: Location = ()
    for part in location:
        if (*at, part) in lines:
            at = (*at, part)
    return (*at, location[-1]) if missing else at


def _expectation(details: Mapping[str, Any], at: Location, model: type[BaseModel]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(at[-1]), _keys(_model_at(model, at[:-1])))}"
    if kind == "missing":
        return MISSING
    if kind in _SENTENCES:  # already sentences
        return _with_value(cast(str, details["msg"]), details["input"], at)
    if kind == "value_error":  # raised by our own validators, already a sentence
        return _with_value(str(context.get("error", details["msg"])), details["input"], at)
    if kind == "literal_error":
        return f"expected {context['expected']}, got {_short(details['input'], _SECRET in at)}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        inner = _model_at(model, at)
        keys = f" with the keys {', '.join(_keys(inner))}" if kind != "dict_type" else ""
        return f"expected a mapping{keys}, got {_short(details['input'], _SECRET in at)}"
    said = _IN_WORDS[kind].format(**context) if kind in _IN_WORDS else details["msg"].removeprefix("Input should be ")
    quoted = ", which is text in quotes" if kind == "string_type" and isinstance(details["input"], (int, float)) else ""
    return f"expected {said}, got {_short(details['input'], _SECRET in at)}{quoted}"


def _with_value(sentence: str, value: object, at: Location) -> str:
    """A sentence that only says what was expected also says what is there, where that is one word."""
    is_said = not sentence.startswith("expected ") or ", got " in sentence
    return sentence if is_said or isinstance(value, (dict, list)) else f"{sentence}, got {_short(value, _SECRET in at)}"


def _short(value: object, secret: bool) -> str:
    """How an error shows a value; one that may be a secret only as its type."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    said = next((word for kind, word in _KINDS.items() if isinstance(value, kind)), "something else")
    text = said if secret else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _keys(model: type[BaseModel]) -> list[str]:
    """Those that people write."""
    unwritten = SkipJsonSchema()  # type: ignore[type-arg]
    return [field.alias or name for name, field in model.model_fields.items() if unwritten not in field.metadata]


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
