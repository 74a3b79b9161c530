"""What a module's files say: those of a copy beside those that it may be a copy of."""

from __future__ import annotations

import ast
import contextlib
import re
import zipfile
import zlib
from pathlib import Path
from typing import Iterable, List, Set, Tuple

from orchestrator.shared.tree import object_name

_NOTE = re.compile(r"version|(^|_)(commit|revision|date|time)(_|$)", re.IGNORECASE)  # names of what builds write
_MOST_PACKED = 64 << 20


def files_of(module: Path) -> Iterable[Path]:
    """The module, and what is in the package that it is."""
    return module.parent.rglob("*.py") if module.name.startswith("__init__.") else [module]


def in_archive(module: Path) -> List[Tuple[Path, str]]:
    """The same as `files_of` of a module in an archive, with what they are; nothing where it is in none."""
    archive = next((parent for parent in module.parents if parent.is_file()), None)
    if archive is None:
        return []
    inside = f"{module.parent}/" if module.name.startswith("__init__.") else str(module)
    try:
        with zipfile.ZipFile(archive) as packed:
            found = {archive / name: name for name in packed.namelist() if name.endswith(".py")}
            mine = {path: name for path, name in found.items() if str(path).startswith(inside)}
            if sum(packed.getinfo(name).file_size for name in mine.values()) <= _MOST_PACKED:
                return [(path, object_name("blob", packed.read(name))) for path, name in mine.items()]
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        pass
    return [(module, "unreadable")]


def says_the_same(copy: Path, of: Path) -> bool:
    """But for comments, for types of arguments, and for what builds note of themselves."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
        return _code(copy) == _code(of)
    return False


def is_version(module: Path, of: Path) -> bool:
    """Whether two modules, or packages, define much the same: half of what the smaller one does."""
    here, there = _defined_in(module), _defined_in(of)
    return 2 * len(here & there) >= min(len(here), len(there)) > 0


def _code(file: Path) -> str:
    module = ast.parse(file.read_bytes())
    module.body = [node for node in module.body if not _is_note(node)]
    for node in ast.walk(module):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
    return ast.dump(module)


def _is_note(node: ast.stmt) -> bool:
    """Whether a module's constant tells its version, or when and of what it was built."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [n.id if isinstance(n, ast.Name) else "" for n in targets]
    is_constant = not any(isinstance(n, (ast.Name, ast.Call)) for n in ast.walk(node.value))
    return is_constant and all(map(_NOTE.search, names))


def _defined_in(module: Path) -> Set[str]:
    """The functions, classes and modules of a module, or package, by their names."""
    found: Set[str] = set()
    for file in files_of(module):
        found.update({file.stem} - {module.stem})
        try:
            body = ast.parse(file.read_bytes()).body
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        found.update(node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return found
