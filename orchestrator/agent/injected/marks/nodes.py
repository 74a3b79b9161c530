"""Marks, as statements and expressions of Python that name what `checks.seen` offers.

A mark is written as `isinstance(KEY, CLASS)`, KEY being text or a tuple of it, because compilers of Python code,
TorchDynamo above all, evaluate that while they trace: a call of a function they would take for part of the program.
"""

from __future__ import annotations

import ast
import sys
from itertools import product

from ..source import statements
from ..source.syntax import BLOCKS, PARTS, SCOPES, called, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

ISINSTANCE, SEEN = "@nsa_pod_isinstance", "@nsa_pod"
"""Names in `builtins`, and none that a program can write."""
COMPLETED = "!"
"""Before the key of a `try` whose body ended well."""
ENTERED = "*"
"""Before the key of an `all`, or an `any`, that had an element to look at."""
RUNS = "~"
"""Is none: where it runs, and is not compiled, this is true."""
CALLED, VACUOUS, RETURNED, PAIR, THROUGH, ASSERTED = "called", "vacuous", "returned", "pair", "through", "asserted"
APART, WITHIN = "apart", "within"
"""Begin marks that say which functions were called, why an assertion cannot fail, what has not failed the test, which
two functions are compared, that all elements were looked at, what a name stands for that is asserted, by which names
two things are called that a limit is to keep together, and which limit."""

_OPERATORS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
JUMPS = (ast.Return, ast.Break, ast.Continue)
_LOAD = ast.Load()


def or_fails(test: ast.expr) -> ast.expr:
    """`test or SEEN.failing()`, which is false."""
    told = ast.Call(ast.Attribute(ast.Name(SEEN, _LOAD), "failing", _LOAD), [], [])
    either = ast.BoolOp(ast.Or(), [test, told])
    for node in (either, *walked(told)):
        ast.copy_location(node, test)
    return either


def place_of(node: ast.stmt | ast.expr) -> dict[str, Any]:
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.end_lineno,
        "end_col_offset": node.end_col_offset,
    }


def constant(value: object) -> ast.Constant:
    return ast.Constant(value)  # type: ignore[arg-type, unused-ignore]


def seen_mark(at: ast.stmt, key: object, *values: ast.expr) -> ast.stmt:
    return ast.Expr(is_seen(at, key, *values), **place_of(at))


def is_seen(at: ast.stmt | ast.expr, key: Any, *values: ast.expr) -> ast.expr:
    """A mark, with what some expressions come to there; not by a call, as `compared` is, for it may be compiled."""
    function, seen = ast.Name(ISINSTANCE, _LOAD), ast.Name(SEEN, _LOAD)
    parts = [constant(part) for part in key] if values else []
    made = ast.Tuple([*parts, *values], _LOAD) if values else constant(key)
    call = ast.Call(function, [made, seen], [])
    place = place_of(at)
    for node in (call, function, made, seen, *parts):  # to give each its place when it is made takes longer
        node.__dict__.update(place)
    return call


def call_seen(at: ast.stmt, method: str, *arguments: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Expr:
    function = ast.Attribute(ast.Name(SEEN, _LOAD), method, _LOAD)
    new = ast.Expr(ast.Call(function, list(arguments), list(keywords)))
    for node in walked(new):
        ast.copy_location(node, at)
    return new


def watch_tolerances(node: ast.expr | None) -> None:
    """Have what holds to a tolerance in an expression be called by way of what looks at it, but where a compiler reads
    it, to which nothing is `isinstance` of SEEN: `(SEEN[allclose] if isinstance(RUNS, SEEN) else allclose)(...)`.
    """
    for call in _with_tolerances(node) if node is not None else ():
        seen = ast.copy_location(ast.Name(SEEN, _LOAD), call)
        way = ast.copy_location(ast.Subscript(seen, _index(call.func), _LOAD), call)
        call.calls_check = called(call)  # type: ignore[attr-defined]  # for who asks what a name is bound to
        call.func = ast.copy_location(ast.IfExp(is_seen(call, RUNS), way, call.func), call)


def are_tolerances(node: ast.expr | None) -> bool:
    return node is not None and next(_with_tolerances(node), None) is not None


def _with_tolerances(node: ast.AST) -> Iterator[ast.Call]:
    """Those of which one may be given; not one of several conditions, of which another may be the check."""
    if isinstance(node, (ast.BoolOp, ast.Lambda)):
        return
    if called(node) in statements.COMPARES and (len(node.args) > 1 or node.keywords):  # type: ignore[attr-defined]
        yield node  # type: ignore[misc]  # of `a.equal(b)` pytest explains what a is
    for inner in ast.iter_child_nodes(node):
        yield from _with_tolerances(inner)


def _index(value: ast.expr) -> Any:
    index = getattr(ast, "Index", None)  # around a subscript before Python 3.9
    return ast.copy_location(index(value), value) if index is not None and sys.version_info < (3, 9) else value


def with_dropped(node: ast.Expr, place: ast.Constant, repeats: bool) -> ast.expr:
    """A comparison that is a statement of its own, with one that looks at what came out of it, and of what."""
    value = node.value
    operator = _OPERATORS.get(type(value.ops[0])) if isinstance(value, ast.Compare) and len(value.ops) == 1 else None
    if operator is None or not isinstance(value, ast.Compare):
        return call_seen(node, "dropped", value, place, constant(repeats)).value
    sides = value.left, value.comparators[0]
    return call_seen(node, "dropped_of", *sides, constant(operator), place, constant(repeats)).value


def with_sizes(difference: ast.BinOp) -> ast.Constant:
    """Have the sizes of both sides of a difference be noted where it is calculated, once; by which key that is."""
    return _withnoted(difference, "sized", ("left", "right"))


def with_extent(difference: ast.BinOp) -> ast.Constant:
    """The same of the number of elements of one side: of the other, pytest explains what it comes from."""
    return _withnoted(difference, "counted", ("right" if statements.is_plain(difference.left) else "left",))


def _withnoted(difference: ast.BinOp, method: str, sides: Sequence[str]) -> ast.Constant:
    key = f"{difference.lineno}:{difference.col_offset}"
    for name in sides:
        side = getattr(difference, name)
        if getattr(side, "sized", None) is None:
            either: Any = noted(side, method, key)
            either.sized = key
            setattr(difference, name, either)
    return constant(key)


def noted(value: ast.expr, method: str, key: str, *more: ast.expr) -> ast.expr:
    """An expression by way of what notes its value, where no compiler reads it."""
    called = ast.Call(ast.Attribute(ast.Name(SEEN, _LOAD), method, _LOAD), [value, constant(key), *more], [])
    for new in (called, called.func, called.func.value, called.args[1]):  # type: ignore[attr-defined]
        ast.copy_location(new, value)
    return ast.copy_location(ast.IfExp(is_seen(value, RUNS), called, value), value)


def with_told(node: ast.expr, place: ast.Constant) -> ast.expr:
    """An equality, with one that looks at what came out of it; anything else as it is."""
    if not statements.is_equality(node):
        return node
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    is_exact = called(inner) in statements.EXACT or isinstance(inner, ast.Compare)
    return seen_by(node, "told", place, constant(not statements.says_differ(node)), constant(is_exact))


def seen_by(node: ast.expr, method: str, *more: ast.expr) -> ast.expr:
    """What gives back what the expression comes to."""
    return call_seen(ast.copy_location(ast.Expr(node), node), method, node, *more).value


def swallow_mark(at: ast.stmt, key: str, keeps_it: bool, answers: bool) -> ast.stmt:
    return call_seen(at, "swallowed", *map(constant, (key, keeps_it, answers)))


def with_escapes(node: ast.With | ast.AsyncWith, key: str) -> ast.stmt:
    """Have a `with` tell which assertion has failed in it; the statement behind it tells that nobody was told."""
    for item in node.items:
        item.context_expr = noted(item.context_expr, "manages", key)
    error = ast.copy_location(ast.Name("AssertionError", _LOAD), node.body[0])
    told = call_seen(node.body[0], "escapes", constant(key))
    again = ast.copy_location(ast.Raise(None, None), told)
    handler = ast.copy_location(ast.ExceptHandler(error, None, [told, again]), told)
    node.body = [ast.copy_location(ast.Try(completed(node.body, key), [handler], [], []), told)]
    return call_seen(node, "kept_in", constant(key))


def completed(block: list[ast.stmt], key: str) -> list[ast.stmt]:
    """The block, which tells that it has ended well, wherever it is left."""
    done = COMPLETED + key
    return [*before_jumps(block, lambda jump: seen_mark(jump, done)), seen_mark(block[-1], done)]


def before_jumps(block: list[ast.stmt], made: Callable[[ast.stmt], ast.stmt]) -> list[ast.stmt]:
    """The block with a mark, as it is `made`, before each statement by which it is left."""
    marked: list[ast.stmt] = []
    for statement in block:
        if isinstance(statement, JUMPS):
            marked.append(made(statement))
        elif not isinstance(statement, SCOPES):
            parts = (part for name in PARTS for part in getattr(statement, name, ()))
            for holder, name in product((statement, *parts), BLOCKS):
                if isinstance(getattr(holder, name, None), list):
                    setattr(holder, name, before_jumps(getattr(holder, name), made))
        marked.append(statement)
    return marked
