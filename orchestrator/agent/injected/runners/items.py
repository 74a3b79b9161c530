"""Which test an item is: a collector may give several one node id, and a session may collect one of them twice.

Two items of one node id are two tests where they are seen to differ in what they hold: another function, other
parameters, another file. What cannot be looked into is taken to be the same.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Dict, List, Sequence, Set, Tuple

import pytest

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_CLOSED = (ModuleType, pytest.Item, pytest.Collector, pytest.Config)
_MOST = 10_000


class Names:
    """Of the items of one session: the node id, with a number for all but the first of the tests that share it."""

    def __init__(self) -> None:
        self._of_id: Dict[str, List[pytest.Item]] = {}

    def of(self, item: pytest.Item) -> str:
        tests = self._of_id.setdefault(item.nodeid, [])
        number = next((n for n, test in enumerate(tests) if _are_one(test, item)), len(tests))
        if number == len(tests):
            tests.append(item)
        return f"{item.nodeid} ({number + 1})" if number else item.nodeid


def _are_one(test: pytest.Item, item: pytest.Item) -> bool:
    with contextlib.suppress(Exception):  # items of plugins may be anything
        return test is item or not _differ(_held(test), _held(item))
    return True


def _held(item: pytest.Item) -> SimpleNamespace:
    """What makes it the test that it is: a function with its parameters; of others, what not every item has."""
    if isinstance(item, pytest.Function):
        params = getattr(getattr(item, "callspec", None), "params", None)
        return SimpleNamespace(function=item.function, params=params)
    every = vars(_Plain.from_parent(item.parent or item.session, name=item.name))
    own = {name: value for name, value in vars(item).items() if name not in every}
    return SimpleNamespace(path=item.path, **own)


class _Plain(pytest.Item):
    def runtest(self) -> None:
        """Never called."""


def _differ(one: Any, other: Any) -> bool:
    """Whether two values are seen to: in what both of them hold, however deep."""
    pairs: List[Tuple[Any, Any]] = [(one, other)]  # grows
    seen: Set[Tuple[int, int]] = set()
    for left, right in pairs:
        if left is right or (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        (itself, parts), (another, counterparts) = _look_into(left), _look_into(right)
        if _kind(type(left)) != _kind(type(right)) or itself != another:
            return True
        if len(pairs) < _MOST:
            pairs += [(parts[name], counterparts[name]) for name in parts if name in counterparts]
    return False


def _look_into(value: Any) -> Tuple[object, Dict[Any, Any]]:
    """What a value is by itself, and what it holds."""
    if type(value) in _PLAIN or isinstance(value, PurePath):
        return repr(value), {}
    if isinstance(value, CodeType):
        return (value, value.co_filename), {}
    if isinstance(value, type):
        return _kind(value), {}
    parts: Sequence[Any]
    if isinstance(value, FunctionType):
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, *map(_inside, value.__closure__ or ())]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, dict):
        parts = [*value.items()]
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        return None, {} if isinstance(value, _CLOSED) else getattr(value, "__dict__", {})
    return len(parts), dict(enumerate(parts))


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _kind(value: type) -> Tuple[str, str]:
    """Of a class, also where its module was imported twice."""
    return value.__module__, value.__qualname__
