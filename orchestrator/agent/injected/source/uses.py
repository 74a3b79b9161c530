"""What a program makes of a status that it was given, by its text: something that depends on it, or no more than words.

As `orchestrator/agent/evidence/shell/reactions.py` has it for shells. What cannot be read counts as looked at.
"""

from __future__ import annotations

import ast  # this module is imported where something has failed
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence

from ..files import unfiled
from ..frames import IMPORTING, drops_result, is_of
from .statements import PLAIN, STREAMS
from .syntax import FUNCTIONS, LOOPS, MATCHES, SETS, called, name_of, parsed, targets_of, within
from .text import Text, names_of

if TYPE_CHECKING:
    from types import FrameType

_SAYING = frozenset((
    "print", "pprint", "debug", "info", "warning", "warn", "error", "critical", "exception", "log", "echo", "secho",
    "print_exc", "print_exception", "flush", "sleep",
))  # fmt: skip
# Modules that make text, of which nothing comes but words; and those that are asked for all kinds of things.
_TELLING = frozenset((
    "json", "pprint", "textwrap", "collections", "statistics", "logging", "warnings", "traceback", "yaml", "rich",
    "sys", "tabulate", "datetime", "time", "os", "shlex", "string", "re", "math", "pathlib", "itertools", "functools",
    "platform",
))  # fmt: skip
_COLLECTING = ("append", "add", "update", "extend", "insert", "setdefault")
_EXITS = ("exit", "quit", "_exit")
_ENDINGS = ("poll", "returncode", "exitcode")
PASSES = ("subprocess", "os", "runpy", "asyncio", "pty", *IMPORTING)  # they catch none of what they run
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_MORE_THAN_WORDS = (ast.Raise, ast.Assert, ast.Global, ast.Attribute)
_RESUMED = 0x20 | 0x80 | 0x100 | 0x200  # flags of the code of generators and coroutines, as `inspect` has them
_programs: dict[str, Program | None] = {}


def is_used(frame: FrameType, *, called: bool = False, part: int | None = None) -> bool:
    """Whether something depends on a status that `frame` reads where it is now; or, if it has `called` a function,
    on what that returns: of a tuple, on its item `part`.
    """

    def found() -> bool:
        if called and drops_result(frame):
            return False
        statement = None if program is None else program.at(frame)
        return program is None or statement is None or program.uses(statement, part, set())

    program = program_of(frame)
    if program is None:
        return found()
    above = frame.f_back
    if above is not None and program.once(frame, ("hands on",), lambda: program.hands_on(frame)):
        if program_of(above) is program:
            return is_used(above, called=True, part=part)
        if program.once(frame, ("dropped", above.f_code, above.f_lasti), lambda: drops_result(above)):
            return False
    return program.once(frame, ("used", called, part), found)


def takes_for_0(frame: FrameType, code: int, tree: str = "") -> bool:
    """Whether all that depends on a status that `frame` gets where it is now, a `code`, would be the same with 0; as
    far as files of the `tree` have called it.
    """
    from .numbers import Status

    frames = list(_callers(frame, tree))

    def is_as_0() -> bool:
        places = ((program, program.expression(frame)) for program, frame in frames)
        known = [(program, expression) for program, expression in places if expression is not None]
        return bool(known) and Status(known, code).is_as_0()

    asked = ("as 0", code, *((caller.f_code, caller.f_lasti) for _, caller in frames[1:]))
    return bool(frames) and frames[0][0].once(frame, asked, is_as_0)


def _callers(frame: FrameType | None, tree: str) -> Iterator[tuple[Program, FrameType]]:
    """It, and who has called that, as far as to the program itself. A comprehension is no function, though until Python
    3.12 it had a frame.
    """
    name = ""
    while frame is not None and name != "<module>" and os.path.abspath(frame.f_code.co_filename).startswith(tree):
        program = program_of(frame)
        if program is None:
            return
        if name not in _COMPREHENSIONS:
            yield program, frame
        name = frame.f_code.co_name
        frame = None if program.is_main and name not in _COMPREHENSIONS else frame.f_back


def decides(frame: FrameType) -> bool:
    """Whether what `frame` reads where it is now stands in a condition."""
    program = program_of(frame)
    return program is not None and isinstance(program.at(frame), (ast.If, ast.Assert))


def unwinds(frame: FrameType | None) -> bool:
    """Whether `frame` is in a `finally`, at any depth of statements."""
    program = None if frame is None else program_of(frame)
    return program is not None and frame is not None and program.is_in_finally(frame)


def program_of(frame: FrameType) -> Program | None:
    """Of the library's files none: what they make of a status is their own affair."""
    return None if is_of(frame, *PASSES) else program_in(frame.f_code.co_filename)


def program_in(file: str) -> Program | None:
    if file not in _programs:
        _programs[file] = _read(file)
    return _programs[file]


def _read(file: str) -> Program | None:
    module = parsed(file)
    is_main = file in (*unfiled, getattr(sys.modules.get("__main__"), "__file__", None))
    return None if module is None else Program(module, list(ast.walk(module)), is_main=is_main)


class Program(Text):
    """What a module makes of statuses and errors."""

    def __init__(self, module: ast.Module, nodes: Sequence[ast.AST], *, is_main: bool = False) -> None:
        super().__init__(module, nodes, is_main=is_main)
        self._functions = {node.name: node for node in nodes if isinstance(node, FUNCTIONS)}
        self._imported = frozenset(_imported_names(self.nodes))
        self._answers_at: dict[tuple[object, ...], tuple[object, bool]] = {}

    def called_function(self, call: ast.expr | None) -> Any:
        """The function of the module, or the method of its classes, that a call is of."""
        function = self._functions.get(called(call))
        is_method = function is not None and [a.arg for a in function.args.args[:1]] == ["self"]
        return function if is_method is isinstance(getattr(call, "func", None), ast.Attribute) else None

    def once(self, frame: FrameType, asked: tuple[object, ...], answer: Callable[[], bool]) -> bool:
        """What is asked of a place in the text: a loop may come to it again and again."""
        key = (id(frame.f_code), frame.f_lasti, *asked)  # by itself, its hash is made of all that it holds
        if key not in self._answers_at:
            self._answers_at[key] = (frame.f_code, answer())
        return self._answers_at[key][1]

    def hands_on(self, frame: FrameType) -> bool:
        """Whether a function returns what it reads or has called, as it is, to the frame above: no coroutine does."""
        statement = self.at(frame)
        if not isinstance(statement, ast.Return) or frame.f_code.co_flags & _RESUMED:
            return False
        return statement.value is not None and statement.value is self.expression(frame)

    def uses(self, statement: ast.stmt, part: int | None, seen: set[str]) -> bool:
        """Whether something depends on a status of which this statement knows."""
        if isinstance(statement, ast.Expr):
            if isinstance(statement.value, ast.Yield):
                return self._is_returned(statement, seen)
            value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
            if isinstance(value, ast.Call):
                return not isinstance(statement.value, ast.Await) and not self.says(value)
            own = value.elt if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)) else None
            return any(isinstance(n, ast.Call) and n is not own and not self.says(n) for n in ast.walk(own or value))
        if isinstance(statement, SETS):
            return any(self._is_read(target, part, statement, seen) for target in _targets(statement))
        if isinstance(statement, ast.If) and self._leaves_out(statement, seen):
            return True
        if isinstance(statement, (ast.If, ast.While)):
            block = [*statement.body, *statement.orelse]
            asks = not self._asks_whether_ended(statement.test)
            return asks and (_only_ends_by_its_test(statement) or self.reacts(block, seen))
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            return self.reacts(statement.body, seen)
        if isinstance(statement, MATCHES):
            return self.reacts([s for case in statement.cases for s in case.body], seen)
        if isinstance(statement, ast.Return):
            return self._is_returned(statement, seen)
        if isinstance(statement, ast.Raise) and called(statement.exc) == "SystemExit":
            return not any(map(_is_success, getattr(statement.exc, "args", ())))
        return True

    def only_says(self, node: ast.AST) -> bool:
        """Whether no more than words depend on what an expression comes to: `same(a, b) or print("differ")`."""
        statement = self.statement(node)
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, (ast.BoolOp, ast.IfExp, ast.ListComp)):
            inside = set(ast.walk(node))
            whole = value.elt if isinstance(value, ast.ListComp) else value
            return all(self.says(n) for n in ast.walk(whole) if isinstance(n, ast.Call) and n not in inside)
        return not self.uses(statement, None, set())

    def _asks_whether_ended(self, test: ast.expr) -> bool:
        """Whether it asks no more of a process than whether it has ended: `p.poll() is None`."""
        if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot))):
            return False
        made: list[ast.AST | None] = [test.left]
        if isinstance(test.left, ast.Name):
            sets = (s for s in self.nodes if isinstance(s, SETS))
            made = [s.value for s in sets if test.left.id in map(name_of, targets_of(s))]
        return any((called(node) or name_of(node)) in _ENDINGS for node in made)

    def _leaves_out(self, statement: ast.If, seen: set[str]) -> bool:
        """Whether it goes on to the next turn of a loop, or ends that, past what sets something that others need, or
        past an `else` of the loop that does something; or returns past an end that tells of a failure.
        """
        inside = (*statement.body, *statement.orelse)
        if any(isinstance(s, ast.Return) for s in inside) and any(map(self._fails, self.rest_of_function(statement))):
            return True
        jumps = any(isinstance(s, (ast.Break, ast.Continue)) for s in inside)
        around = next((above for _, above in self.around(statement) if isinstance(above, LOOPS)), None)
        if around is not None and any(isinstance(s, ast.Break) for s in inside) and self.reacts(around.orelse, seen):
            return True
        block = self.block_of(statement) if jumps else []
        rest = block[block.index(statement) + 1 :] if jumps else []
        loop = self._above.get(statement)
        targets = [(target, s) for s in _statements_in(rest) for target in _targets(s)]
        return any(self._is_read(target, None, s, seen, but=loop) for target, s in targets)

    def _fails(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Assert):
            return True
        call = statement.value if isinstance(statement, ast.Expr) else None
        ends = isinstance(call, ast.Call) and called(call) in _EXITS and not self.says(call)
        return ends or (isinstance(statement, ast.Raise) and self.uses(statement, None, set()))

    def is_told(self, node: ast.AST) -> bool:
        """Whether a value on which only words depend is told as it is wherever it comes to, `print(equal)`, and not by
        words that say which way it went.
        """
        return set(self._ways(node, set())) == {True}

    def _ways(self, value: ast.AST, seen: set[str]) -> Iterator[bool]:
        """For each place to which a value comes, whether it is told there, or decides about words, or is dropped."""
        node = value
        while not isinstance(node, ast.stmt):
            above = self._above[node]
            if isinstance(above, ast.IfExp) and node is above.test:
                yield False
                return
            node = above
        targets = [node.target] if isinstance(node, (ast.For, ast.AsyncFor)) else _targets(node)
        if isinstance(node, ast.Return):
            name = getattr(self.function_of(node), "name", "")
            calls = (n for n in self.nodes if isinstance(n, ast.Call) and called(n) == name)
            yield from self._ways_of(f"{name}()", calls, seen)
        elif not targets:
            call = node.value if isinstance(node, ast.Expr) else None
            yield call is not value and isinstance(call, ast.Call) and self.says(call)
        names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        for name in names:
            inside = ast.walk(self.function_of(node) or self.module)
            read = (n for n in inside if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
            yield from self._ways_of(name, (n for n in read if self.statement(n) is not node), seen)

    def _ways_of(self, name: str, places: Iterable[ast.AST], seen: set[str]) -> Iterator[bool]:
        if name not in seen:
            seen.add(name)
            for place in places:
                yield from self._ways(place, seen)

    def is_worked_with(self, name: ast.AST, statement: ast.stmt) -> bool:
        """Whether a name is given to a function that does something with it, before the statement does."""
        if not isinstance(statement, (ast.Expr, *SETS, ast.Return)):
            return False
        node = self._above[name]
        while node is not statement:
            above = self._above[node]
            if isinstance(node, ast.Call) and name is not node.func and self._works(node):
                return True
            node = above
        return False

    def _works(self, call: ast.Call) -> bool:
        """Whether it calls a function of the module, or of another one that it imports, that does more than to say."""
        root = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        name = getattr(root, "id", "")
        if name in self._imported:
            return True
        function = self._functions.get(name)
        if function is None or not self.says(call):
            return function is not None
        inside = list(ast.walk(function))
        loops = any(isinstance(node, (ast.For, ast.While)) for node in inside)
        return loops and not any(called(node) in _SAYING for node in inside if isinstance(node, ast.Call))

    def _is_returned(self, statement: ast.stmt, seen: set[str]) -> bool:
        """Whether a call of the function that a statement returns or yields from is used; one from elsewhere is."""
        name = getattr(self.function_of(statement), "name", "")
        if f"{name}()" in seen:
            return False
        seen.add(f"{name}()")
        calls = [node for node in self.nodes if isinstance(node, ast.Call) and called(node) == name]
        named = [node for node in self.nodes if isinstance(node, ast.Name) and node.id == name]
        given = [node for node in named if not any(node is call.func for call in calls)]  # to another one, as to `map`
        return not (calls or given) or any(
            not (isinstance(node, ast.Call) and self._is_dropped(node)) and self.uses(self.statement(node), None, seen)
            for node in (*calls, *given)
        )

    def _is_dropped(self, call: ast.Call) -> bool:
        statement = self.statement(call)
        value = statement.value if isinstance(statement, ast.Expr) else None
        return value is call or (isinstance(value, ast.Await) and value.value is call)

    def reacts(self, block: Sequence[ast.stmt], seen: set[str]) -> bool:
        """Whether statements do more than to say something, or set what others depend on."""
        inside = _statements_in(block)
        set_by = [(target, s) for s in inside for target in _targets(s)]
        if any(map(self._acts, inside)) or any(self._is_read(target, None, s, seen) for target, s in set_by):
            return True
        return any(isinstance(s, ast.Return) and self._answers(s, seen) for s in inside)

    def _answers(self, statement: ast.Return, seen: set[str]) -> bool:
        """Whether its callers depend on what a function returns here: nothing, if it returns something otherwise."""
        function = self.function_of(statement)
        name = getattr(function, "name", "")
        value = getattr(statement.value, "value", 1) if statement.value is not None else None
        if value not in (None, 0):
            return bool(getattr(function, "decorator_list", ())) or self._is_returned(statement, seen)
        if function is None or (value == 0 and value is not False):
            return False
        others = (node for node in ast.walk(function) if isinstance(node, ast.Return) and node is not statement)
        if not any(node.value is not None for node in others):
            return False
        leaving = (node for node in self.nodes if isinstance(node, ast.Call) and called(node) in _EXITS)
        is_status = any(name_of(node) == name for call in leaving for node in ast.walk(call))
        return not is_status and self._is_returned(statement, seen)

    def _acts(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Expr):
            value = statement.value
            if isinstance(value, ast.Call) and (self.says(value) or called(value) in _COLLECTING):
                return False
            return any(isinstance(node, ast.Call) and not self.says(node) for node in ast.walk(value))
        if isinstance(statement, SETS):
            calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
            return any(called(call) not in PLAIN and not self.says(call) for call in calls)
        return isinstance(statement, (ast.Raise, ast.Assert, ast.Delete, ast.Import, ast.ImportFrom))

    def says(self, call: ast.Call, inside: tuple[str, ...] = ()) -> bool:
        """Whether a call only prints, waits or ends with success; also by a function of this module."""
        name = called(call)
        if name in _EXITS:
            status = call.args[0] if call.args else None
            says = isinstance(status, ast.Call) and called(status) == "print"
            return status is None or says or _is_success(status)
        if name in _SAYING or (name == "write" and STREAMS & set(names_of(call.func))):
            return True
        function = self.called_function(call)
        if function is None or name in inside:
            return name in inside
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        return all(called(c) in PLAIN or self.says(c, (*inside, name)) for c in calls) and not any(
            (isinstance(node, _MORE_THAN_WORDS) and not _is_called(node, calls)) or _is_filled(node)
            for node in ast.walk(function)
        )

    def _is_read(
        self, target: ast.AST, part: int | None, place: ast.stmt, seen: set[str], but: ast.AST | None = None
    ) -> bool:
        """Whether what was set is read where something depends on it; `but` by the condition of the loop itself."""
        if isinstance(target, (ast.Tuple, ast.List)):
            items = target.elts if part is None or part >= len(target.elts) else target.elts[part : part + 1]
            return any(self._is_read(item, None, place, seen) for item in items)
        while isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        if not isinstance(target, (ast.Name, ast.Attribute)):
            return True
        is_attribute = isinstance(target, ast.Attribute)
        if is_attribute and not (self.is_main and self.names_attributes):
            return True  # of an object, whoever has it
        name = name_of(target)
        if name in seen or self._is_set_anew(name, place):
            return False
        scope = self.module if is_attribute else self.scope_of(name, place)
        if not is_attribute and self.is_of_others(name, scope, place, is_filled=isinstance(target.ctx, ast.Load)):
            return True
        seen.add(name)
        inside = ast.walk(scope)
        read = (
            (node, self.statement(node))
            for node in inside
            if type(node) is type(target) and name_of(node) == name and isinstance(node.ctx, ast.Load)
        )
        return any(
            self.is_worked_with(node, statement) or self.uses(statement, None, seen)
            for node, statement in read
            if statement is not place and statement is not but
        )

    def _is_replaced(self, name: str, place: ast.stmt) -> bool:
        scope, block = self.scope_of(name, place), self.block_of(place)
        inner = (n for n in ast.walk(scope) if isinstance(n, (*FUNCTIONS, ast.Lambda)) and n is not scope)
        if any(name in names_of(node) for node in inner):  # which may read it in between
            return False
        following = (s for s in block[block.index(place) + 1 :] if name in names_of(s))
        first = next(following, None)
        is_set = isinstance(first, ast.Assign) and [name_of(t) for t in first.targets] == [name]
        return is_set and name not in names_of(first.value)  # type: ignore[union-attr]

    def _is_set_anew(self, name: str, place: ast.stmt) -> bool:
        """Whether a statement sets a name again before it is read; or each turn of a loop does, and only what the last
        one set is read: it has ended badly, then, if that is what it did.
        """
        loop = self._above[place]
        named_anew = isinstance(place, ast.Assign) and not any(isinstance(t, ast.Attribute) for t in place.targets)
        if named_anew and self._is_replaced(name, place):
            return True
        if not named_anew or not isinstance(loop, LOOPS):
            return False
        named = (node for node in ast.walk(loop) if isinstance(node, (ast.Name, ast.Attribute)))
        ends = any(isinstance(node, (ast.Break, ast.Return)) for node in ast.walk(loop))
        return not ends and all(isinstance(node.ctx, ast.Store) for node in named if name_of(node) == name)


def _only_ends_by_its_test(statement: ast.If | ast.While) -> bool:
    """Whether it is a loop that is left in no other way."""
    leaves = (ast.Break, ast.Return, ast.Raise)
    return isinstance(statement, ast.While) and not any(isinstance(s, leaves) for s in within(statement.body))


def _statements_in(block: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Those that run with a block's."""
    return [node for node in within(block) if isinstance(node, ast.stmt)]


def _is_success(status: ast.expr) -> bool:
    """Whether what a program ends with is 0 whatever the names in it stand for: `bad and 0`, `0 if bad else 0`."""
    if isinstance(status, ast.IfExp):
        return _is_success(status.body) and _is_success(status.orelse)
    if isinstance(status, ast.BoolOp) and isinstance(status.op, ast.And):
        return any(map(_is_success, status.values))
    if isinstance(status, ast.BinOp) and isinstance(status.op, ast.Mult):
        return any(map(_is_success, (status.left, status.right)))
    return isinstance(status, ast.Constant) and status.value in (None, 0)


def _targets(statement: ast.stmt) -> list[Any]:
    """What a statement sets; a collection that it adds to."""
    if isinstance(statement, SETS):
        return [*targets_of(statement)]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _COLLECTING:
        return [call.func.value]
    return []


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """What is imported of other modules, but for those that only say."""
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
                if module.partition(".")[0] not in _TELLING:
                    yield (alias.asname or alias.name).partition(".")[0]


def _is_filled(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def _is_called(node: ast.AST, calls: Iterable[ast.Call]) -> bool:
    return any(node is inner for call in calls for inner in ast.walk(call.func))
