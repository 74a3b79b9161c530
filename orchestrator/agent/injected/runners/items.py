"""Which test an item is: a collector may give several one node id, and a session may collect one of them twice.

Two items of one node id are two tests where they are seen to differ in what they hold: another function, other
parameters, another file. What cannot be looked into is taken to be the same.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Dict, List, Sequence, Set, Tuple

import pytest

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_CLOSED = (ModuleType, pytest.Item, pytest.Collector, pytest.Config)
_OURS = "nsa_pod_"  # what the plugin keeps on items
_MOST_PARTS = 1000
_Content = Tuple[object, ...]


class Names:
    """Of the items of one session: the node id, with a number for all but the first of the tests that share it."""

    def __init__(self) -> None:
        self._first: Dict[str, pytest.Item] = {}
        self._numbers: Dict[str, Dict[_Content, int]] = {}

    def of(self, item: pytest.Item) -> str:
        id_ = item.nodeid
        first = self._first.setdefault(id_, item)
        number = 1 if first is item else self._number(item, first)
        return id_ if number == 1 else f"{id_} ({number})"

    def _number(self, item: pytest.Item, first: pytest.Item) -> int:
        with contextlib.suppress(Exception):  # items of plugins may be anything
            numbers = self._numbers.get(item.nodeid) or {_content(_held(first)): 1}
            self._numbers[item.nodeid] = numbers
            return numbers.setdefault(_content(_held(item)), len(numbers) + 1)
        return 1


def _held(item: pytest.Item) -> Dict[str, Any]:
    """What makes it the test that it is: a function with its parameters; of others, what not every item has."""
    if isinstance(item, pytest.Function):
        return {"function": item.function, "params": getattr(getattr(item, "callspec", None), "params", None)}
    every = vars(_Plain.from_parent(item.parent or item.session, name=item.name))
    own = {name: value for name, value in vars(item).items() if name not in every and not name.startswith(_OURS)}
    return {"path": item.path, "own": own}


class _Plain(pytest.Item):
    def runtest(self) -> None:
        """Never called."""


def _content(value: Any) -> _Content:
    """What a value is and holds, however deep: the same of two that are not seen to differ."""
    content: List[object] = []
    seen: Set[int] = set()
    pending = [value]  # grows
    for each in pending:
        itself, parts = _look_into(each)
        content.append((_kind(type(each)), itself))
        if id(each) not in seen and len(pending) < _MOST_PARTS:
            seen.add(id(each))
            pending += parts
    return tuple(content)


def _look_into(value: Any) -> Tuple[object, Sequence[Any]]:
    """What a value is by itself, and what it holds."""
    if type(value) in _PLAIN or isinstance(value, PurePath):
        return repr(value), ()
    if isinstance(value, CodeType):
        return (value, value.co_filename), ()
    if isinstance(value, type):
        return _kind(value), ()
    if isinstance(value, _CLOSED):
        return None, ()
    parts: Sequence[Any]
    if isinstance(value, FunctionType):
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, *map(_inside, value.__closure__ or ())]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        held = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        parts = [part for pair in held.items() for part in pair]
    return len(parts), parts


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _kind(value: type) -> Tuple[str, str]:
    """Of a class, also where its module was imported twice."""
    return value.__module__, value.__qualname__
