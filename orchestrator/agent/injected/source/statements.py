"""What a statement, or an expression, of a test says: whether it checks, fails, compares, tells, or may be looked at
again. Asked of its syntax alone.
"""

from __future__ import annotations

import ast
import builtins
import re

from .syntax import BLOCKS, LOOPS, SETS, TRIES, called, ids_in, name_of, targets_of, walked, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Iterable, Iterator, Sequence

_CHECK = re.compile(
    r"_*assert(?!_(never|type)$)\w*|raises\w*|warns|deprecated_call|grad(grad)?check|opcheck|check_(call|output|returncode)"
    r"|fail(If|Unless)\w*|(no_)?(fnmatch|re_match)_lines?\w*|expect"
)
FAILS = ("fail", "xfail", "skip", "exit", "skipTest")
COMPARES = ("allclose", "equal", "equals", "isclose", "array_equal", "array_equiv")
EXACT = ("equal", "equals", "array_equal", "array_equiv", "isclose")
"""That two things are equal to the last bit, and which elements are near, may be all that is to be said."""
_MAY_BE_SILENT = ("gradcheck", "gradgradcheck")
# They convert what they are called on, and change nothing.
CONVERTS = (
    "float", "double", "half", "bfloat16", "cpu", "detach", "numpy", "contiguous", "to", "item", "view", "reshape",
    "flatten", "ravel", "squeeze", "unsqueeze", "transpose", "permute", "clone", "cuda",
)  # fmt: skip
# They calculate from what they are called on, or given, no more than its size.
_MEASURES = ("abs", "absolute", "fabs", "max", "amax", "mean", "float")
# They make a value of others, and do nothing with it.
PLAIN = frozenset((
    *CONVERTS, *_MEASURES,
    "str", "repr", "len", "int", "bool", "format", "join", "time", "list", "dict", "tuple", "set", "type", "tolist",
    "sum", "any", "all", "min", "norm", "std", "argmax", "sorted", "round", "zip", "enumerate", "range", "isinstance",
    "strip", "rstrip", "split", "splitlines", "decode", "strftime", "perf_counter", "monotonic", "now", "basename",
    "Path", "items", "keys", "values", "get", "dumps", "Counter", "most_common",
))  # fmt: skip
_OF_FORM = ("len", "type", "size", "numel", "dim", "approx")  # calls that give no values, or tell of themselves
TELLS = ("print", "log", "debug", "info", "warning", "warn", "error", "exception", "print_exc", "sleep", "write")
STREAMS = frozenset(("stdout", "stderr"))
"""What is written into others is no message, but what a program makes."""
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OBSERVES = ("catch_warnings", "errstate", "suppress")
"""What is done in a `with` of these is done for more than its result."""


def compares(node: object) -> bool:
    """Whether it calls what compares two things and says by its result whether they are equal."""
    name = called(node)
    return name in COMPARES or (name in _MAY_BE_SILENT and any(map(_is_silent, node.keywords)))  # type: ignore[attr-defined]


def _is_silent(keyword: ast.keyword) -> bool:
    return keyword.arg == "raise_exception" and getattr(keyword.value, "value", True) is False


def is_check(name: str) -> bool:
    """Whether what is called `name` fails a test by raising."""
    return _CHECK.fullmatch(name) is not None


def spared(test: ast.expr) -> Iterator[tuple[Any, Any]]:
    """Comparisons that a condition may spare: `cond or allclose(a, b)`, `allclose(a, b) if cond else True`; by what
    holds each in what is asserted, and its place there.
    """
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and not compares(test.values[0]):
        yield from ((test.values, n) for n, value in enumerate(test.values) if compares(value))
    elif isinstance(test, ast.IfExp) and compares(test.body) and isinstance(test.orelse, ast.Constant):
        yield test.__dict__, "body"


def any_close(node: ast.expr) -> list[ast.expr]:
    """What is compared by `isclose(a, b).any()`, or `any(abs(a - b) < tol)`; nothing of anything else."""
    of = _asked_of(node) if called(node) == "any" else None
    if isinstance(of, ast.Compare) and isinstance(of.ops[0], (ast.Lt, ast.LtE)) and called(of.left) in _MEASURES[:3]:
        difference = _asked_of(of.left)
        is_one = isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub)
        return [difference.left, difference.right] if is_one else []  # type: ignore[union-attr]
    return of.args[:2] if called(of) == "isclose" else []  # type: ignore[union-attr]


def any_of_pairs(node: ast.expr) -> bool:
    """Whether it is `any(allclose(a, b) for a, b in zip(...))`: one thing that is sought stays the same."""
    of = _asked_of(node) if called(node) == "any" else None
    if not isinstance(of, (ast.GeneratorExp, ast.ListComp)) or not compares(of.elt) or len(of.elt.args) < 2:  # type: ignore[attr-defined]
        return False
    each = of.generators[0]
    paired = ids_in(each.target) if called(each.iter) == "zip" else set()
    return all(isinstance(side, ast.Name) and side.id in paired for side in of.elt.args[:2])  # type: ignore[attr-defined]


def _asked_of(call: Any) -> ast.expr | None:
    """What is given to a function, or has the method."""
    return call.args[0] if call.args else getattr(call.func, "value", None)


def says_differ(node: ast.expr) -> bool:
    """Of an equality, whether it holds where two things are not equal."""
    return isinstance(node, ast.UnaryOp) or (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotEq))


def is_equality(node: ast.expr) -> bool:
    """Whether it says that two results are equal, or that they are not; what is compared with a word is none."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return compares(node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        return not any(isinstance(getattr(side, "value", ()), (str, bool)) for side in (node.left, *node.comparators))
    return compares(node)


def tells(node: ast.expr) -> bool:
    """Whether it calls what says something, and does nothing else."""
    name = called(node)
    return name in TELLS and (name != "write" or any(name_of(inner) in STREAMS for inner in walked(node)))


def only_tells(node: ast.stmt, told: Callable[[], Collection[str]] = tuple) -> bool:
    """Whether a statement says something, and does nothing else, whichever way it goes, but to set names that are
    `told`, as `told_in` has them.
    """
    if isinstance(node, ast.If):
        return all(only_tells(inner, told) for inner in (*node.body, *node.orelse))
    if isinstance(node, SETS):
        targets = targets_of(node)
        return _only_reckons(node) and all(isinstance(t, ast.Name) and t.id in told() for t in targets)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and tells(node.value))


def _only_reckons(node: ast.AST) -> bool:
    calls = (inner for inner in walked(node) if isinstance(inner, ast.Call))
    return all(called(call) in PLAIN or compares(call) for call in calls)


def told_in(function: ast.AST) -> set[str]:
    """The names that a function sets, and of which it makes no more than words, or others that are so."""
    nodes = walked(function)
    theirs = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} - theirs
    told: set[str] = set()
    while True:
        before, told = told, names.difference(_read_in(function, told))
        if told == before:
            return told


def _read_in(node: ast.AST, told: Collection[str]) -> Iterator[str]:
    """The names that are read in it, but for what is only told, or decides what is told."""
    if isinstance(node, ast.stmt) and only_tells(node, lambda: told):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for inner in ast.iter_child_nodes(node):
        yield from _read_in(inner, told)


def expects(node: ast.stmt) -> bool:
    """Whether it is a `with` that something in it is raised: what follows that does not run."""
    return isinstance(node, (ast.With, ast.AsyncWith)) and any(checks(item.context_expr) for item in node.items)


def observes(node: ast.stmt) -> bool:
    """Whether what is done in it may be done to see that it raises, or warns, or does not."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return expects(node) or any(called(item.context_expr) in _OBSERVES for item in node.items)
    return isinstance(node, TRIES)


def is_with_message(value: ast.expr) -> bool:
    """Whether it is a comparison and a text: `a == b, "differs"`."""
    pair = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == 2 else []
    is_text = bool(pair) and isinstance(getattr(pair[1], "value", pair[1]), (str, ast.JoinedStr))
    return is_text and is_comparison(pair[0])


def is_comparison(value: ast.expr) -> bool:
    """Whether it says by its result, and in no other way, that something is not as it should be."""
    if isinstance(value, ast.ListComp):  # of which each says it
        value = value.elt
    if called(value) in ("all", "any") and isinstance(value.func, ast.Attribute):  # type: ignore[attr-defined]
        of = value.args[:1] if isinstance(value.func.value, ast.Name) else [value.func.value]  # type: ignore[attr-defined]
        value = of[0] if of else value
    return isinstance(value, ast.Compare) or compares(value)


def repeated(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Statements that a loop only repeats, as one that takes the time does."""
    for loop in nodes:
        if isinstance(loop, ast.For):
            read = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            if read.isdisjoint(ids_in(loop.target)):
                yield from (statement.value for statement in loop.body if isinstance(statement, ast.Expr))


def makes_exception(node: ast.AST) -> bool:
    """Whether it calls one of Python's own exceptions, by its name."""
    name = getattr(getattr(node, "func", None), "id", "")
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


def may_make_exception(node: ast.AST) -> bool:
    """Whether it calls one, or what is called as one: `typer.Exit`."""
    return makes_exception(node) or re.match("(?=[A-Z]).*(Error|Exception|Exit|Abort)$", called(node)) is not None


def checks(node: ast.AST) -> bool:
    calls = [inner for inner in within([node]) if isinstance(inner, ast.Call)]
    return any(is_check(called(call)) and not compares(call) for call in calls)


def raises(node: ast.AST) -> bool:
    return isinstance(node, (ast.Raise, ast.Assert)) or called(node) in FAILS or is_check(called(node))


def keeps(statement: ast.stmt) -> bool:
    """Whether a handler's statement does more than say that something was raised: it may be asked about later."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant) and called(statement.value) not in TELLS
    return not isinstance(statement, (ast.Pass, ast.Continue, ast.Break, ast.Return))


def answers(statement: ast.stmt) -> bool:
    """Whether a handler's statement returns something to whoever has called its function."""
    return isinstance(statement, ast.Return) and statement.value is not None


def kept_in(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names of what a handler sets, or calls a method of."""
    for node in within(body):
        if isinstance(node, SETS):
            for target in targets_of(node):
                yield from _named(target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in TELLS:
            yield from _named(node.func.value)


def names_in_checks(function: ast.AST) -> Iterator[str]:
    for node in walked(function):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and fails_in(node)):
            yield from _named(node.test)
        elif isinstance(node, ast.Call) and is_check(called(node)):
            for argument in (*node.args, *(k.value for k in node.keywords)):
                yield from _named(argument)


def _named(expression: ast.AST) -> Iterator[str]:
    """Names and attributes, but no `self`."""
    for node in walked(expression):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "self"
        if name != "self":
            yield name


def as_branch(node: ast.stmt) -> ast.stmt:
    """A statement of its own that is `a and b()`, `a or b()` or `b() if a else None`, as the `if` that it stands for:
    what it calls may not run.
    """
    value = node.value if isinstance(node, ast.Expr) else None
    if isinstance(value, ast.IfExp):
        test, body, orelse = value.test, value.body, [] if isinstance(value.orelse, ast.Constant) else [value.orelse]
    elif isinstance(value, ast.BoolOp):
        first = value.values[0] if len(value.values) == 2 else ast.BoolOp(value.op, value.values[:-1])
        test = ast.UnaryOp(ast.Not(), first) if isinstance(value.op, ast.Or) else first
        body, orelse = value.values[-1], []
    else:
        return node
    made = ast.If(test, [ast.Expr(body)], [ast.Expr(each) for each in orelse])
    for new in (made, test, *ast.iter_child_nodes(test), *made.body, *made.orelse):
        if not hasattr(new, "lineno"):
            ast.copy_location(new, node)
    return made


def is_awaited(handler: ast.ExceptHandler, node: Any, following: ast.stmt | None) -> bool:
    """Whether the test fails unless the handler is come to: by the `else`, by what the `try` ends with and the handler
    does not catch, or by what follows where the handler returns.
    """
    if any(map(raises, within(node.orelse))):
        return True
    if following is not None and isinstance(handler.body[-1], ast.Return) and _never_passes(following):
        return True
    last = node.body[-1]
    return name_of(handler.type) == "AssertionError" and _never_passes(last) and not _asserts(last)


def _never_passes(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Raise) or fails(statement)


def _asserts(failing: ast.stmt) -> bool:
    """Whether what fails does so by an AssertionError, as `self.fail` does and `pytest.fail` does not."""
    call = getattr(failing, "value", None)
    return fails(failing) and (call is None or name_of(getattr(call.func, "value", None)) == "self")


def fails_in(node: Any) -> bool:
    """Whether a block of the statement, not one deeper inside, fails the test: by a raise, a call or `assert False`."""
    blocks = [getattr(node, name, ()) for name in BLOCKS]
    blocks += [inner.body for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
    if isinstance(node, LOOPS):
        blocks = [node.orelse]
    return any(fails(statement) for block in blocks for statement in block)


def only_fails(node: ast.AST, block: Sequence[ast.stmt]) -> bool:
    """Whether a block is a branch in which the test fails in any case: what is checked there only says why."""
    if not isinstance(node, ast.If):
        return _only_says_whether_to_raise(node, block)
    leaves = any(isinstance(inner, ast.Return) for inner in within(block))
    return bool(block) and fails(block[-1]) and not leaves


def _only_says_whether_to_raise(node: Any, block: Sequence[ast.stmt]) -> bool:
    """Whether it is the `else` of a `try`, or a handler, that does no more than to fail in some cases: those in which
    an error was expected, or was not. What was calculated in the `try`, or caught, is no such case.
    """
    is_handler = isinstance(node, ast.ExceptHandler)
    if not is_handler and not (isinstance(node, TRIES) and block is node.orelse):
        return False
    if len(block) != 1 or not isinstance(block[0], ast.If) or block[0].orelse or not all(map(fails, block[0].body)):
        return False
    case = block[0].test
    others = {node.name} if is_handler else ids_in(*node.body)
    return others.isdisjoint(ids_in(case)) and not any(isinstance(inner, ast.Call) for inner in walked(case))


def fails(statement: ast.stmt) -> bool:
    """Whether the test fails where this is reached."""
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return name_of(raised) == "AssertionError"
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and not statement.test.value
    return isinstance(statement, ast.Expr) and called(statement.value) == "fail"


_OF_PARTS = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call)


def may_be_bound(test: ast.expr) -> bool:
    """Whether a name alone, beside a literal, or as a limit, may decide: to look for what it is bound to takes a walk
    over the function.
    """
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ORDERS):
        return any(isinstance(side, ast.Name) for side in (test.left, *test.comparators))
    parts = [test, *ast.iter_child_nodes(test)] if isinstance(test, _OF_PARTS) else [test]
    names = sum(isinstance(part, ast.Name) for part in parts)
    return bool(names) and all(map(_is_name_or_literals, parts[1:]))


def _is_name_or_literals(part: ast.AST) -> bool:
    if isinstance(part, (ast.Tuple, ast.List, ast.Set)):
        return all(isinstance(element, ast.Constant) for element in part.elts)
    return isinstance(part, (ast.Name, ast.Constant, ast.cmpop, ast.boolop, ast.unaryop))


def worded(test: ast.expr) -> ast.expr | None:
    """Of what no more is asserted than that words of it are not blank: `assert str(x)`, `assert f"{x}"`."""
    parts: list[ast.expr] = []
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "str":
        parts = test.args
    elif isinstance(test, ast.JoinedStr):
        parts = [part.value for part in test.values if isinstance(part, ast.FormattedValue)]
    return parts[0] if len(parts) == 1 and is_plain(parts[0]) else None


def is_slice(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and _is_literal_or_name(node.value)


def _is_literal_or_name(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.List, ast.Tuple)) and not any(isinstance(n, ast.Call) for n in walked(node))


def are_truths(test: ast.Compare) -> bool:
    """Whether it is `a.all() == b.all()`, of what may be looked at again."""
    sides = [side for side in (test.left, *test.comparators) if called(side) in ("all", "any")]
    of = [inner for side in sides for inner in (side.args or [getattr(side.func, "value", side)])]  # type: ignore[attr-defined]
    is_equality = len(sides) == len(of) == 2 == len(test.comparators) + 1 and isinstance(test.ops[0], ast.Eq)
    return is_equality and all(map(is_plain, of))


def is_exact(test: ast.expr) -> bool:
    """Whether it asserts that two things are equal, which may be the values of arrays."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    forms = (ast.Constant, ast.Attribute, ast.Tuple)
    return not any(isinstance(side, forms) or called(side) in _OF_FORM for side in (test.left, *test.comparators))


def limited(test: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """What an asserted expression, or all of its elements, must not exceed, and the limit."""
    is_denied = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    if is_denied:
        test = test.operand  # type: ignore[attr-defined]
    if called(test) == ("any" if is_denied else "all"):
        arguments = test.args  # type: ignore[attr-defined]
        test = arguments[0] if arguments else getattr(test.func, "value", test)  # type: ignore[attr-defined]
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ORDERS):
        return None
    left, right = test.left, test.comparators[0]
    return (left, right) if isinstance(test.ops[0], (ast.Lt, ast.LtE)) is not is_denied else (right, left)


def counts_none(test: ast.Compare) -> bool:
    """Whether it says that a number is 0."""
    return isinstance(test.ops[0], ast.Eq) and getattr(test.comparators[0], "value", None) == 0


def measured(node: ast.expr) -> ast.expr:
    """That of which an expression is no more than the size: `a - b` of `(a - b).abs().max().item()`."""
    return [node, *_inside(node)][-1]


def averages(node: ast.expr) -> bool:
    """Whether an expression is the size of an average."""
    return any(called(part) == "mean" for part in (node, *_inside(node)))


def _inside(node: ast.expr) -> Iterator[ast.expr]:
    while isinstance(node, ast.Call) and called(node) in (*_MEASURES, *CONVERTS) and len(node.args) < 2:
        inner = node.args[0] if node.args else getattr(node.func, "value", None)
        if inner is None:
            break
        yield inner
        node = inner


def may_measure_again(node: ast.expr) -> bool:
    """Whether it is plain, or no more than the size of what is, or of a difference of two such."""
    inner = measured(node)
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub):
        return may_measure_again(inner.left) and may_measure_again(inner.right)
    return is_plain(inner)


def is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        if getattr(node.func, "id", "") == "float":  # "inf"
            return all(isinstance(argument, ast.Constant) for argument in node.args) and not node.keywords
        plain = isinstance(node.func, ast.Attribute) and node.func.attr in CONVERTS and is_plain(node.func.value)
        return plain and all(map(is_plain, (*node.args, *(k.value for k in node.keywords))))
    if isinstance(node, (ast.Name, ast.Constant)):
        return True
    kinds = (ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.UnaryOp)
    index = getattr(ast, "Index", None)  # around a subscript before Python 3.9
    inside = [n for n in ast.iter_child_nodes(node) if not isinstance(n, (ast.expr_context, ast.unaryop))]
    return (isinstance(node, kinds) or (index is not None and type(node) is index)) and all(map(is_plain, inside))
