"""Which statements of a program drop what says that something is wrong, and the marks around them (`programs.py`)."""

from __future__ import annotations

import ast  # this module is imported where a program is read

from .statements import compares, makes_exception
from .syntax import called, name_of, parsed, within
from .uses import Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Iterable, Iterator

_EXACT = ("equal", "array_equal", "array_equiv", "isclose")
"""That two things are equal to the last bit, and which elements are near, may be all that a program wants to say."""


def marked(path: str, source: bytes, marks: str, *, begins: bool) -> CodeType | None:
    """The code of a program with calls of `marks`, the first at its begin if it is to be told of that; None if there is
    nothing to mark.
    """
    module = parsed(path, source)
    if module is None:
        return None
    marker = _Marker(module, path, marks)
    marker.mark()
    if not marker.has_marked:
        return None
    if begins:
        place = next((i for i, node in enumerate(module.body) if not _comes_first(node)), len(module.body))
        names = ast.Call(ast.Name("globals", ast.Load()), [], [])
        module.body.insert(place, ast.Expr(marker.call("begins", module.body[place], names)))
        ast.copy_location(module.body[place], module.body[place + 1])
    ast.fix_missing_locations(module)
    return compile(module, path, "exec", dont_inherit=True)


class _Marker(ast.NodeTransformer):
    def __init__(self, module: ast.Module, path: str, marks: str) -> None:
        self._module, self._path, self._marks = module, path, marks
        nodes = list(ast.walk(module))
        branches = (node.body for node in nodes if isinstance(node, (ast.If, ast.ExceptHandler)))
        ends = (s.value for body in branches for s in body if isinstance(s, ast.Expr) and _names_exit(s.value))
        measured = set(map(id, _in_sweeps(nodes)))
        compared = [n for n in nodes if compares(n) and called(n) not in _EXACT and id(n) not in measured]
        self._ends = set(map(id, ends))
        self._codes = set(map(id, _dropped_codes(module)))
        self._dropped = set(map(id, _by_words(Program(module, is_main=True), compared) if compared else ()))
        self.has_marked = False

    def mark(self) -> None:
        self.visit(self._module)

    def call(self, mark: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
        """Of a mark, in the place of what it looks at."""
        self.has_marked = True
        made = ast.Call(ast.Attribute(ast.Name(self._marks, ast.Load()), mark, ast.Load()), list(arguments), [])
        for node in (made, made.func, made.func.value, *arguments[1:]):  # type: ignore[attr-defined]
            ast.copy_location(node, at)
        return made

    def _place(self, node: ast.AST) -> tuple[ast.expr, ast.expr]:
        return ast.Constant(self._path), ast.Constant(node.lineno)  # type: ignore[attr-defined]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if id(node) not in self._dropped:
            return node
        return self.call("compares", node, node, ast.Constant(f"{called(node)}()"), *self._place(node))

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        value = node.value
        if id(value) in self._codes:
            self.generic_visit(node)
            node.value = self.call("returns", value, node.value)
        elif id(value) in self._ends:
            node.value = self.call("names", value, ast.Constant(name_of(value)), *self._place(value))
        elif makes_exception(value):
            node.value = self.call("makes", value, value, *self._place(value))
        elif compares(value) and id(value) not in self._dropped:
            node.value = self.call("compares", value, value, ast.Constant("a comparison"), *self._place(value))
        else:
            self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        if isinstance(node.test, ast.Tuple) and node.test.elts:
            node.test = self.call("asserts", node.test, node.test, *self._place(node))
        return node


def _by_words(program: Program, compared: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Comparisons of which the program makes no more than words."""
    for node in compared:
        if not program.uses(program.statement(node), None, set()):
            yield node


def _in_sweeps(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Comparisons that find out how near two things are: a loop is over their tolerances."""
    for loop in nodes:
        if isinstance(loop, ast.For):
            swept = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
            for node in ast.walk(loop):
                tolerances = (k.value for k in getattr(node, "keywords", ()) if k.arg in ("atol", "rtol"))
                if compares(node) and not swept.isdisjoint(map(name_of, tolerances)):
                    yield node


def _names_exit(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and name_of(node) in ("exit", "_exit", "quit")


def _comes_first(node: ast.stmt) -> bool:
    """Whether it has to stand at a module's begin."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _dropped_codes(module: ast.Module) -> Iterator[ast.expr]:
    """The calls for which the program is there, statements of their own, of functions that return exit codes: of
    `main`, or of a guard's any.
    """
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    guards = [
        node for node in module.body if isinstance(node, ast.If) and "__name__" in map(name_of, ast.walk(node.test))
    ]
    for block, is_guard in ((module.body, False), *((guard.body, True) for guard in guards)):
        for call in (node.value for node in block if isinstance(node, ast.Expr)):
            name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
            function = functions.get(name) if is_guard or name == "main" else None
            if function is not None and not function.decorator_list and _returns_codes(function):
                yield call


def _returns_codes(function: ast.FunctionDef) -> bool:
    """Whether it returns whole numbers, or nothing, and not always the same: of a `main`, not always 0."""
    returned = [node.value for node in within(function.body) if isinstance(node, ast.Return) and node.value]
    values = [value for each in returned for value in _values(each)]
    codes = [value.value for value in values if isinstance(value, ast.Constant)]
    whole = len(codes) == len(values) and all(type(code) is int for code in codes)
    return whole and any(codes) and (0 in codes or function.name == "main")


def _values(node: ast.expr) -> Iterator[ast.expr]:
    """What a returned expression may come to."""
    if isinstance(node, ast.IfExp):
        yield from _values(node.body)
        yield from _values(node.orelse)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    else:
        yield node
