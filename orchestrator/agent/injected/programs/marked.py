"""Which statements of a program drop what says that something is wrong, and the marks around them (`dropped`)."""

from __future__ import annotations

import ast  # this module is imported where a program is read
from importlib.util import decode_source

from ..processes.inner import is_checking
from ..source.limits import held_to_limits, meant_to_fail, only_told
from ..source.places import compiled
from ..source.statements import COMPARES, EXACT, compares, expects, is_check, raises
from ..source.syntax import LOOPS, TRIES, called, ids_in, imports, name_of, walked, within
from ..source.uses import Program
from .by_statement import Statements, has_out
from .left_early import left_early
from .substitutes import given_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Iterable, Iterator, Sequence

    from .left_early import Leave

_CLOCKS = frozenset(("perf_counter", "perf_counter_ns", "monotonic", "time", "time_ns", "elapsed_time"))
_TIMING = frozenset(("do_bench", "do_bench_cudagraph", "timeit", "Timer"))
_BROAD = frozenset(("Exception", "BaseException"))
_FAILING = frozenset(("AssertionError", "Exception", "BaseException", "ExceptionGroup", "BaseExceptionGroup"))


def imports_numba(module: ast.Module) -> bool:
    """Whether numba may compile what stands in a program, which must hold no marks then, as in `assertions`."""
    return imports(module, "numba")


def marked(module: ast.Module, path: str, source: bytes, marks: str, *, begins: bool) -> CodeType | None:
    """The code of a program with calls of `marks`, the first at its begin if it is to be told of that; None if there is
    nothing to mark, or Python itself is to say what is wrong with it.
    """
    try:
        decode_source(source)  # of a string nobody asks whether that can be done, as of a program
        if not _Marker(module, path, marks).mark(begins=begins):
            return None
        ast.parse(source, path)  # for the warnings
        return compiled(module, path)
    except (SyntaxError, ValueError, RecursionError):
        return None


class _Marker(Statements):
    """Also beside what depends on more than one statement, for nobody else has the program's objects."""

    def __init__(self, module: ast.Module, path: str, marks: str) -> None:
        nodes = list(ast.walk(module))
        super().__init__(module, path, marks, nodes)
        self._managed = set(map(id, _may_swallow(nodes)))
        meant = set(map(id, meant_to_fail(nodes)))
        compared = [n for n in nodes if compares(n) and called(n) not in EXACT and id(n) not in meant]
        limits = {node: bad for node, bad in held_to_limits(nodes) if id(node) not in meant}
        self._codes = {id(call): name for call, name in _dropped_codes(module)}
        handlers = list(_catching(nodes))
        dropped: list[ast.AST] = []
        told: list[ast.AST] = []
        leaves: list[Leave] = []
        if compared or handlers or limits or _may_leave(nodes):
            program = Program(module, nodes, is_main=True)
            leaves = list(left_early(module, program))
            limits = dict(only_told(program, limits))
            dropped = [node for node in compared if program.only_says(node)]
            told = [node for node in dropped if called(node) in COMPARES and program.is_told(node)]
            handlers = [handler for handler in handlers if not program.reacts(handler.body, set())]
        self._leaves = leaves
        self._limits = {id(node): bad for node, bad in limits.items()}
        self._dropped = set(map(id, dropped))
        self._handlers = set(map(id, handlers))
        self._answering = set(map(id, _dropped_answers(module)))
        self._naming = set(map(id, _naming(module, nodes)))
        self._substituting = dict(_substituting(nodes))
        self._doubtful.update(map(id, (*_negated(nodes), *told)))

    def mark(self, *, begins: bool = False) -> bool:
        super().mark()
        for block, leave in self._leaves:
            mark = self._call("leaves", leave, ast.Constant(self._path), ast.Constant(leave.lineno))
            block.insert(block.index(leave), ast.copy_location(ast.Expr(mark), leave))
        if begins and self._has_marked:
            body = self._module.body
            place = next(i for i, node in enumerate(body) if not _comes_first(node))
            names = ast.Call(ast.Name("globals", ast.Load()), [], [])
            body.insert(place, ast.copy_location(ast.Expr(self._call("begins", body[place], names)), body[place]))
        ast.fix_missing_locations(self._module)
        return self._has_marked

    def visit_Call(self, node: ast.Call) -> ast.expr:
        super().visit_Call(node)
        return self._compared(node) if id(node) in self._dropped else self._limited(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node)
        if id(node) in self._naming:
            node.body = self._told("is_timed", node.body, name_of(node.body))
        return node

    def _only_compares(self, call: ast.Call) -> bool:
        return not has_out(call)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return self._limited(node)

    def _limited(self, node: ast.expr) -> ast.expr:
        bad = self._limits.get(id(node))
        if bad is None:
            return node
        place = ast.Constant(self._path), ast.Constant(node.lineno)
        return self._call("exceeds", node, node, ast.Constant(bad), *place)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        value = node.value
        if id(value) in self._codes:
            self.generic_visit(node)
            node.value = self._told("returns", node.value, self._codes[id(value)])
        elif id(value) in self._answering:
            self.generic_visit(node)
            node.value = self._told("answers", node.value, called(value))
        elif id(value) in self._dropped:
            self.generic_visit(node)
        else:
            super().visit_Expr(node)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        self.generic_visit(node)
        place = ast.Constant(self._path), ast.Constant(node.lineno)
        if id(node) in self._handlers:
            node.body.insert(0, ast.copy_location(ast.Expr(self._call("catches", node, *place)), node))
        if node in self._substituting:
            done = ast.Constant(self._substituting[node])
            node.body.insert(0, ast.copy_location(ast.Expr(self._call("substitutes", node, done, *place)), node))
        return node

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        """Whether an exception came out of what stands in it, and not out of it."""
        self.generic_visit(node)
        if id(node) not in self._managed:
            return [node]
        place = ast.Constant(self._path), ast.Constant(node.lineno)
        raised, done, after = (ast.Expr(self._call(mark, node, *place)) for mark in ("lets_out", "ends", "goes_on"))
        handler = ast.ExceptHandler(None, None, [raised, ast.Raise(None, None)])
        node.body = [ast.Try(node.body, [handler], [done], [])]
        for new in (raised, done, after, handler, handler.body[1], *node.body):
            ast.copy_location(new, node)
        return [node, after]


def _may_leave(nodes: Sequence[ast.AST]) -> bool:
    """Whether there are both a way out and an assertion."""
    return any(isinstance(n, ast.Assert) or is_check(called(n)) for n in nodes) and any(
        isinstance(n, ast.Return) or "xit" in name_of(n) for n in nodes
    )


def _catching(nodes: Iterable[ast.AST]) -> Iterator[ast.ExceptHandler]:
    """Handlers that a failed assertion may come to; not where that is expected, or tried again until it holds."""
    nodes = list(nodes)
    again = set(_tried_again(nodes))
    for node in nodes:
        if (
            isinstance(node, TRIES)
            and node not in again
            and not any(map(raises, within(node.orelse)))
            and not _leaves(node.body[-1])
        ):
            yield from (
                h for h in node.handlers if h.type is None or _FAILING.intersection(map(name_of, ast.walk(h.type)))
            )


def _substituting(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.ExceptHandler, str]]:
    """Handlers of whatever is raised that give another value to a name which the statements that raise it deal with, or
    return another one; and what they do.
    """
    tries: list[ast.Try] = [node for node in nodes if isinstance(node, TRIES)]
    for node in tries:
        tried = {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        returns = any(map(_returns_value, node.body))
        for handler in node.handlers:
            if handler.type is None or not _BROAD.isdisjoint(map(name_of, ast.walk(handler.type))):
                given = next((name for name in given_in(handler.body) if name in tried), None)
                if given is not None:
                    yield handler, f"{given} got another value"
                elif returns and any(map(_returns_value, handler.body)):
                    yield handler, "another value was returned"


def _returns_value(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant)


def _tried_again(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Those by whose success a loop ends that goes on for ever, or does something else where none has succeeded."""
    for loop in nodes:
        if isinstance(loop, LOOPS):
            goes_on = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
            ends = (ast.Break, ast.Return) if goes_on or loop.orelse else ast.Return
            for node in within(loop.body):
                if isinstance(node, TRIES) and any(isinstance(s, ends) for s in (*node.body, *node.orelse)):
                    yield node


def _may_swallow(nodes: Sequence[ast.AST]) -> Iterator[ast.With]:
    """Statements whose managers may let no failed assertion through, and are not asked about that later."""
    managers = {item.context_expr for node in nodes if isinstance(node, ast.With) for item in node.items}
    asked = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n not in managers}
    for node in nodes:
        if isinstance(node, ast.With) and not expects(node):
            suppresses = any(called(item.context_expr) == "suppress" for item in node.items)
            is_asked = any(
                item.optional_vars is not None or getattr(item.context_expr, "id", "") in asked for item in node.items
            )
            if suppresses or not is_asked:
                yield node


def _leaves(node: ast.stmt) -> bool:
    """Whether it says that it must not be come to: `raise`, an exit, `assert False`."""
    if isinstance(node, ast.Assert):
        return isinstance(node.test, ast.Constant)
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and raises(node.value))


def _negated(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Comparisons whose contrary is told: that something has changed, as it may have to."""
    tests = {id(node.test) for node in nodes if isinstance(node, (ast.If, ast.IfExp))}
    for node in nodes:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and id(node) not in tests:
            yield node.operand


def _comes_first(node: ast.stmt) -> bool:
    """Whether it has to stand at a module's begin."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _dropped_codes(module: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """The calls for which the program is there, statements of their own, of functions that return exit codes: of
    `main`, or of a guard's any; of an imported `main`, which may. Each with how it is called.
    """
    imports = (node for node in module.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    imported = {(each.asname or each.name).partition(".")[0] for node in imports for each in node.names}
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    guards = [
        node for node in module.body if isinstance(node, ast.If) and "__name__" in map(name_of, ast.walk(node.test))
    ]
    for block, is_guard in ((module.body, False), *((guard.body, True) for guard in guards)):
        for call in (node.value for node in block if isinstance(node, ast.Expr)):
            name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
            if _returns_clicks_code(call):
                yield call, called(call)
            elif called(call) == "main" and not ids_in(call).isdisjoint(imported):
                yield call, "the imported main"
            function = functions.get(name) if is_guard or name == "main" else None
            if function is not None and not function.decorator_list and _returns_codes(function):
                yield call, name


def _naming(module: ast.Module, nodes: Iterable[ast.AST]) -> Iterator[ast.Lambda]:
    """Those that only name something, and are given to what takes the time: `do_bench(lambda: kernel)`."""
    timing = {node.name for node in module.body if isinstance(node, ast.FunctionDef) and _takes_time(node)}
    for node in nodes:
        if isinstance(node, ast.Call) and (called(node) in timing or called(node) in _TIMING):
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            yield from (g for g in given if isinstance(g, ast.Lambda) and isinstance(g.body, (ast.Name, ast.Attribute)))


def _takes_time(function: ast.FunctionDef) -> bool:
    """Whether it reads a clock, and calls what it is given to have it run: not to call or return what comes."""
    nodes = walked(function)
    given = {argument.arg for argument in function.args.args}
    kept = {
        name
        for n in nodes
        if isinstance(n, ast.Assign) and called(n.value) in given
        for name in map(name_of, n.targets)
    }
    used = {called(n) for n in nodes} | {name_of(n.value) for n in nodes if isinstance(n, ast.Return)}
    return kept.isdisjoint(used) and not _CLOCKS.isdisjoint(map(name_of, nodes))


def _dropped_answers(module: ast.Module) -> Iterator[ast.expr]:
    """Calls, statements of their own, of functions of the module that check something and return whether it is so."""
    checks = [
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        and (node.name == "main" or is_checking(node.name))
        and _returns_truth(node)
    ]
    for statement in ast.walk(module) if checks else ():
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in checks:
            yield call


def _returns_truth(function: ast.FunctionDef) -> bool:
    """Whether it returns both `True` and `False`, or what a comparison comes to."""
    returned = [node.value for node in within(function.body) if isinstance(node, ast.Return) and node.value]
    values = {value.value for value in returned if isinstance(value, ast.Constant)}
    return bool(returned) and (values == {True, False} or any(isinstance(value, ast.Compare) for value in returned))


def _returns_clicks_code(call: ast.expr) -> bool:
    """Whether it is `cli(standalone_mode=False)`, which ends nothing and returns the code."""
    keywords = call.keywords if isinstance(call, ast.Call) else ()
    return any(k.arg == "standalone_mode" and getattr(k.value, "value", True) is False for k in keywords)


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
