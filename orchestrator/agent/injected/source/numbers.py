"""Whether a program tells a status from 0 that it looks at, by what all that it makes of it comes to with either.

`min(codes)`, `codes[0]`, `any(c == 0 for c in codes)` and `code > 1` take a 1 for a 0, where the others that they look
at are 0. The statements that read a status are run by themselves, with it and with 0, as far as they are made of values
alone. What does more than that, or cannot be read, may tell them apart. As
`orchestrator/agent/evidence/shell/numbers.py` has it for shells.
"""

from __future__ import annotations

import ast
import copy
import sys
from typing import TYPE_CHECKING, Any, Container, Iterator, NamedTuple, Sequence, Tuple

from .syntax import LOOPS, MATCHES, SETS, called, ids_in, name_of, targets_of, walked
from .values import CALLED, FUNCTIONS, MAKERS, Other, Unknown, call_of, guarded, guards, is_of_values

if TYPE_CHECKING:
    from .uses import Program

    Place = Tuple[Program, ast.expr]

_OF_ANY_FAILURE = (1, 2)
"""The codes with which Python, and most programs, end where something failed; others are chosen by somebody."""
_MAPPING = ("map", "imap", "imap_unordered", "starmap", "thread_map", "process_map")
_EXITS = ("exit", "quit", "_exit", "SystemExit")
_COLLECTING = ("append", "add", "extend", "insert", "update", "setdefault")
_COMPARING = ("Compare", "MatchValue")
_MOST_RUNS = 200
"""Of which one takes a millisecond or less: whoever asks more of a status may tell it apart."""
_MOST_PARTS = 30_000
"""Of the program, in all runs together: of a small one each has some hundreds."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STATUS, _OTHERS = "_nsa_pod_status", "_nsa_pod_others"
_FOUND, _REST, _ATTRIBUTE = "_nsa_pod_found", "_nsa_pod_rest", "_nsa_pod_attribute_"
_GOES_ON = "_nsa_pod_goes_on"
"""What comes of a block that does not return: more of its function is behind it."""


class _Pair(NamedTuple):
    """What something is with the status, and with 0 in its place."""

    given: Any
    zero: Any

    @property
    def is_one(self) -> bool:
        try:
            return type(self.given) is type(self.zero) and bool(self.given == self.zero)
        except Unknown:  # of what is kept beside a status
            return False


class Status:
    """The `code` that the first of these `places` of programs gave; the next one has called the function that it is
    in, and so on.
    """

    def __init__(self, places: Sequence[Place], code: int) -> None:
        (program, origin), *self._callers = places
        self._program, self._origin, self._code = program, origin, code
        self._chosen = {code, code >> 8}.difference(_OF_ANY_FAILURE)  # os.system has it in the second byte
        self._ways = {_way(origin)}  # in which it, and the same status of others, come
        self._kept_in: set[str] = set()  # of objects, the attributes
        self._seen: set[tuple[str, ast.AST]] = set()
        self._runs, self._parts = iter(range(_MOST_RUNS)), iter(range(_MOST_PARTS))
        self._sets: dict[str, list[tuple[ast.AST, ast.expr]]] = {}  # names, by what in the program
        self._definitions = {name: node for node in program.module.body for name in _defined_by(node)}
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
        if isinstance(statement, MATCHES):
            return self._branches_to_the_same(statement, node, pair)
        if isinstance(statement, ast.Return) and statement.value is not None:
            return self._is_handed_on(statement, self._come_to(statement.value, node, pair))
        if isinstance(statement, ast.For):
            return self._goes_over_the_same(statement, self._come_to(statement.iter, node, pair))
        function = self._program.called_function(statement.value) if isinstance(statement, ast.Expr) else None
        if function is not None:
            return self._is_taken_as_the_same(function, statement.value, node, pair)  # type: ignore[attr-defined]
        return self._sets_the_same(statement, node, pair)

    def _is_left_out(self, inner: ast.AST, above: ast.AST, node: ast.expr, pair: _Pair) -> bool:
        """Whether a question about the same name leaves a branch out, with either."""
        if not isinstance(above, ast.If) or inner is above.test or not isinstance(node, ast.Name):
            return False
        asked = (n for n in walked(above.test) if isinstance(n, ast.Name) and n.id == node.id)
        answers = (self._come_to(above.test, n, pair) for n in asked)
        return any(answer.is_one and bool(answer.given) is not (inner in above.body) for answer in answers)

    def _branches_to_the_same(self, statement: ast.stmt, node: ast.expr, pair: _Pair) -> bool:
        if not any(isinstance(inner, ast.Return) for inner in walked(statement)):
            return self._sets_the_same(statement, node, pair)
        block = self._program.block_of(statement)
        function = self._program.function_of(statement)
        goes_on = [] if block is getattr(function, "body", None) else [ast.Return(ast.Constant(_GOES_ON))]
        rest = ast.FunctionDef(_REST, _no_arguments(), [*block[block.index(statement) :], *goes_on], [])
        found = self._come_to(call_of(_REST), node, pair, rest)
        return found.is_one or (_GOES_ON not in found and self._is_handed_on(statement, found))

    def _sets_the_same(self, statement: ast.stmt, node: ast.expr, pair: _Pair) -> bool:
        """Whether what a statement sets is the same, or what depends on that."""
        inside = walked(statement)
        self._leave_what_was_chosen(*(n for n in inside if type(n).__name__ in _COMPARING))
        targets = [t for inner in inside if isinstance(inner, ast.stmt) for t in self._set_by(inner)]
        self._kept_in.update(t.attr for t in targets if isinstance(t, ast.Attribute))
        function = self._program.function_of(statement)
        scopes = (self._scope_of(target, statement) for target in targets)
        often = function is not None and any(scope is not function for scope in scopes)  # whoever calls it
        found = [self._run([statement], node, of, pair.zero, often=often) for of in pair]
        pairs = {target: _Pair(*(values[self._variable(target)] for values in found)) for target in targets}
        return all(pairs[t].is_one or self._is_read_the_same(t, statement, pairs[t]) for t in targets)

    def _is_taken_as_the_same(self, function: Any, call: Any, node: ast.expr, pair: _Pair) -> bool:
        """Of what a function of the program is given, in a call of which nothing comes back."""
        names = [arg.arg for arg in function.args.args]
        given = [*zip(names[names[:1] == ["self"] :], call.args), *((word.arg, word.value) for word in call.keywords)]
        holding = [(name, value) for name, value in given if node in walked(value)]
        return bool(holding) and all(
            self._is_read_in(function, name, self._come_to(value, node, pair)) for name, value in holding
        )

    def _only_says(self, statement: ast.AST) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        return isinstance(call, ast.Call) and self._program.says(call)

    def _set_by(self, statement: ast.stmt) -> Iterator[ast.Name | ast.Attribute]:
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
            if not isinstance(named, (ast.Name, ast.Attribute)):
                raise Unknown
            yield named

    def _variable(self, target: ast.Name | ast.Attribute) -> str:
        """An attribute is a variable of the whole program, by its name, whichever object has it."""
        return target.id if isinstance(target, ast.Name) else f"{_ATTRIBUTE}{target.attr}"

    def _scope_of(self, target: ast.Name | ast.Attribute, statement: ast.stmt) -> ast.AST:
        is_attribute = isinstance(target, ast.Attribute)
        return self._program.module if is_attribute else self._program.scope_of(name_of(target), statement)

    def _is_read_the_same(self, target: ast.Name | ast.Attribute, statement: ast.stmt, pair: _Pair) -> bool:
        within = set(walked(statement))
        scope, name = self._scope_of(target, statement), name_of(target)
        if isinstance(target, ast.Attribute):
            are_all = self._program.is_main and self._program.names_attributes
            return are_all and self._is_read_in(scope, name, pair, within, ast.Attribute)
        is_filled = not any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in within)
        is_known = not self._program.is_of_others(name, scope, statement, is_filled=is_filled)
        return is_known and self._is_read_in(scope, name, pair, within)

    def _is_read_in(
        self, scope: ast.AST, name: str, pair: _Pair, within: Container[ast.AST] = (), kind: Any = ast.Name
    ) -> bool:
        read = self._program.reads_of(name, scope, kind)
        return all(self._is_same(n, pair) for n in read if n not in within)

    def _is_handed_on(self, statement: ast.stmt, pair: _Pair) -> bool:
        """Of what a function returns: whether its callers depend on it, who are all known of the program itself."""
        function = self._program.function_of(statement)
        name = getattr(function, "name", "")
        is_property = "property" in map(name_of, getattr(function, "decorator_list", ()))
        self._ways.add(f".{name}" if is_property else f"{name}()")
        calls: list[ast.expr] = [n for n in self._program.nodes if isinstance(n, ast.Call) and called(n) == name]
        if is_property:
            calls = self._program.reads_of(name, self._program.module, ast.Attribute)
        named = [n for n in self._program.nodes if isinstance(n, (ast.Name, ast.Attribute)) and name_of(n) == name]
        if pair.is_one or not self._program.is_main:
            return pair.is_one or self._is_handed_out(function, name, pair)
        mapping = (n for n in self._program.nodes if isinstance(n, ast.Call) and called(n) in _MAPPING)
        each = [n for n in mapping if n.args and name_of(n.args[0]) == name]
        turns = _Pair(*([pair.zero, of, pair.zero] for of in pair))
        is_every = (bool(named) or self._is_for_nobody(function)) and len(named) == len(calls) + len(each)
        came_to = [*((n, pair) for n in calls), *((n, turns) for n in each)]
        return is_every and all(self._is_same(n, of) for n, of in came_to)

    def _is_for_nobody(self, function: Any) -> bool:
        """Of a function whose name is nowhere: whether no library may call it, by what it is, or of which class."""
        above = self._program.holder_of(function)
        is_of_library = isinstance(above, ast.ClassDef) and bool(above.bases)
        is_given = any(name_of(decorator) != "property" for decorator in function.decorator_list)
        is_known = self._program.names_attributes and not function.name.startswith("__")
        return is_known and not is_given and not is_of_library

    def _is_handed_out(self, function: ast.AST | None, name: str, pair: _Pair) -> bool:
        """Of a module's function: whether it is the one that has been called, and its caller depends on it."""
        if not self._callers or function is not self._program.function_of(self._origin):
            return False
        call = self._callers[0][1]
        return called(call) == name and Status(self._callers, self._code)._is_same(call, pair)

    def _goes_over_the_same(self, statement: ast.For, pair: _Pair) -> bool:
        """Of a loop over statuses, the turns that differ."""
        given, zero = list(pair.given), list(pair.zero)
        if len(given) != len(zero) or not isinstance(statement.target, ast.Name):
            return False
        read = [n for n in walked(*statement.body) if isinstance(n, ast.Name) and n.id == statement.target.id]
        turns = (turn for turn in map(_Pair, given, zero) if not turn.is_one)
        before = self._seen
        for turn in turns:
            self._seen = set(before)  # what one turn comes to says nothing of the next
            if not all(self._is_same(n, turn) for n in read):
                return False
        self._seen = before
        return True

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
            raise Unknown

    def _run(
        self,
        block: Sequence[ast.stmt],
        node: ast.expr,
        value: Any,
        zero: Any,
        *,
        once: bool = False,
        often: bool = False,
    ) -> dict[str, Any]:
        """What names stand for after statements in which `node` gives `value`: in a loop, or what is done `often`,
        between two turns in which it gives `zero`, as the same status of others is.
        """
        if next(self._runs, None) is None:
            raise Unknown
        above = [a for _, a in self._program.around(node)]
        looping = [] if isinstance(node, ast.Name) else [a for a in above if isinstance(a, _COMPREHENSIONS)]
        made = [self._remade(statement, node, looping) for statement in block]
        if not all(map(is_of_values, walked(*made))):
            raise Unknown
        made = [*self._defined_for(made, node), *made]
        names = ids_in(*made)
        values = {name: self._initial(name, block) for name in names}
        values.update({_OTHERS: Other(), **guards()})
        others = [name for name in names if isinstance(values[name], Other) and name != _OTHERS]
        code = compile(ast.fix_missing_locations(ast.Module(made, [])), "<status>", "exec")
        repeats = often or (not once and any(isinstance(a, LOOPS) for a in above))
        in_turns = repeats and not all(map(_sets_anew, block))
        for turn in (zero, value, zero) if in_turns else (value,):
            gives = iter((zero, turn, zero) if looping else (turn,))
            values.update({name: Other() for name in others})
            values[_STATUS] = lambda gives=gives: next(gives, zero)
            if isinstance(node, ast.Name):
                values[node.id] = turn
            exec(code, values)  # of values alone
        return values

    def _defined_for(self, made: Sequence[ast.stmt], node: ast.expr) -> list[ast.stmt]:
        """The functions and classes of the program that statements name, and those that these do, which are made of
        values alone.
        """
        found: dict[str, Any] = {}
        names = sorted(ids_in(*made))
        for name in names:  # which grow
            if name in self._definitions and name not in found:
                definition = self._remade(self._definitions[name], node, ())
                inside = walked(definition)
                found[name] = definition if all(map(is_of_values, inside)) else None
                if found[name]:
                    self._leave_what_was_chosen(definition)
                    names += ids_in(*inside)
                if isinstance(definition, ast.FunctionDef):
                    definition.decorator_list.append(ast.Name(CALLED, ast.Load()))
        return sorted(filter(None, found.values()), key=lambda definition: definition.lineno)

    def _remade(self, part: Any, node: ast.expr, looping: Sequence[ast.AST]) -> Any:
        """A copy of a part of the program: with a call in the place of `node`, 0 where others give such a status, and
        three turns in the comprehensions around it; without words.
        """
        if isinstance(part, list):
            return [self._remade(inner, node, looping) for inner in part]
        if not isinstance(part, ast.AST):
            return part
        if next(self._parts, None) is None:
            raise Unknown
        if part is node and not isinstance(node, ast.Name):
            return call_of(_STATUS)
        if self._is_of_another(part):
            return ast.Constant(0)
        if isinstance(part, ast.Attribute) and part.attr in self._kept_in:
            return ast.Name(self._variable(part), part.ctx)
        if isinstance(part, ast.Attribute) and MAKERS.get(part.attr, "") == name_of(part.value):
            return ast.Name(part.attr, part.ctx)
        if self._only_says(part):
            return ast.Pass()
        made = type(part)(**{name: self._remade(of, node, looping) for name, of in ast.iter_fields(part)})
        ast.copy_location(made, part)
        if part in looping:
            made.generators[0].iter = ast.Name(_OTHERS, ast.Load())  # type: ignore[attr-defined]
        return guarded(made)

    def _is_of_another(self, node: ast.AST) -> bool:
        is_read = isinstance(node, ast.Call) or isinstance(getattr(node, "ctx", None), ast.Load)
        return is_read and isinstance(node, (ast.Call, ast.Attribute)) and _way(node) in self._ways

    def _initial(self, name: str, block: Sequence[ast.stmt] = ()) -> Any:
        """What a name stands for at first: a function of Python's, a literal, or the same status of something else."""
        sets = self._sets.get(name[len(_ATTRIBUTE) :] if name.startswith(_ATTRIBUTE) else name, ())
        within = set(walked(*block)) if sets else ()
        found = [value for node, value in sets if node not in within]
        if not found and name in FUNCTIONS:
            return FUNCTIONS[name]
        if not found and name in MAKERS:
            return getattr(sys.modules.get(MAKERS[name]), name, Other())
        if any(map(self._is_of_another, found)):
            return 0
        try:
            literals = [ast.literal_eval(value) for value in found]
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            literals = []
        is_one = bool(literals) and all(_Pair(literals[0], other).is_one for other in literals)
        return copy.copy(literals[0]) if is_one else Other()


def _way(node: ast.AST) -> str:
    """By which a status comes: `wait()`, or `.returncode`."""
    node = node.value if isinstance(node, ast.Await) else node
    return f"{called(node)}()" if isinstance(node, ast.Call) else f".{name_of(node)}"


def _sets_anew(statement: ast.stmt) -> bool:
    """Whether nothing of an earlier turn is in what it sets."""
    if not isinstance(statement, ast.Assign):
        return False
    before = {name_of(node) for node in walked(statement.value)}
    named = (target for target in statement.targets if isinstance(target, (ast.Name, ast.Attribute)))
    return before.isdisjoint(map(name_of, statement.targets)) and len(list(named)) == len(statement.targets)


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
    if isinstance(value, Other):
        raise Unknown
    return value & 0xFF if isinstance(value, int) else int(value is not None)


def _no_arguments() -> ast.arguments:
    return ast.parse("def f(): pass").body[0].args  # type: ignore[attr-defined, no-any-return]


def _defined_by(node: ast.stmt) -> Iterator[str]:
    """The name of a function or a class that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    if isinstance(node, ast.Assign) and (isinstance(node.value, ast.Lambda) or called(node.value) in MAKERS):
        yield from map(name_of, node.targets)
