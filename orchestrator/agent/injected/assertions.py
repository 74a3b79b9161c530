"""Which assertions a file of tests holds, and the marks beside them by which `checks` sees that they ran.

A mark is a statement on the line of what it marks, so that line numbers, tracebacks, coverage and pytest's own
explanations stay as they are. It is written as `isinstance(KEY, CLASS)`, KEY being text or a tuple of it, because
compilers of Python code, TorchDynamo above all, evaluate that while they trace: a call of a function they would take
for part of the program.
"""

from __future__ import annotations

import ast

from . import statements
from .callees import Callees
from .counterparts import must_not_raise
from .frames import codes_in
from .syntax import (
    BLOCKS,
    FUNCTIONS,
    LOOPS,
    PARTS,
    SCOPES,
    SETS,
    TRIES,
    ByKind,
    called,
    first_line,
    ids_in,
    imports,
    name_of,
    targets_of,
    walked,
    within,
)
from .truths import literals, why_method_holds, why_true

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable, Collection, Iterable, List, Sequence, Tuple

    from .callees import Spec

    Marks = Tuple[List[ast.stmt], List[ast.stmt]]  # before and after a statement

ISINSTANCE, SEEN = "@nsa_pod_isinstance", "@nsa_pod"
"""Names in `builtins`, and none that a program can write."""
COMPLETED = "!"
"""Before the key of a `try` whose body ended well."""
ENTERED = "*"
"""Before the key of an `all`, or an `any`, that had an element to look at."""
CALLED, VACUOUS, RETURNED, PAIR, THROUGH, ASSERTED = "called", "vacuous", "returned", "pair", "through", "asserted"
"""Begin marks that say which functions were called, why an assertion cannot fail, what has not failed the test, which
two functions are compared, that all elements were looked at, and what a name stands for that is asserted."""

_COPY = "something is compared with a copy of itself"
# Methods that mocks do not have, and that any mock makes up: those of `assert_called_once` and others without the word.
_MADE_UP = frozenset((
    "called_once", "called_once_with", "called_with", "called_any", "any_call", "has_calls", "not_called", "has_awaits",
    "awaited_once", "awaited_once_with", "awaited_with", "any_await", "not_awaited",
))  # fmt: skip
_OPERATORS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_LAZY = ("map", "filter", "functools.partial")
_MATCHES = tuple(getattr(ast, name) for name in ("Match",) if hasattr(ast, name))
_ORDERS = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)
_JUMPS = (ast.Return, ast.Break, ast.Continue)
_WATCHES = (ast.With, ast.AsyncWith, *TRIES)
_SIMPLE = frozenset((ast.Assert, ast.Expr, *SETS, ast.Return, ast.Import, ast.ImportFrom))
"""Statements that may be marked and hold no others."""
_LOAD = ast.Load()
_HELD = ByKind(lambda kind: [[n for n in names if n in kind._fields] for names in (BLOCKS, PARTS)])
"""The fields of a node by which it holds statements, and those by which it holds others that do."""


class Function:
    """A function of a file that stands in no other: whether it holds an assertion, and one that can fail; by which keys
    it is seen that one ran: of each of its assertions, and its own for those that an exception may well leave out.
    """

    __slots__ = ("assertions", "holds", "key", "line", "name", "owes")

    def __init__(self, name: str, line: int, key: str) -> None:
        self.name = name
        self.line = line
        self.key = key
        self.holds = self.owes = False
        self.assertions: list[str] = []


class Facts:
    """What a file's assertions are: its functions by their first lines."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_known = True  # but of what numba compiles
        self.asserts = 0  # statements, wherever they stand
        self._functions: dict[int, Function] = {}
        self._by_name: dict[str, list[Function]] = {}
        self._of: dict[int, tuple[CodeType, list[str], list[str]]] = {}  # by ids, for to compare codes takes longer

    def add(self, function: Function) -> None:
        self._functions[function.line] = function
        self._by_name.setdefault(function.name, []).append(function)

    def key(self, line: int) -> str:
        """Of the assertions in the function that begins at `line`; 0 is the module itself."""
        return f"{self.path}:{line}"

    def holds(self, line: int) -> bool:
        """Whether the function that begins at `line` holds an assertion."""
        return line in self._functions and self._functions[line].holds

    def ran_own(self, code: CodeType, ran: Collection[str]) -> bool:
        """Whether one of those that stand in `code` itself ran, by the keys of what did."""
        own = self._functions.get(code.co_firstlineno)
        return own is not None and own.owes and (own.key in ran or any(key in ran for key in own.assertions))

    def owed_by(self, code: CodeType) -> list[str]:
        """The keys of which one is to be seen when `code` has run: its own, and of the functions that it names."""
        return self._keys_of(code)[1]

    def assertions_of(self, code: CodeType) -> list[str]:
        """The keys of all assertions that stand in `code`, and in the functions that it names."""
        return self._keys_of(code)[2]

    def all_assertions(self) -> set[str]:
        """The keys of all that stand in the file's functions."""
        return {key for function in self._functions.values() for key in function.assertions}

    def assertions_at(self, line: int) -> list[str]:
        """The keys of those that stand there, in whichever function."""
        return [key for key in self.all_assertions() if key.endswith(f":{line}")]

    def _keys_of(self, code: CodeType) -> tuple[CodeType, list[str], list[str]]:
        """Both, of the function whose code it is, and of those of the file that it names."""
        known = self._of.get(id(code))
        if known is None:
            own = self._functions.get(code.co_firstlineno)
            named = [] if own is None else [own]
            for name in self._by_name.keys() & names_in(code):
                named += self._by_name[name]
            owed = [key for f in named if f.owes for key in (f.key, *f.assertions)]
            known = self._of[id(code)] = code, owed, [key for f in named for key in f.assertions]
        return known


def names_in(code: CodeType) -> set[str]:
    """What `code` names, and the functions inside it."""
    return set().union(*(each.co_names for each in codes_in(code)))


def mark(
    module: ast.Module, source: bytes, path: str, names: Collection[str] = (), *, tell_failures: bool = False
) -> Facts:
    """Put marks beside the assertions of `module`, and say where they are; `names` are the tree's packages. Those that
    fail say so before they do, with `tell_failures`.

    A file that imports numba is left alone: what numba compiles must not hold them.
    """
    facts = Facts(path)
    facts.is_known = b"numba" not in source or not imports(module, "numba")
    if facts.is_known:
        _name_calls(module)
        _Marker(facts, names).statements(module)
        for node in walked(module) if tell_failures else ():
            if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
                node.test = _or_fails(node.test)
    return facts


def _name_calls(module: ast.Module) -> None:
    """Note on calls by another name that a check was imported as, or was given in the file, what they call."""
    names: dict[str, str] = {}
    for node in module.body:
        if isinstance(node, ast.ImportFrom):
            names.update((a.asname, a.name) for a in node.names if a.asname and statements.is_check(a.name))
        elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            name = name_of(node.value)
            names.update((t.id, name) for t in node.targets if isinstance(t, ast.Name) and statements.is_check(name))
    for call in walked(module) if names else ():
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names:
            call.calls_check = names[call.func.id]  # type: ignore[attr-defined]


def _or_fails(test: ast.expr) -> ast.expr:
    """`test or SEEN.failing()`, which is false."""
    told = ast.Call(ast.Attribute(ast.Name(SEEN, _LOAD), "failing", _LOAD), [], [])
    either = ast.BoolOp(ast.Or(), [test, told])
    for node in (either, *walked(told)):
        ast.copy_location(node, test)
    return either


class _Marker:
    def __init__(self, facts: Facts, names: Collection[str]) -> None:
        self._facts = facts
        self._callees = Callees(names)
        self._function: Function | None = None
        self._outermost: ast.AST | None = None  # function
        self._checked: set[str] | None = None
        self._constants: dict[str, object] | None = None
        self._is_observed = False  # by a `with` or a `try` around
        self._expects = False  # a `with` around it that something is raised
        self._read: set[str] | None = None

    def statements(self, node: Any) -> None:
        """Mark the blocks of statements that `node` holds, at any depth."""
        blocks, parts = _HELD[type(node)]
        for name in blocks:
            setattr(node, name, [new for statement in getattr(node, name) for new in self._marked(statement)])
        for name in parts:
            for part in getattr(node, name):
                self.statements(part)

    def _marked(self, node: ast.stmt) -> list[ast.stmt]:
        if type(node) not in _SIMPLE:
            self._mark_inside(node)
        before, after = self._beside(node)
        return [*before, node, *after]

    def _mark_inside(self, node: ast.stmt) -> None:
        """Mark what a statement holds, by what it is to those."""
        outer, around = self._function, (self._is_observed, self._expects)
        if isinstance(node, FUNCTIONS):
            if outer is None:
                self._begin(node)
        elif isinstance(node, _WATCHES):
            self._is_observed = self._is_observed or statements.observes(node)
            self._expects = self._expects or statements.expects(node)
        self.statements(node)
        self._function = outer
        self._is_observed, self._expects = around
        if isinstance(node, TRIES):
            self._watch_handlers(node)

    def _begin(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function that stands in no other."""
        line = first_line(node)
        self._function = Function(node.name, line, self._facts.key(line))
        self._facts.add(self._function)
        self._outermost, self._checked, self._constants, self._read = node, None, None, None
        self._callees.begin()

    def _checked_names(self) -> set[str]:
        """What the checks of the function around look at; few functions have a handler for which it matters."""
        if self._function is None or self._outermost is None:
            return set()
        if self._checked is None:
            self._checked = set(statements.names_in_checks(self._outermost))
        return self._checked

    def _beside(self, node: ast.stmt) -> Marks:
        """The marks before and after a statement."""
        beside = _BESIDE.get(type(node))
        if beside is None:
            return [], []
        marks = beside(self, node)
        self._callees.note_copy(node)
        self._callees.note_result(node)
        return marks

    def _beside_import(self, node: ast.Import | ast.ImportFrom) -> Marks:
        self._callees.note_import(node)
        return [], []

    def _beside_with(self, node: ast.With | ast.AsyncWith) -> Marks:
        checks = [item.context_expr for item in node.items if statements.checks(item.context_expr)]
        return [], self._ran(node, self._callee(checks, "entered")) if checks else []

    def _beside_choice(self, node: Any) -> Marks:
        """That its condition was asked is the check."""
        before = [*self._ran(node), *self._ordered(node, node)] if statements.fails_in(node) else []
        self._watch_told(node)
        function = self._outermost if self._function else None
        for block, statement in must_not_raise(node, function) if isinstance(node, ast.If) else ():
            place = block.index(statement) + 1
            block[place:place] = self._ran(statement)
        return before, []

    def _beside_block(self, node: Any) -> Marks:
        return [], self._ran(node) if statements.fails_in(node) else []

    def _beside_return(self, node: ast.Return) -> Marks:
        return self._ran(node) if statements.checks(node) else [], []

    def _beside_assert(self, node: ast.Assert) -> Marks:
        self._facts.asserts += 1
        test = node.test
        if isinstance(test, ast.Tuple) and test.elts:
            return [self._says(node, "loses", "a tuple is asserted, which is always true")], []
        if isinstance(test, ast.Constant) and not test.value:  # as `pytest.fail()`
            return [], []
        why = why_true(test, self._literals(test))
        compares = isinstance(test, ast.Call) and called(test) in statements.COMPARES
        if why is None and compares and self._is_of_copies(test):  # type: ignore[arg-type]
            why = _COPY
        if why is not None:
            return [], self._vacuous(node, why)
        made_up = self._made_up(node, test)
        callee = self._callee([test], "asserted") if isinstance(test, (ast.Call, ast.Name, ast.Attribute)) else None
        after = self._ran(node, callee, self._callees.about([test]), self._callees.equal_by_class(test))
        if isinstance(test, ast.Call):
            after += self._compared(node, test)
            after += self._went_through(node, test)
        elif isinstance(test, ast.UnaryOp):
            after += self._ordered(node, test)
            after += self._went_through(node, test.operand)
        elif isinstance(test, ast.Name):
            after.append(_seen(node, (ASSERTED,), test))
        elif isinstance(test, ast.Compare) and all(map(statements.is_slice, (test.left, test.comparators[0]))):
            after.append(_call(node, "compared_slices", test.left, test.comparators[0]))
        return [], [*made_up, *after, *self._one_function(node, test)]

    def _made_up(self, node: ast.stmt, value: ast.expr) -> list[ast.stmt]:
        """What looks whether a mock made up the method that a test takes for an assertion: `m.called_once_with(1)`."""
        named = value.func if isinstance(value, ast.Call) else value
        if not isinstance(named, ast.Attribute) or named.attr not in _MADE_UP or not statements.is_plain(named.value):
            return []
        return [_call(node, "made_up", named.value, self._place(node), _constant(named.attr))]

    def _beside_plain(self, node: Any) -> Marks:
        after = self._beside_call(node)
        self._watch_told(node)
        return [], after

    def _beside_call(self, node: Any) -> list[ast.stmt]:
        marks: list[ast.stmt] = []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            functions = self._callees.note_assigned(node)
            if functions and not self._checked_names().isdisjoint(ids_in(*targets_of(node))):
                marks = [_seen(node, (CALLED, tuple(sorted(functions))))]
        if isinstance(node, ast.Expr) and called(node.value) == "fail":
            spec = self._callees.spec(node.value.func)  # type: ignore[attr-defined]
            return [_seen(node, (RETURNED, spec))] if spec is not None else []
        if isinstance(node, ast.Expr) and self._function is not None:
            place = self._place(node)
            named = self._names_what_fails(node.value)
            if named:
                return [self._says(node, "loses", f"{named} is named, and not called")]
            if statements.makes_exception(node.value) and not self._is_observed:
                node.value = _call(node, "made", node.value, place).value
                return []
            runs_nothing = self._runs_nothing(node.value)
            if runs_nothing and not self._is_observed:
                return [self._says(node, "drops", f"{runs_nothing} as a statement runs nothing")]
            if statements.is_with_message(node.value):  # as an assertion has it, without the word
                node.value = node.value.elts[0]  # type: ignore[attr-defined]
            if statements.is_comparison(node.value) and not self._is_observed:
                node.value = _dropped(node, place)
                return []
            marks += self._made_up(node, node.value)
        if not statements.checks(node):
            return marks
        call = node.value
        if not isinstance(node, ast.Expr) or not isinstance(call, ast.Call):
            return [*marks, *self._ran(node)]
        why = why_method_holds(called(call), call.args, self._literals(call))
        if why is None and statements.is_check(called(call)) and self._is_of_copies(call):
            why = _COPY
        if why is not None:
            return [*marks, *self._vacuous(node, why, self._callees.spec(call.func))]
        ran = self._ran(node, self._callee([call], "called"), self._callees.about([*call.args]))
        return [*marks, *ran, *self._one_function(node, call)]

    def _place(self, node: ast.stmt) -> ast.Constant:
        return _constant(f"{self._facts.path}:{node.lineno}")

    def _says(self, node: ast.stmt, method: str, what: str) -> ast.stmt:
        """What tells of a statement that can do nothing else than what is said of it."""
        return _call(node, method, _constant(what), self._place(node))

    def _names_what_fails(self, value: ast.expr) -> str:
        """What would fail the test, or end it, if it were called: `m.assert_called_once`, `pytest.fail`."""
        spec = None if isinstance(value, ast.Call) else self._callees.spec(value)
        if spec is None:
            return ""
        origin, _, name = (spec[2] or ".".join(filter(None, spec[:2]))).rpartition(".")
        is_known = name in statements.FAILS and origin in ("pytest", "sys", "self")
        return name if is_known or (isinstance(value, ast.Attribute) and name.startswith("assert")) else ""

    def _runs_nothing(self, value: ast.expr) -> str:
        """What a statement makes that would have to be gone through, or called: `map(check, sizes)`."""
        if isinstance(value, ast.GeneratorExp):
            return "a generator"
        spec = self._callees.spec(value.func) if isinstance(value, ast.Call) else None
        is_lazy = spec is not None and (spec[0] if not spec[2] and not spec[1] else spec[2]) in _LAZY
        return f"{called(value)}()" if is_lazy else ""

    def _watch_told(self, node: Any) -> None:
        """Have the comparisons tell how they came out of which the function makes no more than words."""
        if self._function is None or self._is_observed:
            return
        place = self._place(node)
        if isinstance(node, ast.If) and statements.only_tells(node):
            if node.orelse or statements.says_differ(node.test):  # else nothing is said of what is not equal
                node.test = _told(node.test, place)
        elif isinstance(node, ast.Assign) and statements.is_equality(node.value) and not self._is_read(node.targets):
            node.value = _told(node.value, place)
        elif isinstance(node, ast.Expr) and called(node.value) in statements.TELLS:
            node.value.args = [_told(argument, place) for argument in node.value.args]  # type: ignore[attr-defined]

    def _is_read(self, targets: Sequence[ast.expr]) -> bool:
        """Whether the function does more with what it assigns than to tell it."""
        if self._read is None and self._outermost is not None:
            self._read = set(statements.read_in(self._outermost))
        return not all(isinstance(t, ast.Name) and t.id not in (self._read or ()) for t in targets)

    def _callee(self, expressions: Sequence[ast.expr], way: str) -> tuple[Spec, str] | None:
        """What a statement calls, or asserts, that is a check by its name."""
        for node in expressions:
            spec = self._callees.spec(node.func if isinstance(node, ast.Call) else node)
            if spec is not None:
                return spec, way if isinstance(node, ast.Call) else "bare"
        return None

    def _is_of_copies(self, call: ast.Call) -> bool:
        """Whether a function, or a method, compares two things that have the same content."""
        of = [call.func.value] if len(call.args) == 1 and isinstance(call.func, ast.Attribute) else []
        operands = [*of, *call.args]
        return len(operands) > 1 and self._callees.is_copy(*operands[:2])

    def _compared(self, node: ast.Assert, call: ast.Call) -> list[ast.stmt]:
        """What looks at the arguments of a comparison again, where to look at them does nothing else: at one side of it
        alone, where the other is only calculated there.
        """
        if called(call) == "all":  # of all elements
            inside = getattr(call.func, "value", None) if not call.args else call.args[0]
            if isinstance(inside, ast.Compare) and statements.is_plain(inside.left):
                return [_call(node, "compared_all", inside.left)]
            call = inside if isinstance(inside, ast.Call) else call
        if called(call) not in statements.COMPARES or not isinstance(call.func, ast.Attribute):
            return []
        keywords = [k for k in call.keywords if k.arg]
        operands = [call.func.value, *call.args, *(k.value for k in keywords)]
        strange = [operand for operand in operands if not statements.is_plain(operand)]
        if len(keywords) < len(call.keywords):
            return []
        if len(strange) > 1:  # whatever they are: a relative tolerance of 1 lets zeros pass
            relative = [k for k in keywords if k.arg in ("rtol", "rel_tol") and isinstance(k.value, ast.Constant)]
            return [_call(node, "compared_with", _constant(1.0), keywords=relative)] if relative else []
        if not strange:
            return [_call(node, "compared", call.func.value, *call.args, keywords=keywords)]
        left = next((side for side in call.args[:2] if side is not strange[0]), None)
        return [_call(node, "compared_with", left, keywords=keywords)] if left and strange[0] in call.args[:2] else []

    def _one_function(self, node: ast.stmt, test: ast.expr) -> list[ast.stmt]:
        """What looks whether two functions whose results are compared are one: `impl = fast if HAS_TRITON else ref`."""
        pair = self._callees.pair(test)
        return [_seen(node, (PAIR, *pair))] if pair else []

    def _ordered(self, node: ast.stmt, test: Any) -> list[ast.stmt]:
        """What looks for NaN where a test fails if one side is larger, or smaller, than the other, which it never is:
        `assert not error > limit`, `if error > limit: pytest.fail()`.
        """
        asked = getattr(test, "operand", None) or getattr(test, "test", None)
        if not (isinstance(asked, ast.Compare) and len(asked.ops) == 1 and isinstance(asked.ops[0], _ORDERS)):
            return []
        sides = (asked.left, asked.comparators[0])
        return [_call(node, "ordered", *sides)] if all(map(statements.is_plain, sides)) else []

    def _went_through(self, node: ast.Assert, test: ast.expr) -> list[ast.stmt]:
        """What looks whether there was anything for `all(... for ... in ...)` to go through, or `not any(...)`: a mark
        among its conditions, which is false.
        """
        inside = test.args[0] if isinstance(test, ast.Call) and len(test.args) == 1 else None
        if called(test) not in ("all", "any") or not isinstance(inside, (ast.GeneratorExp, ast.ListComp)):
            return []
        key = f"{ENTERED}{self._facts.path}:{node.lineno}:{node.col_offset}"
        inside.generators[-1].ifs.append(ast.UnaryOp(ast.Not(), _is_seen(node, key), **_at(node)))
        return [_seen(node, (THROUGH, key))]

    def _literals(self, test: ast.expr) -> dict[str, object]:
        """The names in the function around that stand for a literal, where an expression may be about no more."""
        if self._constants is None and self._outermost is not None and statements.may_be_literal(test):
            self._constants = literals(self._outermost)
        return self._constants or {}

    def _vacuous(self, node: ast.stmt, why: str, called: Spec | None = None) -> list[ast.stmt]:
        if self._function is not None:
            self._function.holds = True
        return [_seen(node, (VACUOUS, why, called))]

    def _ran(
        self,
        node: ast.stmt,
        called: tuple[Spec, str] | None = None,
        about: Iterable[Spec] = (),
        equals: Iterable[Spec] = (),
    ) -> list[ast.stmt]:
        """That a check ran: by its function's key alone, or with what it was called by, is about, and compares with."""
        key = self._facts.key(0) if self._function is None else self._key_in(self._function, node)
        more = (called, tuple(sorted(set(about))), tuple(sorted(set(equals))))
        return [_seen(node, (key, *more) if any(more) else key)]

    def _key_in(self, function: Function, node: ast.stmt) -> str:
        function.holds = function.owes = True
        if self._expects:
            return function.key
        key = f"{function.key}:{node.lineno}"
        if key not in function.assertions:
            function.assertions.append(key)
        return key

    def _watch_handlers(self, node: Any) -> None:
        """Have a handler that neither raises nor checks tell which AssertionError it has swallowed; and a `finally`
        that is left by a jump.

        A handler that keeps it where a check of the same function looks has not.
        """
        key = f"{self._facts.path}:{node.lineno}"
        jumps = any(isinstance(inner, _JUMPS) for inner in within(node.finalbody))
        if jumps:
            node.finalbody = _before_jumps(node.finalbody, lambda jump: _swallows(jump, key, False, False))
        if any(map(statements.raises, within(node.orelse))):  # it expects what it catches
            return
        silent = [handler for handler in node.handlers if not any(map(statements.raises, within(handler.body)))]
        silent = [handler for handler in silent if self._checked_names().isdisjoint(statements.kept_in(handler.body))]
        for handler in silent:
            said = (any(map(statements.keeps, handler.body)), any(map(statements.answers, handler.body)))
            handler.body.insert(0, _swallows(handler.body[0], key, *said))
        if silent or jumps:
            done = COMPLETED + key
            node.body = [*_before_jumps(node.body, lambda jump: _seen(jump, done)), _seen(node.body[-1], done)]


_BESIDE: dict[type, Callable[[_Marker, Any], Marks]] = {
    ast.Assert: _Marker._beside_assert,
    **dict.fromkeys((ast.Expr, *SETS), _Marker._beside_plain),
    ast.Return: _Marker._beside_return,
    **dict.fromkeys((ast.Import, ast.ImportFrom), _Marker._beside_import),
    **dict.fromkeys((ast.With, ast.AsyncWith), _Marker._beside_with),
    **dict.fromkeys((ast.If, *_MATCHES), _Marker._beside_choice),
    **dict.fromkeys((*TRIES, *LOOPS), _Marker._beside_block),
}


def _at(node: ast.stmt) -> dict[str, Any]:
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.end_lineno,
        "end_col_offset": node.end_col_offset,
    }


def _constant(value: object) -> ast.Constant:
    return ast.Constant(value)  # type: ignore[arg-type, unused-ignore]


def _seen(at: ast.stmt, key: object, *values: ast.Name) -> ast.stmt:
    return ast.Expr(_is_seen(at, key, *values), **_at(at))


def _is_seen(at: ast.stmt, key: Any, *values: ast.Name) -> ast.expr:
    """A mark, with what some names stand for where it is; not by a call, as `compared` is, for it may be compiled."""
    function, seen = ast.Name(ISINSTANCE, _LOAD), ast.Name(SEEN, _LOAD)
    parts = [_constant(part) for part in key] if values else []
    made = ast.Tuple([*parts, *values], _LOAD) if values else _constant(key)
    call = ast.Call(function, [made, seen], [])
    place = _at(at)
    for node in (call, function, made, seen, *parts):  # to give each its place when it is made takes longer
        node.__dict__.update(place)
    return call


def _call(at: ast.stmt, method: str, *arguments: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Expr:
    function = ast.Attribute(ast.Name(SEEN, _LOAD), method, _LOAD)
    new = ast.Expr(ast.Call(function, list(arguments), list(keywords)))
    for node in walked(new):
        ast.copy_location(node, at)
    return new


def _dropped(node: ast.Expr, place: ast.Constant) -> ast.expr:
    """A comparison that is a statement of its own, with one that looks at what came out of it, and of what."""
    value = node.value
    operator = _OPERATORS.get(type(value.ops[0])) if isinstance(value, ast.Compare) and len(value.ops) == 1 else None
    if operator is None or not isinstance(value, ast.Compare):
        return _call(node, "dropped", value, place).value
    return _call(node, "dropped_of", value.left, value.comparators[0], _constant(operator), place).value


def _told(node: ast.expr, place: ast.Constant) -> ast.expr:
    """An equality, with one that looks at what came out of it; anything else as it is."""
    if not statements.is_equality(node):
        return node
    at = ast.copy_location(ast.Expr(node), node)
    return _call(at, "told", node, place, _constant(not statements.says_differ(node))).value


def _swallows(at: ast.stmt, key: str, keeps_it: bool, answers: bool) -> ast.stmt:
    return _call(at, "swallowed", *map(_constant, (key, keeps_it, answers)))


def _before_jumps(block: list[ast.stmt], made: Callable[[ast.stmt], ast.stmt]) -> list[ast.stmt]:
    """The block with a mark, as it is `made`, before each statement by which it is left."""
    marked: list[ast.stmt] = []
    for statement in block:
        if isinstance(statement, _JUMPS):
            marked.append(made(statement))
        elif not isinstance(statement, SCOPES):
            for name in BLOCKS:
                if isinstance(getattr(statement, name, None), list):
                    setattr(statement, name, _before_jumps(getattr(statement, name), made))
        marked.append(statement)
    return marked
