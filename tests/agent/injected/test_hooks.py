"""Functions and attributes of others that are watched work as ever, and whoever watches them is told."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import time
import types
import typing
from typing import Any

import pytest

from orchestrator.agent.injected import hooks


class Machine:
    """What somebody else has."""

    def add(self, left: int, right: int = 1) -> int:
        """The sum."""
        if left < 0:
            raise ValueError("below zero")
        return left + right

    @property
    def size(self) -> int:
        return 3


@pytest.fixture
def machine() -> Any:
    return type("Machine", (Machine,), {"add": Machine.add, "size": Machine.size})


def test_each_call_is_told_with_its_caller_its_arguments_and_what_comes_of_it(machine: Any) -> None:
    told: list[Any] = []
    hooks.watch(
        machine,
        "add",
        before=lambda frame, own, left, right=1: told.append((frame.f_code.co_name, left, right)),
        after=lambda frame, result, own, *_, **__: told.append(result),
        failed=lambda frame, error, own, *_, **__: told.append(str(error)),
    )
    assert machine().add(2, right=3) == 5
    with pytest.raises(ValueError, match="below zero"):
        machine().add(-1)
    caller = inspect.currentframe().f_code.co_name  # type: ignore[union-attr]
    assert told == [(caller, 2, 3), 5, (caller, -1, 1), "below zero"]


def test_several_look_on_and_are_told_of_the_same_caller(machine: Any) -> None:
    frames: list[Any] = []
    for _ in range(3):
        hooks.watch(machine, "add", after=lambda frame, *_, **__: frames.append(frame))
    machine().add(1)
    assert frames == [inspect.currentframe()] * 3


def test_what_fails_to_look_on_is_told_and_fails_no_call(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    missed: list[BaseException] = []
    monkeypatch.setattr(hooks, "missed", [lambda look, error: missed.append(error)])
    hooks.watch(machine, "add", before=lambda frame: None, after=lambda *_, **__: 1 / 0)
    assert machine().add(1) == 2
    assert [type(error) for error in missed] == [TypeError, ZeroDivisionError]


def test_what_is_watched_keeps_its_name_and_signature(machine: Any) -> None:
    hooks.watch(machine, "add", before=lambda *_, **__: None)
    assert machine.add.__doc__ == "The sum." and machine.add.__qualname__ == "Machine.add"
    assert str(inspect.signature(machine.add)) == "(self, left: 'int', right: 'int' = 1) -> 'int'"


def test_arguments_may_have_any_name(machine: Any) -> None:
    told: list[Any] = []
    machine.any = lambda own, **named: named
    hooks.watch(machine, "any", after=lambda frame, result, own, /, **named: told.append(named))
    assert machine().any(look=1, frame=2) == {"look": 1, "frame": 2} == told[0]


def test_an_error_that_cannot_be_written_fails_no_call(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(frame: Any, *_: Any) -> None:
        raise ValueError

    monkeypatch.setattr(hooks, "missed", [lambda look, error: 1 // 0])
    hooks.watch(machine, "add", before=look)
    assert machine().add(1) == 2


def test_types_of_what_is_watched_are_those_that_it_has_written(machine: Any) -> None:
    hooks.watch(machine, "add")
    assert typing.get_type_hints(machine.add) == {"left": int, "right": int, "return": int}


def test_a_property_is_told_of_when_it_is_read(machine: Any) -> None:
    told: list[int] = []
    hooks.watch(machine, "size", after=lambda frame, value, own: told.append(value))
    assert machine().size == 3 and told == [3]


def test_a_function_of_a_module_is_pickled_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("a_module")
    module.join = os.path.join  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_module", module)
    hooks.watch(module, "join", before=lambda *_: None)
    assert pickle.loads(pickle.dumps(module.join)) is module.join


def test_nothing_is_watched_that_is_not_there(machine: Any) -> None:
    hooks.watch(machine, "of_another_version", before=lambda *_: None)
    assert not hasattr(machine, "of_another_version")


def test_an_attribute_tells_who_reads_it_and_what_it_is_set_to(machine: Any) -> None:
    read: list[Any] = []
    written: list[Any] = []
    machine.code = hooks.Attribute(
        "code",
        lambda frame, own, value: read.append((frame, value)),
        lambda own, value: written.append(value),
    )
    own = machine()
    with pytest.raises(AttributeError):
        own.code  # noqa: B018
    own.code = 3
    assert own.code == 3 and written == [3]
    assert read == [(inspect.currentframe(), 3)]


@pytest.mark.process
def test_what_python_itself_calls_has_no_caller() -> None:
    program = (
        "import sys\nfrom orchestrator.agent.injected import hooks\nhooks.watch(sys, 'excepthook', before=print)\n1 / 0"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.startswith("None <class 'ZeroDivisionError'>")
    assert "ZeroDivisionError: division by zero" in ended.stderr


def test_what_is_in_the_place_of_a_built_in_function_becomes_no_method() -> None:
    holder = types.ModuleType("time")
    holder.now = time.perf_counter  # type: ignore[attr-defined]
    told: list[Any] = []
    for _ in range(2):
        hooks.watch(holder, "now", before=lambda frame: told.append(frame.f_code.co_name))
    watched: Any = holder.now

    class Clock:
        now = watched

    assert Clock().now() > 0
    assert told == ["test_what_is_in_the_place_of_a_built_in_function_becomes_no_method"] * 2
    assert (watched.__module__, watched.__doc__) == ("time", time.perf_counter.__doc__)
