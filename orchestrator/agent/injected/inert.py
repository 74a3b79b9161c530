"""A program that defines what it would do and does none of it: `if __name__ == "__main_":`, or no guard at all."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from typing import Iterator, Sequence

_ITSELF = "__main__"
_OF_CHILDREN = "__mp_main__"  # of multiprocessing, whose body is not meant for the program
_MAINS = ("main", "_main", "cli")


def is_inert(file: str) -> bool:
    """Whether nothing runs in a file but definitions, although a guard that never holds, or a `main` that nobody calls,
    says that something is meant to.
    """
    try:
        with open(file, "rb") as f:
            source = f.read()
        if not _may_be(source):
            return False
        import ast

        module = ast.parse(source, file)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    live, mistyped = list(_live(module.body)), False
    for node in ast.walk(module):
        mistyped |= (
            isinstance(node, ast.If) and _guards(node) not in (None, _ITSELF, _OF_CHILDREN) and _calls(node.body)
        )
    if any(not isinstance(node, _defining()) for node in live):
        return False
    assigned = [n for n in live if isinstance(n, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    has_main = any(isinstance(n, ast.FunctionDef) and n.name in _MAINS for n in live)
    return mistyped or (has_main and not _calls(assigned))


def _may_be(source: bytes) -> bool:
    """Whether it is worth to read, which takes longer than many a program."""
    has_guard = any(quote + b"__main__" + quote in source for quote in (b"'", b'"'))
    return not has_guard and (b"__name__" in source or any(f"def {name}(".encode() in source for name in _MAINS))


def _live(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module that may run; not what a guard keeps from the program."""
    import ast

    for node in block:
        if isinstance(node, ast.If):
            guard = _guards(node)
            yield from _live([*(node.body if guard in (None, _ITSELF) else ()), *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from _live([*node.body, *handlers, *node.orelse, *node.finalbody])
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield node


def _guards(node: ast.If) -> str | None:
    """The name that the module must have for what an `if` holds; None of any other condition."""
    import ast

    test = node.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is))):
        return None
    sides = [test.left, *test.comparators]
    names = [side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)]
    is_of_name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return names[0] if is_of_name and names else None


def _defining() -> tuple[type, ...]:
    import ast

    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)
    return (*definitions, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)


def _calls(block: Sequence[ast.stmt]) -> bool:
    import ast

    return any(isinstance(node, ast.Call) for statement in block for node in ast.walk(statement))
