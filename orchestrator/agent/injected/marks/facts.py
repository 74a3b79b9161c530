"""Which assertions a file of tests holds: what `assertions` finds while it marks them."""

from __future__ import annotations

from ..frames import codes_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Collection


class Function:
    """A function of a file that stands in no other: whether it holds an assertion, and one that can fail; by which keys
    it is seen that one ran: of each of its assertions, and its own for those that an exception may well leave out; and
    whether it returns how a comparison came out, and says it in no other way.
    """

    __slots__ = ("assertions", "holds", "judges", "key", "line", "name", "owes")

    def __init__(self, name: str, line: int, key: str) -> None:
        self.name = name
        self.line = line
        self.key = key
        self.holds = self.owes = self.judges = False
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

    @classmethod
    def of(cls, path: str, parts: tuple[Any, ...]) -> Facts:
        """As another process has found them, by their `parts`."""
        facts = cls(path)
        facts.is_known, facts.asserts, functions = parts
        for values in functions:
            function = Function(*values[:3])
            function.holds, function.owes, function.judges, function.assertions = values[3:]
            facts.add(function)
        return facts

    def parts(self) -> tuple[Any, ...]:
        """All that was found, in what can be written down."""
        functions = [(f.name, f.line, f.key, f.holds, f.owes, f.judges, f.assertions) for f in self._functions.values()]
        return self.is_known, self.asserts, functions

    def add(self, function: Function) -> None:
        self._functions[function.line] = function
        self._by_name.setdefault(function.name, []).append(function)

    def key(self, line: int) -> str:
        """Of the assertions in the function that begins at `line`; 0 is the module itself."""
        return f"{self.path}:{line}"

    def holds(self, line: int) -> bool:
        """Whether the function that begins at `line` holds an assertion."""
        return line in self._functions and self._functions[line].holds

    def judges(self, line: int) -> bool:
        """Whether the function that begins at `line` only returns how a comparison came out."""
        return line in self._functions and self._functions[line].judges

    def ran_own(self, code: CodeType, ran: Collection[str]) -> bool:
        """Whether one of those that stand in `code` itself ran, by the keys of what did."""
        own = self._functions.get(code.co_firstlineno)
        return own is not None and own.owes and (own.key in ran or any(key in ran for key in own.assertions))

    def owed_by(self, code: CodeType) -> list[str]:
        """The keys of which one is to be seen when `code` has run: its own, and of the functions that it names."""
        return self._keys_of(code)[1]

    def owed_by_namesakes(self, name: str, but: Collection[int]) -> list[str]:
        """The same of the functions of this name, those left out that begin at the lines `but`."""
        return _owed([f for f in self._by_name.get(name, ()) if f.line not in but])

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
            known = self._of[id(code)] = code, _owed(named), [key for f in named for key in f.assertions]
        return known


def _owed(functions: list[Function]) -> list[str]:
    return [key for f in functions if f.owes for key in (f.key, *f.assertions)]


def names_in(code: CodeType) -> set[str]:
    """What `code` names, and the functions inside it."""
    return set().union(*(each.co_names for each in codes_in(code)))
