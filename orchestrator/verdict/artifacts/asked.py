"""What may be asked of an artifact: where it is made, and what its kind adds."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Iterator, Mapping, NewType, Optional, Tuple, TypedDict

from orchestrator.shared.schema import MISSING, RULES, Error, Location, errors, fields
from orchestrator.shared.text import alternatives
from orchestrator.verdict.artifacts import table, text
from orchestrator.verdict.artifacts.kind import Bad, Kind

KINDS: Mapping[str, Kind] = {"text": text.KIND, "csv": table.CSV, "json": table.JSON, "jsonl": table.JSONL}

RelativePath = NewType("RelativePath", str)
Source = NewType("Source", str)
Asked = TypedDict("Asked", {"path": RelativePath, "from": Source, "kind": str}, total=False)
"""Under $NSA_POD_ARTIFACTS, or `from` the stage's stdout or tree:FILE. The kind's own keys stand beside."""


def kind_of(asked: Mapping[str, Any]) -> Kind:
    """Text, unless it says something else."""
    return KINDS[asked.get("kind") or "text"]


def wrong(item: object, at: Location, *, closed: bool) -> Iterator[Error]:
    """What cannot be asked of an artifact, by its place."""
    if not isinstance(item, dict):
        yield Error(at, "expected a mapping with path, and perhaps from and kind")
        return
    given = {key: value for key, value in item.items() if value is not None}
    yield from errors({key: value for key, value in given.items() if key != "kind"}, Asked, at)
    if "path" not in given:
        yield Error((*at, "path"), MISSING)
    if given.get("kind", "text") not in list(KINDS):  # it need not even be hashable
        yield Error((*at, "kind"), "expected 'text', 'csv', 'json' or 'jsonl'")
        return
    kind = kind_of(given)
    known = (*fields(Asked), *fields(kind.asks))
    for key in given if closed else ():
        if key not in known:
            yield _unknown(key, (*at, key), known)
    found = list(errors(given, kind.asks, at))
    yield from found or kind.also(given, at)


def problem(asked: Mapping[str, Any], f: BinaryIO) -> Optional[str]:
    """What is wrong with the artifact in `f`, as a clause that follows its name; None if it is as asked for."""
    kind = kind_of(asked)
    if kind.most_bytes is not None and os.fstat(f.fileno()).st_size > kind.most_bytes:
        return f"is larger than the {kind.most_bytes} bytes that a {kind.name} artifact may have"
    try:
        kind.read(asked, f)
    except Bad as e:
        return str(e)
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    return None


def _unknown(key: str, at: Location, known: Tuple[str, ...]) -> Error:
    others = [kind for kind in KINDS.values() if key in fields(kind.asks)]
    if not others:
        return Error(at, "unknown key", known)
    theirs = [name for name in fields(others[-1].asks) if name not in known]
    return Error(at, f"expected kind {alternatives([kind.name for kind in others])} beside {alternatives(theirs)}")


def _relative(path: str) -> Optional[str]:
    parts = PurePosixPath(path).parts
    bad = not path or path.startswith("/") or ".." in parts or "\0" in path or path in (".", "./")
    return "expected a relative path without '..'" if bad else None


def _source(source: str) -> Optional[str]:
    if source == "stdout":
        return None
    if not source.startswith("tree:"):
        return "expected 'from' to be stdout or tree:FILE"
    return _relative(source[len("tree:") :])


RULES.update({RelativePath: _relative, Source: _source})
