"""What may be asked of an artifact: where it is made, and what its kind adds."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, NewType, Optional, Tuple, TypedDict

from orchestrator.shared import lfs
from orchestrator.shared.files import stays_away
from orchestrator.shared.schema import MISSING, RULES, Error, Location, errors, fields, without_nothing
from orchestrator.shared.text import alternatives
from orchestrator.verdict.artifacts import benchmarks, table, text
from orchestrator.verdict.artifacts.kind import Bad, Finding, Kind, Weight

_ALL = (text.KIND, table.CSV, table.JSON, table.JSONL, *benchmarks.KINDS)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}

STREAMS = ("stdout", "stderr")
_TREE = "tree:"

RelativePath = NewType("RelativePath", str)
Source = NewType("Source", str)
Asked = TypedDict("Asked", {"path": RelativePath, "from": Source, "kind": str, "reproducible": bool}, total=False)
"""Under $NSA_POD_ARTIFACTS, or `from` the stage's stdout, stderr or tree:FILE; one that is `reproducible` may equal a
file of the commit. The kind's own keys stand beside."""


def kind_of(asked: Mapping[str, Any]) -> Kind:
    """Text, unless it says something else."""
    return KINDS[asked.get("kind") or "text"]


def has_figures(asked: Mapping[str, Any]) -> bool:
    """Whether it says what it measured."""
    return bool(asked.get("figures")) or kind_of(asked) in benchmarks.KINDS


def wrong(item: object, at: Location, *, closed: bool) -> Iterator[Error]:
    """What cannot be asked of an artifact, by its place."""
    if not isinstance(item, dict):
        yield Error(at, "expected a mapping with path, and perhaps from and kind")
        return
    item = item if closed else without_nothing(item)
    yield from errors({key: value for key, value in item.items() if key != "kind"}, Asked, at)
    if "path" not in item:
        yield Error((*at, "path"), MISSING)
    if item.get("kind", "text") not in list(KINDS):  # it need not even be hashable
        yield Error((*at, "kind"), f"expected {alternatives(map(repr, KINDS))}")
        return
    kind = kind_of(item)
    known = (*fields(Asked), *fields(kind.asks))
    for key in item if closed else ():
        if key not in known:
            yield _unknown(key, (*at, key), known)
    own = {key: value for key, value in item.items() if key in fields(kind.asks)}
    found = list(errors(own, kind.asks, at, closed=closed))
    yield from found or kind.also(item, at)


def normal(asked: Mapping[str, Any]) -> Dict[str, Any]:
    """With its paths as a listing has them: `./a//b` is a/b."""
    source = asked.get("from") or ""
    paths = {"path": posixpath.normpath(asked["path"])}
    if source.startswith(_TREE):
        paths["from"] = _TREE + posixpath.normpath(source[len(_TREE) :])
    return {**asked, **paths}


def findings(asked: Mapping[str, Any], f: BinaryIO) -> List[Finding]:
    """What is wrong with the artifact in `f`, in the order of the file: the first of each weight and format."""
    first: Dict[Tuple[Weight, int], Finding] = {}
    for found in _all_findings(asked, f):
        first.setdefault((found.weight, found.since), found)
    return list(first.values())


def _all_findings(asked: Mapping[str, Any], f: BinaryIO) -> Iterator[Finding]:
    kind = kind_of(asked)
    if kind.most_bytes is not None and os.fstat(f.fileno()).st_size > kind.most_bytes:
        yield Finding(f"is larger than the {kind.most_bytes} bytes that a {kind.name} artifact may have")
        return
    if lfs.is_pointer(f):
        yield Finding("is a Git LFS pointer, not the file that it stands for", "borrowed", since=2)
    try:
        yield from kind.read(asked, f)
    except Bad as e:
        yield Finding(str(e))
    except UnicodeDecodeError:
        yield Finding("is not UTF-8 text")


def _unknown(key: str, at: Location, known: Tuple[str, ...]) -> Error:
    others = [kind for kind in KINDS.values() if key in fields(kind.asks)]
    if not others:
        return Error(at, "unknown key", known)
    theirs = [name for name in fields(others[-1].asks) if name not in known]
    return Error(at, f"expected kind {alternatives([kind.name for kind in others])} beside {alternatives(theirs)}")


def _relative(path: str) -> Optional[str]:
    parts = PurePosixPath(path).parts
    if not path or path.startswith("/") or ".." in parts or path in (".", "./"):
        return "expected a relative path without '..'"
    odd = next((found for found in re.findall(r"\{\w+\}", path) if found not in ("{commit}", "{commit7}")), None)
    if odd:
        return f"expected no other placeholder than {{commit}} and {{commit7}}, got {odd}"
    return stays_away(f"artifacts/{path}")


def _source(source: str) -> Optional[str]:
    if source in STREAMS:
        return None
    if not source.startswith(_TREE):
        return "expected 'from' to be stdout, stderr or tree:FILE"
    return _relative(source[len(_TREE) :])


RULES.update({RelativePath: _relative, Source: _source})
