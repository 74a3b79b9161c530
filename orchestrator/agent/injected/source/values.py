"""What is made of values alone: such statements of a program can be run by themselves, and come to an end.

What has to do with anything else stands in as an `Other`, and may not be asked.
"""

from __future__ import annotations

import ast
import builtins
from functools import partial
from typing import Any, Callable, Iterable, Iterator

from .syntax import MATCHES, SETS

CALLED = "_nsa_pod_called"
_KNOWN, _NUMBER, _TEXT = "_nsa_pod_known", "_nsa_pod_number", "_nsa_pod_text"
_TURNING, _TURN = "_nsa_pod_turning", "_nsa_pod_turn"

FUNCTIONS: dict[str, Any] = {
    name: getattr(builtins, name)
    for name in (
        "abs", "all", "any", "bool", "dict", "enumerate", "filter", "float", "int", "len", "list", "max", "min", "next",
        "map", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip", "property", "staticmethod",
        "classmethod",
    )
}  # fmt: skip
MAKERS = {
    "dataclass": "dataclasses", "field": "dataclasses", "asdict": "dataclasses", "astuple": "dataclasses",
    "NamedTuple": "typing", "namedtuple": "collections", "SimpleNamespace": "types",
    "attrgetter": "operator", "itemgetter": "operator",
}  # fmt: skip
"""What makes objects of values, or values of those, by where it is."""
_VALUES = (
    ast.Constant, ast.Name, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.IfExp, ast.Call,
    ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.Subscript, ast.Slice, ast.Starred, ast.Lambda,
)  # fmt: skip
_STATEMENTS = (
    *MATCHES, *SETS, ast.Expr, ast.If, ast.For, ast.Pass, ast.Return, ast.FunctionDef, ast.ClassDef,
)  # fmt: skip
_COSTLY = (ast.Pow, ast.LShift)
_REPEATING = (ast.Mult, ast.Mod)  # of a list or a text, they make one of any size
_BARE = {"__builtins__": {"__build_class__": builtins.__build_class__}, "__name__": "__main__"}
"""What classes are made with."""
_MOST_TURNS = 10_000
"""Of all loops, comprehensions and calls of functions together, in one run."""
_TURNS = 3
"""Of a loop, in one of which there is the status."""


class Unknown(Exception):
    """What it comes to depends on something else."""


class Other:
    """What has nothing to do with a status: it can be kept, gone over, reckoned and called with others, not asked."""

    def __bool__(self) -> bool:
        raise Unknown

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self)

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Iterator[Other]:
        return iter([Other() for _ in range(_TURNS)])

    def __len__(self) -> int:
        return _TURNS

    def __getattr__(self, name: str) -> Other:
        return Other()

    def __getitem__(self, index: object) -> Other:
        return Other()

    def __call__(self, *given: object, **named: object) -> Other:
        if all(isinstance(value, Other) for value in (*given, *named.values())):
            return Other()
        raise Unknown

    def _reckoned(self, other: object = None) -> Other:
        if other is not None and not isinstance(other, Other):
            raise Unknown
        return Other()

    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __abs__ = _reckoned

    def __round__(self, digits: int = 0) -> Other:
        return Other()


class _Text(str):
    """Which holds words of others: nobody knows what it is."""


def _text(*parts: Any) -> str:
    made = "".join(map(str, (part for part in parts if not isinstance(part, Other))))
    return _Text(made) if any(isinstance(part, (Other, _Text)) for part in parts) else made


def _known(value: Any) -> Any:
    """Of what is compared; by their hashes sets and dictionaries compare what is in them with nothing asked."""
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(value, (Other, _Text)) or (
        isinstance(parts, (list, tuple, set)) and any(isinstance(p, Other) for p in parts)
    ):
        raise Unknown
    return value


def _turning(left: Iterator[int], values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _turn(left)
        yield value


def _turn(left: Iterator[int]) -> None:
    if next(left, None) is None:
        raise Unknown


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the program: of others it makes another one."""

    def called(*given: Any, **named: Any) -> Any:
        is_of_others = all(isinstance(value, Other) for value in (*given, *named.values()))
        return Other() if is_of_others else function(*given, **named)

    return called


def _range(*ends: int) -> range:
    """Which `sum` and `list` go over to its end."""
    made = range(*ends)
    if len(made) > _MOST_TURNS:
        raise Unknown
    return made


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise Unknown
    return value


FUNCTIONS.update(range=_range, iter=lambda values: iter(values))  # not of a function, which may end never


def is_of_values(node: ast.AST) -> bool:
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, _COSTLY):
        return False
    if isinstance(node, ast.AugAssign) and isinstance(node.op, _REPEATING):
        return False
    return isinstance(node, (*_VALUES, *_STATEMENTS)) or not isinstance(node, (ast.expr, ast.stmt))


def guarded(made: Any) -> Any:
    """A part of a program, whose own parts are guarded: what it compares has to be known, and its turns are counted."""
    if isinstance(made, ast.Compare):
        made.left = call_of(_KNOWN, made.left)
        made.comparators = [call_of(_KNOWN, side) for side in made.comparators]
    elif isinstance(made, ast.BinOp) and isinstance(made.op, _REPEATING):
        made.left, made.right = call_of(_NUMBER, made.left), call_of(_NUMBER, made.right)
    elif isinstance(made, (ast.comprehension, ast.For)):
        made.iter = call_of(_TURNING, made.iter)
    elif isinstance(made, ast.FunctionDef):
        made.body.insert(0, ast.Expr(call_of(_TURN)))
    elif isinstance(made, ast.Lambda):
        made.body = ast.BoolOp(ast.Or(), [call_of(_TURN), made.body])
    elif isinstance(made, ast.JoinedStr):
        return call_of(_TEXT, *(v.value if isinstance(v, ast.FormattedValue) else v for v in made.values))
    return made


def guards() -> dict[str, Any]:
    """What stands for the names in guarded parts, for one run of them."""
    left = iter(range(_MOST_TURNS))
    counted = {_TURNING: partial(_turning, left), _TURN: partial(_turn, left)}
    return {_KNOWN: _known, _NUMBER: _number, _TEXT: _text, CALLED: _calling, **counted, **_BARE}


def call_of(name: str, *given: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [*given], [])
