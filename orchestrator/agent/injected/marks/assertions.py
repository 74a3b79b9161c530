"""The marks beside the assertions of a file of tests, by which `checks` sees that they ran, and what is known of them.

A mark is a statement on the line of what it marks, so that line numbers, tracebacks, coverage and pytest's own
explanations stay as they are (`nodes` makes them).
"""

from __future__ import annotations

import ast
from functools import partial
from itertools import islice

from ..files import may_hold_limits
from ..source import statements
from ..source.limits import only_judges
from ..source.syntax import (
    BLOCKS,
    FUNCTIONS,
    LOOPS,
    PARTS,
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
from .callees import Callees
from .counterparts import must_not_raise
from .facts import Facts, Function
from .kinds import bound_once
from .largest import mark_largest
from .measures import Measures
from .nodes import (
    ASSERTED,
    CALLED,
    JUMPS,
    PAIR,
    RETURNED,
    VACUOUS,
    are_tolerances,
    before_jumps,
    call_seen,
    completed,
    constant,
    noted,
    or_fails,
    seen_mark,
    swallow_mark,
    watch_tolerances,
    with_dropped,
    with_escapes,
    with_told,
)
from .truths import why_message, why_method_holds, why_true
from .ways_out import WaysOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Iterable, List, Sequence, Tuple

    from .callees import Spec

    Marks = Tuple[List[ast.stmt], List[ast.stmt]]  # before and after a statement

# Methods that mocks do not have, and that any mock makes up: those of `assert_called_once` and others without the word.
_MADE_UP = frozenset((
    "called_once", "called_once_with", "called_with", "called_any", "any_call", "has_calls", "not_called", "has_awaits",
    "awaited_once", "awaited_once_with", "awaited_with", "any_await", "not_awaited",
))  # fmt: skip
SPARED = " (the comparison)"
"""Behind the line of an assertion: what of it a condition may spare."""
_LAZY = ("map", "filter", "functools.partial")
_MATCHES = tuple(getattr(ast, name) for name in ("Match",) if hasattr(ast, name))
_WATCHES = (ast.With, ast.AsyncWith, *TRIES)
_SIMPLE = frozenset((ast.Assert, ast.Expr, *SETS, ast.Return, ast.Import, ast.ImportFrom))
"""Statements that may be marked and hold no others."""
_HELD = ByKind(lambda kind: [[n for n in names if n in kind._fields] for names in (BLOCKS, PARTS)])
"""The fields of a node by which it holds statements, and those by which it holds others that do."""


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
        if may_hold_limits(source):
            from .limits import mark_limits

            mark_limits(module, path)
        tolerates = b"close" in source or b"equal(" in source
        _Marker(facts, names, module, tolerates=tolerates, lambdas=b"lambda" in source).statements(module)
        for node in walked(module) if tell_failures else ():
            if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
                node.test = or_fails(node.test)
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


def _see_close(asks: Any, compared: Sequence[ast.expr], place: str) -> None:
    """Have what is asked for any element that is close tell how many are not, but where one number is sought."""
    sides = [side for side in compared if statements.is_plain(side)]
    if not any(getattr(side, "value", None) for side in sides if isinstance(side, ast.Constant)):
        named = [side for side in sides if not isinstance(side, ast.Constant)]
        if asks.args:
            asks.args[0] = noted(asks.args[0], "some_close", place, *named)
        else:
            asks.func.value = noted(asks.func.value, "some_close", place, *named)


def _compares_plain(value: ast.expr) -> bool:
    return isinstance(value, ast.Compare) and all(map(statements.is_plain, (value.left, *value.comparators)))


class _Marker:
    def __init__(
        self, facts: Facts, names: Collection[str], module: ast.Module, *, tolerates: bool, lambdas: bool
    ) -> None:
        self._facts = facts
        self._defined = {node.name for node in module.body if isinstance(node, FUNCTIONS)}
        self._tolerates = tolerates  # whether anything may be held to a tolerance in the file; few are
        self._lambdas = lambdas  # whether there are any
        self._callees = Callees(names)
        self._measures = Measures(self._callees, facts.path)
        self._ways_out = WaysOut(self._callees)
        self._function: Function | None = None
        self._outermost: ast.AST | None = None  # function
        self._checked: set[str] | None = None
        self._bound: dict[str, ast.expr] | None = None
        self._is_observed = False  # by a `with` or a `try` around
        self._is_spare = False  # a `with` around it that something is raised, or a branch that fails at its end
        self._repeats = False  # in a loop of its own function
        self._only_made: set[int] = set()  # ids of comparisons that are all a loop does, and that no turn changes
        self._told_names: set[str] | None = None
        self._following: dict[ast.stmt, ast.stmt] = {}  # what stands behind a statement

    def statements(self, node: Any) -> None:
        """Mark the blocks of statements that `node` holds, at any depth."""
        blocks, parts = _HELD[type(node)]
        for name in blocks:
            block = getattr(node, name)
            self._watch_ways_out(block)
            is_spare, self._is_spare = self._is_spare, self._is_spare or statements.only_fails(node, block)
            self._following.update(zip(block, islice(block, 1, None)))
            setattr(node, name, [new for statement in block for new in self._marked(statement)])
            self._is_spare = is_spare
        for name in parts:
            for part in getattr(node, name):
                self.statements(part)

    def _watch_ways_out(self, block: list[ast.stmt]) -> None:
        """Of a block that ends by failing, that it was left at the last occasion is the check:
        `if a == b: return`, `raise AssertionError`.
        """
        if self._function is None or not block or not statements.fails(block[-1]):
            return
        for statement in reversed(block[:-1]):
            if isinstance(statement, ast.Return):  # in any case, and so nothing fails
                return
            if any(isinstance(inner, ast.Return) for inner in within([statement])):
                before_jumps([statement], partial(seen_mark, key=self._key_in(self._function, block[-1])))
                return

    def _marked(self, node: ast.stmt) -> list[ast.stmt]:
        node = statements.as_branch(node)
        if type(node) not in _SIMPLE:
            self._mark_inside(node)
        before, after = self._beside(node)
        return [*before, node, *after]

    def _mark_inside(self, node: ast.stmt) -> None:
        """Mark what a statement holds, by what it is to those."""
        outer, around = self._function, (self._is_observed, self._is_spare, self._repeats)
        if isinstance(node, FUNCTIONS):
            self._repeats = False
            if outer is None:
                self._begin(node)
        elif isinstance(node, _WATCHES):
            self._is_observed = self._is_observed or statements.observes(node)
            self._is_spare = self._is_spare or statements.expects(node)
        elif isinstance(node, LOOPS):
            self._repeats = True
            made = list(statements.repeated([node]))
            repeats = len(made) == len(node.body) and all(map(_compares_plain, made))
            if repeats and not self._has_checks():
                self._only_made.update(map(id, made))
        silent = self._silent_handlers(node) if isinstance(node, TRIES) else []
        self.statements(node)
        self._function = outer
        self._is_observed, self._is_spare, self._repeats = around
        if isinstance(node, TRIES):
            self._watch_handlers(node, silent)

    def _begin(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function that stands in no other."""
        line = first_line(node)
        self._function = Function(node.name, line, self._facts.key(line))
        self._function.judges = only_judges(node)  # before what it returns is marked
        self._facts.add(self._function)
        self._outermost, self._checked, self._bound, self._told_names = node, None, None, None
        self._callees.begin()
        self._measures = Measures(self._callees, self._facts.path, node.args)
        self._ways_out = WaysOut(self._callees)

    def _has_checks(self) -> bool:
        """Whether the function around checks anything: a bench does not."""
        inside = walked(self._outermost) if self._outermost is not None else ()
        return any(isinstance(n, ast.Assert) or statements.is_check(called(n)) for n in inside)

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
        if checks:
            return [], self._ran(node, self._callee(checks, "entered"))
        return [], [with_escapes(node, f"{self._facts.path}:{node.lineno}")] if self._may_keep_failures(node) else []

    def _may_keep_failures(self, node: ast.With | ast.AsyncWith) -> bool:
        """Whether an assertion stands in a `with` of what no check looks at."""
        if self._function is None or self._is_observed:
            return False
        if not any(isinstance(inner, ast.Assert) or statements.checks(inner) for inner in within(node.body)):
            return False
        named = [part for item in node.items for part in (item.context_expr, item.optional_vars) if part is not None]
        return self._checked_names().isdisjoint(ids_in(*named))

    def _beside_choice(self, node: Any) -> Marks:
        """That its condition was asked is the check."""
        before = [*self._ran(node), *self._measures.ordered(node, node)] if statements.fails_in(node) else []
        self._watch_told(node)
        after = []
        if isinstance(node, ast.If) and self._function is not None:
            self._ways_out.note(node, self._measures.is_limit)
        if isinstance(node, ast.If) and not node.orelse and any(map(statements.fails, node.body)):
            self._watch_tolerances(node.test)
            after = self._measures.limited(node, ast.UnaryOp(ast.Not(), node.test))
        function = self._outermost if self._function else None
        for block, statement in must_not_raise(node, function) if isinstance(node, ast.If) else ():
            place = block.index(statement) + 1
            block[place:place] = self._ran(statement)
        return before, after

    def _beside_block(self, node: Any) -> Marks:
        return [], self._ran(node) if statements.fails_in(node) else []

    def _beside_return(self, node: ast.Return) -> Marks:
        self._watch_tolerances(node.value)
        return self._ran(node) if statements.checks(node) else [], []

    def _beside_assert(self, node: ast.Assert) -> Marks:
        self._facts.asserts += 1
        test = node.test
        if isinstance(test, ast.Tuple) and test.elts:
            return [self._says(node, "loses", "a tuple is asserted, which is always true")], []
        if isinstance(test, ast.Constant) and not test.value:  # as `pytest.fail()`
            return [], []
        why = why_true(test, self._bound_names(test)) or why_message(test, node.msg)
        compares = isinstance(test, ast.Call) and called(test) in statements.COMPARES
        if why is None and compares:
            why = self._callees.why_compared(test)  # type: ignore[arg-type]
        if why is not None:
            return [], self._vacuous(node, why)
        made_up = self._made_up(node, test)
        callee = self._callee([test], "asserted") if isinstance(test, (ast.Call, ast.Name, ast.Attribute)) else None
        after = self._ran(node, callee, self._callees.about([test]), self._callees.equal_by_class(test))
        for way in self._ways_out.before(test):
            way.body[:0] = [*self._ran(node), *self._measures.limited(way, way.test)]
        compared = self._measures.compared(node, test) if isinstance(test, ast.Call) else []
        if not compared:
            self._watch_tolerances(test)
        after += compared
        if isinstance(test, ast.Call):
            after += self._measures.went_through(node, test)
        elif isinstance(test, ast.UnaryOp):
            after += self._measures.ordered(node, test)
            after += self._measures.none_beyond(node, test.operand)
            after += self._measures.went_through(node, test.operand)
        elif isinstance(test, ast.Name):
            after.append(seen_mark(node, (ASSERTED,), test))
        elif isinstance(test, ast.Compare) and statements.counts_none(test):
            after += self._measures.none_beyond(node, test.left)
        elif isinstance(test, ast.Compare) and all(map(statements.is_slice, (test.left, test.comparators[0]))):
            after.append(call_seen(node, "compared_slices", test.left, test.comparators[0]))
        elif isinstance(test, ast.Compare) and all(name_of(s) == "grad" for s in (test.left, *test.comparators)):
            after.append(call_seen(node, "compared_gradients", test.left, *test.comparators))
        elif isinstance(test, ast.Compare) and statements.are_truths(test):
            sides = (side.func.value if not side.args else side.args[0] for side in (test.left, *test.comparators))  # type: ignore[attr-defined]
            after.append(call_seen(node, "compared_truths", *sides))
        self._watch_spared(node)
        close = statements.any_close(test) if isinstance(test, ast.Call) else ()
        if close:
            _see_close(test, close, f"{self._facts.path}:{node.lineno}")
        if statements.any_of_pairs(test):
            after.append(self._says(node, "doubts", "any() of compared pairs is asserted, and not all() of them"))
        asked = statements.limited(test)
        if asked is not None:
            after += mark_largest(node, asked[0], self._outermost, self._facts.path)
        worded = statements.worded(test)
        if worded is not None:
            after.append(call_seen(node, "worded", worded))
        return [], [*made_up, *after, *self._one_function(node, test), *self._measures.limited(node, test)]

    def _watch_spared(self, node: ast.Assert) -> None:
        """Comparisons that something before them may spare are due for themselves."""
        function = self._function
        if function is None or self._is_spare:
            return
        for holder, place in statements.spared(node.test):
            key = self._key_in(function, node) + SPARED
            if key not in function.assertions:
                function.assertions.append(key)
            holder[place] = noted(holder[place], "ran", key)

    def _watch_tolerances(self, node: ast.expr | None) -> None:
        if self._tolerates:
            watch_tolerances(node)

    def _made_up(self, node: ast.stmt, value: ast.expr) -> list[ast.stmt]:
        """What looks whether a mock made up the method that a test takes for an assertion: `m.called_once_with(1)`."""
        named = value.func if isinstance(value, ast.Call) else value
        if not isinstance(named, ast.Attribute) or named.attr not in _MADE_UP or not statements.is_plain(named.value):
            return []
        return [call_seen(node, "made_up", named.value, self._place(node), constant(named.attr))]

    def _beside_plain(self, node: Any) -> Marks:
        self._mark_lambdas(node)
        after = self._beside_call(node)
        self._watch_told(node)
        return [], after

    def _mark_lambdas(self, node: ast.stmt) -> None:
        """Have the checks tell that they ran that lambdas hold: nothing is wrong where nobody calls them."""
        for function in walked(node) if self._lambdas and self._function is not None else ():
            if isinstance(function, ast.Lambda) and statements.is_check(called(function.body)):
                self._function.holds = True  # type: ignore[union-attr]
                function.body = noted(function.body, "ran", self._function.key)  # type: ignore[union-attr]

    def _beside_call(self, node: Any) -> list[ast.stmt]:
        marks: list[ast.stmt] = []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            functions = self._callees.note_assigned(node)
            looked_at = bool(functions) or (self._tolerates and are_tolerances(node.value))
            looked_at = looked_at and not self._checked_names().isdisjoint(ids_in(*targets_of(node)))
            if looked_at:
                self._watch_tolerances(node.value)
            if functions and looked_at:
                marks = [seen_mark(node, (CALLED, tuple(sorted(functions))))]
        if isinstance(node, ast.Expr) and called(node.value) == "fail":
            spec = self._callees.spec(node.value.func)  # type: ignore[attr-defined]
            return [seen_mark(node, (RETURNED, spec))] if spec is not None else []
        if isinstance(node, ast.Expr) and self._function is not None:
            place = self._place(node)
            named = self._names_what_fails(node.value)
            if named:
                return [self._says(node, "loses", f"{named} is named, and not called")]
            if statements.makes_exception(node.value) and not self._is_observed:
                node.value = call_seen(node, "made", node.value, place).value
                return []
            runs_nothing = self._runs_nothing(node.value)
            if runs_nothing and not self._is_observed:
                return [self._says(node, "drops", f"{runs_nothing} as a statement runs nothing")]
            if statements.is_with_message(node.value):  # as an assertion has it, without the word
                node.value = node.value.elts[0]  # type: ignore[attr-defined]
            is_to_hold = not self._is_observed and id(node.value) not in self._only_made
            if is_to_hold and statements.is_comparison(node.value):
                node.value = with_dropped(node, place, self._repeats)
                return []
            if not self._is_observed and self._may_judge(node.value):
                key = f"{self._facts.path}:{node.lineno}"
                node.value = noted(node.value, "judged", key, node.value.func)  # type: ignore[attr-defined]
                return marks
            marks += self._made_up(node, node.value)
        if not statements.checks(node):
            return marks
        call = node.value
        if isinstance(node, ast.Expr):
            watch_tolerances(call)
        if not isinstance(node, ast.Expr) or not isinstance(call, ast.Call):
            return [*marks, *self._ran(node)]
        why = why_method_holds(called(call), call.args, self._bound_names(call))
        if why is None and statements.is_check(called(call)):
            why = self._callees.why_compared(call)
        if why is not None:
            return [*marks, *self._vacuous(node, why, self._callees.spec(call.func))]
        asserted = call.args[:1] if called(call) == "assertTrue" else []
        is_named = bool(asserted) and isinstance(asserted[0], (ast.Name, ast.Attribute))
        callee = self._callee(asserted, "asserted") if is_named else self._callee([call], "called")
        ran = self._ran(node, callee, self._callees.about([*call.args]))
        return [*marks, *ran, *self._one_function(node, call)]

    def _place(self, node: ast.stmt) -> ast.Constant:
        return constant(f"{self._facts.path}:{node.lineno}")

    def _says(self, node: ast.stmt, method: str, what: str) -> ast.stmt:
        """What tells of a statement that can do nothing else than what is said of it."""
        return call_seen(node, method, constant(what), self._place(node))

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

    def _may_judge(self, value: ast.expr) -> bool:
        """Whether it gives two things to a function that may do no more than to return whether they agree."""
        if not isinstance(value, ast.Call) or len(value.args) < 2 or statements.is_check(called(value)):
            return False
        name, attributes, origin = self._callees.spec(value.func) or ("", "", "")
        return bool(origin) or (name == "self" if attributes else name in self._defined)

    def _watch_told(self, node: Any) -> None:
        """Have the comparisons tell how they came out of which the function makes no more than words."""
        if self._function is None or self._is_observed:
            return
        place = self._place(node)
        if isinstance(node, ast.If):
            says = node.orelse or statements.says_differ(node.test)  # else nothing is said of what is not equal
            if says and statements.is_equality(node.test) and statements.only_tells(node, self._told):
                node.test = with_told(node.test, place)
        elif isinstance(node, ast.Assign) and statements.is_equality(node.value) and self._are_told(node.targets):
            node.value = with_told(node.value, place)
        elif isinstance(node, ast.Expr) and statements.tells(node.value):
            node.value.args = [with_told(argument, place) for argument in node.value.args]  # type: ignore[attr-defined]

    def _are_told(self, targets: Sequence[ast.expr]) -> bool:
        """Whether the function does no more with what it assigns than to tell it."""
        return all(isinstance(target, ast.Name) and target.id in self._told() for target in targets)

    def _told(self) -> set[str]:
        if self._told_names is None:
            self._told_names = statements.told_in(self._outermost) if self._outermost is not None else set()
        return self._told_names

    def _callee(self, expressions: Sequence[ast.expr], way: str) -> tuple[Spec, str] | None:
        """What a statement calls, or asserts, that is a check by its name."""
        for node in expressions:
            spec = self._callees.spec(node.func if isinstance(node, ast.Call) else node)
            if spec is not None:
                return spec, way if isinstance(node, ast.Call) else "bare"
        return None

    def _one_function(self, node: ast.stmt, test: ast.expr) -> list[ast.stmt]:
        """What looks whether two functions whose results are compared are one: `impl = fast if HAS_TRITON else ref`."""
        pair = self._callees.pair(test)
        return [seen_mark(node, (PAIR, *pair))] if pair else []

    def _bound_names(self, test: ast.expr) -> dict[str, ast.expr]:
        """The names that the function around binds once, where an expression may be about no more."""
        if self._bound is None and self._outermost is not None and statements.may_be_bound(test):
            self._bound = bound_once(self._outermost)
        return self._bound or {}

    def _vacuous(self, node: ast.stmt, why: str, called: Spec | None = None) -> list[ast.stmt]:
        if self._function is not None:
            self._function.holds = True
        return [seen_mark(node, (VACUOUS, why, called))]

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
        return [seen_mark(node, (key, *more) if any(more) else key)]

    def _key_in(self, function: Function, node: ast.stmt) -> str:
        function.holds = function.owes = True
        if self._is_spare:
            return function.key
        key = f"{function.key}:{node.lineno}"
        if key not in function.assertions:
            function.assertions.append(key)
        return key

    def _silent_handlers(self, node: Any) -> list[ast.ExceptHandler]:
        """Those that neither raise nor check, nor keep what they catch where a check of the same function looks, and
        that the test passes without."""
        after = self._following.get(node)
        silent = [handler for handler in node.handlers if not statements.is_awaited(handler, node, after)]
        silent = [handler for handler in silent if not any(map(statements.raises, within(handler.body)))]
        return [handler for handler in silent if self._checked_names().isdisjoint(statements.kept_in(handler.body))]

    def _watch_handlers(self, node: Any, silent: Sequence[ast.ExceptHandler]) -> None:
        """Have the `silent` ones tell which AssertionError they have swallowed; and a `finally` that a jump leaves."""
        key = f"{self._facts.path}:{node.lineno}"
        jumps = any(isinstance(inner, JUMPS) for inner in within(node.finalbody))
        if jumps:
            node.finalbody = before_jumps(node.finalbody, lambda jump: swallow_mark(jump, key, False, False))
        for handler in silent:
            said = (any(map(statements.keeps, handler.body)), any(map(statements.answers, handler.body)))
            handler.body.insert(0, swallow_mark(handler.body[0], key, *said))
        if silent or jumps:
            node.body = completed(node.body, key)


_BESIDE: dict[type, Callable[[_Marker, Any], Marks]] = {
    ast.Assert: _Marker._beside_assert,
    **dict.fromkeys((ast.Expr, *SETS), _Marker._beside_plain),
    ast.Return: _Marker._beside_return,
    **dict.fromkeys((ast.Import, ast.ImportFrom), _Marker._beside_import),
    **dict.fromkeys((ast.With, ast.AsyncWith), _Marker._beside_with),
    **dict.fromkeys((ast.If, *_MATCHES), _Marker._beside_choice),
    **dict.fromkeys((*TRIES, *LOOPS), _Marker._beside_block),
}
