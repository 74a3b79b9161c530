"""What is asked of the syntax of Python in many places; imported where a program is read, as `ast` is."""

from __future__ import annotations

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SCOPES = (*DEFINITIONS, ast.Lambda)
SETS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))
_IMPORTING = ("importorskip", "import_module", "__import__")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
BLOCKS = ("body", "orelse", "finalbody")
_LEAVES = frozenset(kind for kind in vars(ast).values() if isinstance(kind, type) and not getattr(kind, "_fields", True))
_LEAVES |= {ast.Constant, ast.Name}
"""Nodes that hold no others, operators and the like; of a name nobody asks for the node that says how it is used."""


def parsed(file: str, source: bytes | None = None) -> ast.Module | None:
    """A file's text, or another one as its own; None where it cannot be read, or does not compile."""
    try:
        if source is None:
            with open(file, "rb") as f:
                source = f.read()
        return ast.parse(source, file)
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
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


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


def walked(*nodes: ast.AST) -> list[ast.AST]:
    """The nodes and all below them, in the order of `ast.walk`, which takes twice as long."""
    found = list(nodes)
    for node in found:
        for name in node._fields if type(node) not in _LEAVES else ():
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


def within(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and all below them that run with them: not what a function or class among them holds."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from within(ast.iter_child_nodes(node))
