"""Cases of one test that are the same, for it does not use the parameter that tells them apart.

A parameter that is only a case's name, beside others that are used, tells nothing apart; whole numbers from 0 or 1 on
repeat a test on purpose, as a name with `_` in front does. One of a class or module, which all tests of it have to
take, is used if one of them uses it. Hooks of the tree that look at a test's parameters may use any.
"""

from __future__ import annotations

import dis

from ..frames import codes_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Iterable, Iterator

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_SEES_ALL = frozenset(("locals", "vars", "dir", "eval", "exec"))
_OF_CASES = frozenset(("callspec", "funcargs"))


def same_cases(items: Iterable[Any], tree: str) -> Iterator[str]:
    """Of pytest's items, those functions of the tree, in a sentence each."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        if hasattr(item, "callspec"):
            groups.setdefault((item.parent, item.function.__code__), []).append(item)
    unused = {key: _unused(cases, key[1]) for key, cases in groups.items()}
    used_in: dict[Any, set[str]] = {}
    for key, cases in groups.items():
        for node in cases[0].listchain()[:-1]:
            used_in.setdefault(node, set()).update(set(_values(cases[0])).difference(unused[key]))
    suspects = [key for key in groups if unused[key] and len(groups[key]) > 1 and key[1].co_filename.startswith(tree)]
    if suspects and are_read_by_hooks(groups[suspects[0]][0].config, tree):
        return
    for key in suspects:
        cases, shared = groups[key], dict(_shared(groups[key][0]))
        names = [name for name in unused[key] if name not in used_in.get(shared.get(name), ())]
        distinct = len({_identity(case, names) for case in cases})
        if names and distinct < len(cases):
            test = cases[0].nodeid.partition("[")[0]
            yield f"{len(cases)} cases of {test} are {distinct}: it does not use its parameter {', '.join(names)}"


def _identity(item: Any, unused: list[str]) -> tuple[Any, ...]:
    """Which values it is given: `indices` count the cases themselves."""
    values = {**item.callspec.params, **_values(item)}
    marks = sorted(str((mark.name, mark.args, mark.kwargs)) for mark in item.callspec.marks)
    return (*marks, *sorted((name, id(value)) for name, value in values.items() if name not in unused))


def _unused(cases: list[Any], code: CodeType) -> list[str]:
    """The parameters that neither the function nor a fixture of the test looks at."""
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if "request" in own or hasattr(cases[0].function, "__wrapped__"):
        return []
    passed_over = [name for name in _passed_over(cases[0]) if not _repeats([c.callspec.params[name] for c in cases])]
    used = {*code.co_cellvars, *_read_in(code), *_read_by_fixtures(cases[0])}
    given = (name for name in own if name in _values(cases[0]) and name not in used and name[0] != "_")
    return [*passed_over, *(name for name in given if not _repeats([_values(case).get(name) for case in cases]))]


def _passed_over(item: Any) -> Iterator[str]:
    """Its fixtures with cases of their own that never ask which one it is."""
    for name, made in item._fixtureinfo.name2fixturedefs.items():
        has_cases = len(made) == 1 and made[0].params and name in item.callspec.params and name[0] != "_"
        code = None if hasattr(made[-1].func, "__wrapped__") else getattr(made[-1].func, "__code__", None)
        if has_cases and code is not None and "request" not in _read_in(code):
            yield name


def _shared(item: Any) -> Iterator[tuple[str, Any]]:
    """The parameters that its class or module gives it, with that."""
    for node, mark in item.iter_markers_with_node("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if node is not item:
            yield from ((name.strip(), node) for name in (names.split(",") if isinstance(names, str) else names))


def are_read_by_hooks(config: Any, tree: str) -> bool:
    """Whether a plugin of the tree, as a conftest is, looks at what tests are given."""
    for plugin in config.pluginmanager.get_plugins():
        values = (*getattr(plugin, "__dict__", {}).values(), *vars(type(plugin)).values())
        own = (value.__code__ for value in values if hasattr(value, "__code__"))
        codes = (code for each in own if each.co_filename.startswith(tree) for code in codes_in(each))
        if any(_OF_CASES.intersection(code.co_names) for code in codes):
            return True
    return False


def _values(item: Any) -> dict[str, Any]:
    """What the test itself is given; before pytest 8 beside what fixtures are."""
    spec = item.callspec
    return getattr(spec, "funcargs", None) or spec.params  # type: ignore[no-any-return]


def _read_in(code: CodeType) -> set[str]:
    """What is read before it is set anew in any case."""
    read: set[str] = set()
    anew: set[str] = set()
    goes_straight = True
    for instruction in dis.get_instructions(code):
        named = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if (
            "LOAD_FAST" in instruction.opname or instruction.opname == "DELETE_FAST"
        ):  # which says so; of two names at once in later versions, or of one that is set
            read.update(name for name in named if name not in anew)
        elif instruction.opname == "LOAD_GLOBAL" and instruction.argval in _SEES_ALL:
            read.update(code.co_varnames)
        elif goes_straight and instruction.opname.startswith("STORE_FAST"):
            anew.update(named)
        goes_straight = goes_straight and instruction.opcode not in _JUMPS
    return read


def _read_by_fixtures(item: Any) -> Iterator[str]:
    """Names that fixtures of the test take, those too that others override and may ask; of one that may see all of
    them, all.
    """
    for name, made in item._fixtureinfo.name2fixturedefs.items():
        for each in made:
            if not getattr(each.func, "__module__", "").startswith("_pytest."):  # its own is for what is no fixture's
                yield from (name, *(_values(item) if "request" in each.argnames else each.argnames))


def _repeats(values: list[Any]) -> bool:
    numbers = sorted({value for value in values if type(value) is int})
    return bool(numbers) and numbers[0] in (0, 1) and numbers[-1] - numbers[0] == len(numbers) - 1
