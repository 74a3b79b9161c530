"""Whether a program tells a status from 0 that it looks at, by what all that it makes of it comes to with either.

`min(codes)`, `codes[0]`, `any(c == 0 for c in codes)` and `code > 1` take a 1 for a 0, where the others that they look
at are 0. The statements that read a status are run by themselves, with it and with 0, as far as they are made of values
alone. What does more than that, or cannot be read, may tell them apart. As
`orchestrator/agent/evidence/shell/numbers.py` has it for shells.
"""

from __future__ import annotations

import ast
import builtins
import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Iterable, Iterator, NamedTuple, Sequence

from .syntax import LOOPS, SETS, called, ids_in, name_of, targets_of, walked

if TYPE_CHECKING:
    from .uses import Program

_OF_ANY_FAILURE = (1, 2)
"""The codes with which Python, and most programs, end where something failed; others are chosen by somebody."""
_EXITS = ("exit", "quit", "_exit", "SystemExit")
_COLLECTING = ("append", "add", "extend", "insert", "update", "setdefault")
_FUNCTIONS: dict[str, Any] = {
    name: getattr(builtins, name)
    for name in (
        "abs", "all", "any", "bool", "dict", "enumerate", "filter", "float", "int", "len", "list", "max", "min", "next",
        "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
    )
}  # fmt: skip
_VALUES = (
    ast.Constant, ast.Name, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.IfExp, ast.Call,
    ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.Subscript, ast.Slice, ast.Starred,
)  # fmt: skip
_STATEMENTS = (*SETS, ast.Expr, ast.If, ast.Pass, ast.Return, ast.FunctionDef)
_COSTLY = (ast.Pow, ast.LShift)
_REPEATING = (ast.Mult, ast.Mod)  # of a list or a text, they make one of any size
_MOST_TURNS = 10_000
"""Of all comprehensions together, in one run."""
_MOST_RUNS = 200
"""Of which one takes a millisecond or less: whoever asks more of a status may tell it apart."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STATUS, _OTHERS, _KNOWN = "_nsa_pod_status", "_nsa_pod_others", "_nsa_pod_known"
_TURNING, _NUMBER = "_nsa_pod_turning", "_nsa_pod_number"
_FOUND, _REST = "_nsa_pod_found", "_nsa_pod_rest"
_GOES_ON = "_nsa_pod_goes_on"
"""What comes of a block that does not return: more of its function is behind it."""
_TURNS = 3
"""Of a loop, in one of which there is the status."""


class _Unknown(Exception):
    """What it comes to depends on something else."""


class _Pair(NamedTuple):
    """What something is with the status, and with 0 in its place."""

    given: Any
    zero: Any

    @property
    def is_one(self) -> bool:
        try:
            return type(self.given) is type(self.zero) and bool(self.given == self.zero)
        except _Unknown:  # of what is kept beside a status
            return False


class _Other:
    """What has nothing to do with a status: it can be kept, gone over and called, and not asked."""

    def __bool__(self) -> bool:
        raise _Unknown

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self)

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Iterator[_Other]:
        return iter([_Other() for _ in range(_TURNS)])

    def __len__(self) -> int:
        return _TURNS

    def __getattr__(self, name: str) -> _Other:
        return _Other()

    def __getitem__(self, index: object) -> _Other:
        return _Other()

    def __call__(self, *given: object, **named: object) -> _Other:
        if all(isinstance(value, _Other) for value in (*given, *named.values())):
            return _Other()
        raise _Unknown


class Status:
    """The `code` that an expression of a program gave."""

    def __init__(self, program: Program, origin: ast.expr, code: int) -> None:
        self._program, self._origin, self._code = program, origin, code
        self._chosen = {code, code >> 8}.difference(_OF_ANY_FAILURE)  # os.system has it in the second byte
        self._ways = {_way(origin)}  # in which it, and the same status of others, come
        self._seen: set[tuple[str, ast.AST]] = set()
        self._runs = iter(range(_MOST_RUNS))
        self._sets: dict[str, list[tuple[ast.AST, ast.expr]]] = {}  # names, by what in the program
        for node in program.nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for name in map(name_of, targets_of(node)):
                    self._sets.setdefault(name, []).append((node, node.value))

    def is_as_0(self) -> bool:
        try:
            return self._is_same(self._origin, _Pair(self._code, 0))
        except Exception:  # of any kind: what is run here is the program's
            return False

    def _is_same(self, node: ast.expr, pair: _Pair) -> bool:
        """Whether nothing comes to anything else of all that depends on what `node` gives."""
        statement = self._program.statement(node)
        key = (name_of(node) or _STATUS, statement)
        if key in self._seen:
            return True
        self._seen.add(key)
        if any(self._is_left_out(inner, above, node, pair) for inner, above in self._program.around(node)):
            return True
        ends = _exit_of(statement)
        if ends is not None:
            return not any(map(_as_exit_code, self._come_to(ends, node, pair)))
        if self._only_says(statement):
            return not self._program.is_worked_with(node, statement)
        if isinstance(statement, (ast.If, ast.While, ast.Assert)):
            asked = self._come_to(statement.test, node, pair)
            if asked.is_one:
                return _goes_on(statement, bool(asked.given))
            return isinstance(statement, ast.If) and self._branches_to_the_same(statement, node, pair)
        if isinstance(statement, ast.Return) and statement.value is not None:
            return self._is_handed_on(statement, self._come_to(statement.value, node, pair))
        if isinstance(statement, ast.For):
            return self._goes_over_the_same(statement, self._come_to(statement.iter, node, pair))
        return self._sets_the_same(statement, node, pair)

    def _is_left_out(self, inner: ast.AST, above: ast.AST, node: ast.expr, pair: _Pair) -> bool:
        """Whether a question about the same name leaves a branch out, with either."""
        if not isinstance(above, ast.If) or inner is above.test or not isinstance(node, ast.Name):
            return False
        asked = (n for n in walked(above.test) if isinstance(n, ast.Name) and n.id == node.id)
        answers = (self._come_to(above.test, n, pair) for n in asked)
        return any(answer.is_one and bool(answer.given) is not (inner in above.body) for answer in answers)

    def _branches_to_the_same(self, statement: ast.If, node: ast.expr, pair: _Pair) -> bool:
        if not any(isinstance(inner, ast.Return) for inner in walked(statement)):
            return self._sets_the_same(statement, node, pair)
        block = self._program.block_of(statement)
        function = self._program.function_of(statement)
        goes_on = [] if block is getattr(function, "body", None) else [ast.Return(ast.Constant(_GOES_ON))]
        rest = ast.FunctionDef(_REST, _no_arguments(), [*block[block.index(statement) :], *goes_on], [])
        found = self._come_to(_call(_REST), node, pair, rest)
        return found.is_one or (_GOES_ON not in found and self._is_handed_on(statement, found))

    def _sets_the_same(self, statement: ast.stmt, node: ast.expr, pair: _Pair) -> bool:
        """Whether what a statement sets is the same, or what depends on that."""
        self._leave_what_was_chosen(*(n for n in walked(statement) if isinstance(n, ast.Compare)))
        names = {name for inner in walked(statement) if isinstance(inner, ast.stmt) for name in self._set_by(inner)}
        found = [self._run([statement], node, of, pair.zero) for of in pair]
        pairs = {name: _Pair(*(values[name] for values in found)) for name in names}
        return all(pairs[name].is_one or self._is_read_the_same(name, statement, pairs[name]) for name in names)

    def _only_says(self, statement: ast.AST) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        return isinstance(call, ast.Call) and self._program.says(call)

    def _set_by(self, statement: ast.stmt) -> Iterator[str]:
        if isinstance(statement, SETS):
            kept: Sequence[ast.expr] = targets_of(statement)
        elif isinstance(statement, ast.Expr) and not self._only_says(statement):
            method = getattr(statement.value, "func", None)
            collects = isinstance(method, ast.Attribute) and method.attr in _COLLECTING
            kept = [method.value] if collects else [statement.value]  # type: ignore[union-attr]
        else:
            return
        for target in kept:
            named = target.value if isinstance(target, ast.Subscript) else target
            if not isinstance(named, ast.Name):
                raise _Unknown
            yield named.id

    def _is_read_the_same(self, name: str, statement: ast.stmt, pair: _Pair) -> bool:
        function = self._program.function_of(statement) or self._program.module
        within = set(walked(statement))
        is_filled = not any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in within)
        if self._program.scope_of(name, statement) is not function or (
            self._program.is_of_others(name, function, statement, is_filled=is_filled)
        ):
            return False
        inside = walked(function)
        read = (n for n in inside if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
        return all(self._is_same(n, pair) for n in read if n not in within)

    def _is_handed_on(self, statement: ast.stmt, pair: _Pair) -> bool:
        """Of what a function returns: whether its callers depend on it, who are all known of the program itself."""
        name = getattr(self._program.function_of(statement), "name", "")
        self._ways.add(f"{name}()")
        calls = [n for n in self._program.nodes if isinstance(n, ast.Call) and called(n) == name]
        named = [n for n in self._program.nodes if isinstance(n, (ast.Name, ast.Attribute)) and name_of(n) == name]
        are_all = self._program.is_main and bool(calls) and len(named) == len(calls)
        return pair.is_one or (are_all and all(self._is_same(call, pair) for call in calls))

    def _goes_over_the_same(self, statement: ast.For, pair: _Pair) -> bool:
        """Of a loop over statuses, the turns that differ."""
        given, zero = list(pair.given), list(pair.zero)
        if len(given) != len(zero) or not isinstance(statement.target, ast.Name):
            return False
        read = [n for n in walked(*statement.body) if isinstance(n, ast.Name) and n.id == statement.target.id]
        turns = (turn for turn in map(_Pair, given, zero) if not turn.is_one)
        return all(self._is_same(n, turn) for turn in turns for n in read)

    def _come_to(self, asked: ast.expr, node: ast.expr, pair: _Pair, *before: ast.stmt) -> _Pair:
        """What an expression that a status is part of comes to."""
        self._leave_what_was_chosen(asked, *before)
        block = [*before, ast.Assign([ast.Name(_FOUND, ast.Store())], asked)]
        return _Pair(*(self._run(block, node, of, pair.zero, once=True)[_FOUND] for of in pair))

    def _leave_what_was_chosen(self, *asked: ast.AST) -> None:
        """Who asks for a code that was chosen takes it for what it is."""
        named = (n.value if isinstance(n, ast.Constant) else self._initial(name_of(n)) for n in walked(*asked))
        each = (v for value in named for v in (value if isinstance(value, (tuple, list, set, dict)) else (value,)))
        if any(type(v) is int and v and v in self._chosen for v in each):
            raise _Unknown

    def _run(
        self, block: Sequence[ast.stmt], node: ast.expr, value: Any, zero: Any, *, once: bool = False
    ) -> dict[str, Any]:
        """What names stand for after statements in which `node` gives `value`: in a loop between two turns in which it
        gives `zero`, as the same status of others is.
        """
        if next(self._runs, None) is None:
            raise _Unknown
        above = [a for _, a in self._program.around(node)]
        looping = [] if isinstance(node, ast.Name) else [a for a in above if isinstance(a, _COMPREHENSIONS)]
        made = [self._remade(statement, node, looping) for statement in block]
        if not all(map(_is_of_values, walked(*made))):
            raise _Unknown
        names = ids_in(*made)
        values = {name: self._initial(name, block) for name in names}
        values.update({"__builtins__": {}, _OTHERS: _Other(), _KNOWN: _known, _NUMBER: _number})
        values[_TURNING] = partial(_turning, iter(range(_MOST_TURNS)))
        others = [name for name in names if isinstance(values[name], _Other) and name != _OTHERS]
        code = compile(ast.fix_missing_locations(ast.Module(made, [])), "<status>", "exec")
        in_turns = not once and any(isinstance(a, LOOPS) for a in above) and not all(map(_sets_anew, block))
        for turn in (zero, value, zero) if in_turns else (value,):
            gives = iter((zero, turn, zero) if looping else (turn,))
            values.update({name: _Other() for name in others})
            values[_STATUS] = lambda gives=gives: next(gives, zero)
            if isinstance(node, ast.Name):
                values[node.id] = turn
            exec(code, values)  # of values alone
        return values

    def _remade(self, part: Any, node: ast.expr, looping: Sequence[ast.AST]) -> Any:
        """A copy of a part of the program: with a call in the place of `node`, 0 where others give such a status, and
        three turns in the comprehensions around it; without words.
        """
        if isinstance(part, list):
            return [self._remade(inner, node, looping) for inner in part]
        if not isinstance(part, ast.AST):
            return part
        if part is node and not isinstance(node, ast.Name):
            return _call(_STATUS)
        if self._is_of_another(part):
            return ast.Constant(0)
        if self._only_says(part):
            return ast.Pass()
        made = type(part)(**{name: self._remade(of, node, looping) for name, of in ast.iter_fields(part)})
        if isinstance(made, ast.Compare):
            made.left = _call(_KNOWN, made.left)
            made.comparators = [_call(_KNOWN, side) for side in made.comparators]
        if isinstance(made, ast.BinOp) and isinstance(made.op, _REPEATING):
            made.left, made.right = _call(_NUMBER, made.left), _call(_NUMBER, made.right)
        if isinstance(made, ast.comprehension):
            made.iter = _call(_TURNING, made.iter)
        if part in looping:
            made.generators[0].iter = ast.Name(_OTHERS, ast.Load())  # type: ignore[attr-defined]
        return made

    def _is_of_another(self, node: ast.AST) -> bool:
        return isinstance(node, (ast.Call, ast.Attribute)) and _way(node) in self._ways

    def _initial(self, name: str, block: Sequence[ast.stmt] = ()) -> Any:
        """What a name stands for at first: a function of Python's, a literal, or the same status of something else."""
        sets = self._sets.get(name, ())
        within = set(walked(*block)) if sets else ()
        found = [value for node, value in sets if node not in within]
        if not found and name in _FUNCTIONS:
            return _FUNCTIONS[name]
        if any(map(self._is_of_another, found)):
            return 0
        try:
            literals = [ast.literal_eval(value) for value in found]
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            literals = []
        is_one = bool(literals) and all(_Pair(literals[0], other).is_one for other in literals)
        return copy.copy(literals[0]) if is_one else _Other()


def _known(value: Any) -> Any:
    """Of what is compared; by their hashes sets and dictionaries compare what is in them with nothing asked."""
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(value, _Other) or (
        isinstance(parts, (list, tuple, set)) and any(isinstance(p, _Other) for p in parts)
    ):
        raise _Unknown
    return value


def _turning(left: Iterator[int], values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if next(left, None) is None:
            raise _Unknown
        yield value


def _range(*ends: int) -> range:
    """Which `sum` and `list` go over to its end."""
    made = range(*ends)
    if len(made) > _MOST_TURNS:
        raise _Unknown
    return made


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise _Unknown
    return value


_FUNCTIONS.update(range=_range, iter=lambda values: iter(values))  # not of a function, which may end never


def _way(node: ast.AST) -> str:
    """By which a status comes: `wait()`, or `.returncode`."""
    node = node.value if isinstance(node, ast.Await) else node
    return f"{called(node)}()" if isinstance(node, ast.Call) else f".{name_of(node)}"


def _is_of_values(node: ast.AST) -> bool:
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, _COSTLY):
        return False
    if isinstance(node, ast.AugAssign) and isinstance(node.op, _REPEATING):
        return False
    if isinstance(node, ast.FunctionDef):
        return node.name == _REST  # others may call themselves
    return isinstance(node, (*_VALUES, *_STATEMENTS)) or not isinstance(node, (ast.expr, ast.stmt))


def _sets_anew(statement: ast.stmt) -> bool:
    """Whether nothing of an earlier turn is in what it sets."""
    if not isinstance(statement, ast.Assign):
        return False
    before = ids_in(statement.value)
    return all(isinstance(target, ast.Name) and target.id not in before for target in statement.targets)


def _exit_of(statement: ast.stmt) -> ast.expr | None:
    """What a program ends with, where a statement ends it."""
    if not isinstance(statement, (ast.Raise, ast.Expr)):
        return None
    call = statement.exc if isinstance(statement, ast.Raise) else statement.value
    return call.args[0] if isinstance(call, ast.Call) and called(call) in _EXITS and call.args else None


def _goes_on(statement: ast.If | ast.While | ast.Assert, holds: bool) -> bool:
    """Whether a program that has ended with 0 can have come to this answer."""
    if isinstance(statement, ast.Assert):
        return holds
    taken = statement.body if holds else statement.orelse
    return not any(isinstance(s, ast.Raise) or called(getattr(s, "value", None)) in _EXITS for s in taken)


def _as_exit_code(value: Any) -> int:
    if isinstance(value, _Other):
        raise _Unknown
    return value & 0xFF if isinstance(value, int) else int(value is not None)


def _call(name: str, *given: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [*given], [])


def _no_arguments() -> ast.arguments:
    return ast.parse("def f(): pass").body[0].args  # type: ignore[attr-defined, no-any-return]
