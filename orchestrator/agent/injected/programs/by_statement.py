"""What is dropped by a statement of its own, in a program and in what one brings in: a comparison, an exception that is
made, an exit that is named, a tuple that is asserted. Of a module that is imported, or a text that is executed, no more
is looked at, for others may make something of all else in it.
"""

from __future__ import annotations

import ast  # this module is imported where a program is read
import re

from ..source.statements import compares, is_comparison, may_make_exception, observes, repeated
from ..source.syntax import called, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

_MAY_STAND = re.compile(
    rb"^[ \t]*(?:[\w.]*(?:allclose|equals?|isclose|array_equiv|gradcheck|Error|Exception|Exit|Abort|exec)\("
    rb"|assert ?\()",
    re.M,
)


def may_hold(source: bytes) -> bool:
    """Whether such a statement may stand in a text: few need be read for that."""
    return _MAY_STAND.search(source) is not None


class Statements(ast.NodeTransformer):
    """Puts calls of `marks` into the syntax tree of a module."""

    def __init__(self, module: ast.Module, path: str, marks: str, nodes: Sequence[ast.AST]) -> None:
        """`nodes` are all of the module's."""
        self._module, self._path, self._marks = module, path, marks
        branches = (node.body for node in nodes if isinstance(node, (ast.If, ast.ExceptHandler)))
        ends = (s.value for body in branches for s in body if isinstance(s, ast.Expr) and _names_exit(s.value))
        observing = (node for node in nodes if isinstance(node, ast.stmt) and observes(node))
        imports = (node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
        self._imported = {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
        self._ends = set(map(id, ends))
        self._doubtful = set(map(id, repeated(nodes)))
        self._meant = self._doubtful.union(id(inner) for node in observing for inner in ast.walk(node))
        self._has_marked = False

    def mark(self) -> bool:
        """Whether there was something to mark."""
        self.visit(self._module)
        ast.fix_missing_locations(self._module)
        return self._has_marked

    def _call(self, mark: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
        """Of a mark, in the place of what it looks at."""
        self._has_marked = True
        made = ast.Call(ast.Attribute(ast.Name(self._marks, ast.Load()), mark, ast.Load()), list(arguments), [])
        for node in (made, made.func, made.func.value, *arguments):  # type: ignore[attr-defined]
            if not hasattr(node, "lineno"):
                ast.copy_location(node, at)
        return made

    def _told(self, mark: str, at: ast.expr, *words: str) -> ast.Call:
        """Of a mark that is told of what is said of a value, and where it stands."""
        told = [*map(ast.Constant, (*words, self._path)), ast.Constant(at.lineno)]
        return self._call(mark, at, at, *told)

    def _compared(self, node: ast.Call) -> ast.Call:
        mark = "may_compare" if id(node) in self._doubtful else "compares"
        return self._told(mark, node, f"{called(node)}()")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        mark = _of_text(node) if node.args else ""
        if mark:
            place = ast.Constant(self._path), ast.Constant(node.lineno)
            given = ast.Starred(self._call(mark, node.args[0], node.func, *place, *node.args), ast.Load())
            node.args = [ast.copy_location(given, node.args[0])]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        value = node.value
        if id(value) in self._ends:
            node.value = self._told("names", value, name_of(value))
        elif may_make_exception(value):
            node.value = self._told("makes", value)
        elif isinstance(value, ast.Call) and compares(value) and self._only_compares(value):
            node.value = self._compared(value)
        elif called(value) == "all" and is_comparison(value) and id(value) not in self._meant:
            node.value = self._told("all_equal", value)
        else:
            self.generic_visit(node)
        return node

    def _only_compares(self, call: ast.Call) -> bool:
        """Whether a call that is named so is there for its result: a method may do more (`self.equal(1)`)."""
        root = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        is_function = root is call.func or getattr(root, "id", "") in self._imported
        return is_function and not has_out(call)

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        items = node.test.elts if isinstance(node.test, ast.Tuple) else []
        if items and not isinstance(items[0], ast.Starred):  # it stays a tuple, of which Python warns
            items[0] = self._told("asserts", items[0])
        return node


def _of_text(call: ast.Call) -> str:
    """The mark for what executes a text, or compiles one that is to be executed, if it is Python's own function. With
    flags it may be that no more than its syntax is asked for.
    """
    of_module = isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "builtins"
    name = name_of(call.func) if of_module or isinstance(call.func, ast.Name) else ""
    asked = {keyword.arg: getattr(keyword.value, "value", "") for keyword in call.keywords}
    is_compiled = name == "compile" and asked.get("mode", "exec") == "exec" and "flags" not in asked
    return "executes" if name == "exec" else "compiles" if is_compiled else ""


def has_out(call: ast.Call) -> bool:
    """Whether what it returns is written elsewhere, too."""
    return any(keyword.arg == "out" for keyword in call.keywords)


def _names_exit(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and name_of(node) in ("exit", "_exit", "quit")
