"""What is asked of the syntax of Python in many places; imported where a program is read, as `ast` is."""

from __future__ import annotations

import ast
import warnings

from ..files import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SCOPES = (*DEFINITIONS, ast.Lambda)
SETS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))
_IMPORTING = ("importorskip", "import_module", "__import__")
MATCHES: Any = tuple(getattr(ast, name) for name in ("Match",) if hasattr(ast, name))
LOOPS = (ast.For, ast.AsyncFor, ast.While)
BLOCKS = ("body", "orelse", "finalbody")
PARTS = ("handlers", "cases")


class ByKind(dict):  # type: ignore[type-arg]  # of kinds of nodes
    """What is asked of a kind of nodes again and again: found once."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, kind: Any) -> Any:
        self[kind] = found = self._find(kind)
        return found


_NO_NODES = frozenset(("ctx", "op", "ops", "id", "attr", "arg", "kind", "type_comment"))
"""Fields of text, and of nodes that only say which way another is meant."""
_FIELDS = ByKind(lambda kind: [name for name in kind._fields if name not in _NO_NODES and kind is not ast.Constant])
"""Those by which a node may hold others."""


def parsed(file: str, source: str | bytes | None = None) -> ast.Module | None:
    """A file's text, or another one as its own; None where it cannot be read, or does not compile. Of what it warns of,
    Python warns where that runs.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text(file) if source is None else source, file)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def targets_of(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    """What one of `SETS` sets."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def name_of(node: object) -> str:
    """The last word of a name: `run` of `subprocess.run`; blank of anything else."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def called(node: object) -> str:
    """What a call calls, by its last word, or by what that is another name for (`calls_check`)."""
    return str(getattr(node, "calls_check", "")) or name_of(getattr(node, "func", None))


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """As code objects have it: that of the first decorator."""
    return min(node.lineno, *(d.lineno for d in node.decorator_list)) if node.decorator_list else node.lineno


def imports(module: ast.Module, package: str) -> bool:
    """Whether it imports the package anywhere, by a statement or by its name."""
    for node in walked(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if isinstance(node, ast.Call) and called(node) in _IMPORTING:
            names += [word.value for word in node.args if isinstance(word, ast.Constant) and type(word.value) is str]
        if any(name.partition(".")[0] == package for name in names):
            return True
    return False


def walked(*nodes: ast.AST, past: tuple[type, ...] = ()) -> list[ast.AST]:
    """The nodes and all below them but operators and contexts, as `ast.walk` does, which takes thrice as long; of kinds
    that are passed by, only the node.
    """
    found = list(nodes)
    for node in found:
        if isinstance(node, past):
            continue
        for name in _FIELDS[type(node)]:
            value = getattr(node, name, None)
            if type(value) is list:
                found += [inner for inner in value if isinstance(inner, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def ids_in(*nodes: ast.AST) -> set[str]:
    """The names in the nodes, read or set; no attributes."""
    return {node.id for node in walked(*nodes) if isinstance(node, ast.Name)}


def asserts_in(module: ast.Module) -> int:
    return sum(isinstance(node, ast.Assert) for node in walked(module))


def names_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """What is read in `nodes`, at any depth, by its name or as an attribute."""
    for node in walked(*nodes):
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            yield name_of(node)


def within(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """The nodes and all below them that run with them: not what a function or class among them holds."""
    return walked(*nodes, past=SCOPES)
