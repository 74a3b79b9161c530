"""What the names that a test calls stand for while it runs: the code that they are of, or something in its place.

A check that is called and cannot fail is none, and a check of what a stand-in returned says nothing of the code whose
place it takes. That a test replaces what the code under test uses is everyday practice, and not looked at: only what
the test itself calls is. A stand-in that leads to the original is a spy.
"""

from __future__ import annotations

import os
import sys

from ..files import read
from ..frames import codes_in, local
from .always_true import made_by
from .blind import ONE, OTHER
from .bytecode import checks_nothing, is_constant, returns_filled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodDescriptorType, ModuleType
    from typing import Any, Iterator, Sequence

    from ..marks.callees import Spec
    from .records import Checks
else:  # `types` itself would cost more than all the rest
    FunctionType, ModuleType = type(lambda: None), type(sys)
    BuiltinFunctionType, MethodDescriptorType = type(len), type(str.join)

_UNKNOWN: Any = object()
_CODE = (FunctionType, BuiltinFunctionType, MethodDescriptorType, ModuleType, type)
_HARMLESS = ("builtins", "contextlib", "functools", "operator", "typing")
# What the code under test is compared with.
_REFERENCE = r"(^|[._])(ref|reference|oracle|naive|golden|expected|baseline)([._]|$)"
_GENERATES = 0x20 | 0x80 | 0x200  # of a generator, a coroutine and both, as `inspect` has it


class Originals:
    """What the modules of the tree held when their import had ended, and the code of their functions."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, tuple[object, CodeType | None]]] = {}
        self._filed: dict[str, object] = {}
        self._depth = 0
        self._begun: list[ModuleType] = []

    def begins(self, module: ModuleType) -> None:
        """A module of the tree is about to run."""
        self._depth += 1
        self._begun.append(module)

    def has_ended(self, *_: object) -> None:
        """It has run, or failed to."""
        self._depth -= 1
        if not self._depth:
            self._keep()

    def _keep(self) -> None:
        """All that began together: a package's modules may still change each other while they are imported."""
        begun, self._begun = self._begun, []
        for module in begun:
            self._held[module.__name__] = {n: (v, _own_code(v)) for n, v in vars(module).items()}
            self._filed[module.__name__] = sys.modules.get(module.__name__)

    def chose(self, module: str, found: object) -> bool:
        """Whether the code of the tree itself has `found` stand for a module, in the place of the one of its name."""
        package, _, last = module.rpartition(".")
        return found is self._filed.get(module) or found is self._held.get(package, {}).get(last, (None,))[0]

    def __len__(self) -> int:
        return len(self._held)

    def held(self) -> Iterator[tuple[str, str, object]]:
        """All that modules held: the module, the name and the value of each."""
        return ((module, n, value) for module, names in self._held.items() for n, (value, _) in names.items())

    def knows(self, module: str) -> bool:
        return module in self._held

    def of(self, origin: str) -> tuple[object, CodeType | None] | None:
        """What a dotted name stood for, by the longest module in it; None if it is not known."""
        module, _, rest = origin, "", ""
        while module and module not in self._held:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
        return self._held[module].get(rest) if module and rest else None


class StandIns:
    """Judges, and remembers for each name what it stood for last."""

    def __init__(self, checks: Checks, originals: Originals, names: list[str]) -> None:
        self._checks = checks
        self._names = frozenset(names)
        self._originals = originals
        self._judged: dict[Spec, tuple[object, CodeType | None, str | None]] = {}
        self._empty: dict[tuple[Spec, str], tuple[object, str | None]] = {}

    def replaced(self, spec: Spec, frame: FrameType) -> str | None:
        """Why what a test calls is not the tree's own code; "" if it is, None if it is none that matters."""
        value = _value(spec, frame)
        code = value.__code__ if type(value) is FunctionType else None
        known = self._judged.get(spec)
        if known is None or known[0] is not value or known[1] is not code:
            known = self._judged[spec] = (value, code, self._judge(_absolute(spec[2], frame) or _dotted(spec), value))
        return known[2]

    def checks_nothing(self, spec: Spec, way: str, frame: FrameType) -> str | None:
        """Why a check cannot fail that is called as a statement, asserted, or entered as a context (its `way`)."""
        if way == "bare":
            return None
        value = _value(spec, frame)
        known = self._empty.get((spec, way))
        if known is None or known[0] is not value:
            known = self._empty[spec, way] = (value, self._why_empty(spec, value, way))
        if known[1] is None and isinstance(value, FunctionType):
            return self._why_none_ran(value)
        return known[1]

    def cannot_fail(self, called: tuple[Spec, str] | None, equals: Sequence[Spec], frame: FrameType) -> str | None:
        """Why an assertion that held could not but hold, by what is called or named in it."""
        if called is not None and called[1] in ("bare", "asserted"):
            value = _value(called[0], frame)
            if called[1] == "asserted" and isinstance(value, FunctionType) and value.__code__.co_flags & _GENERATES:
                return f"what {_dotted(called[0])} returns is a generator, or a coroutine, and true"
            if called[1] == "asserted" and isinstance(value, FunctionType) and returns_filled(value.__code__):
                return f"what {_dotted(called[0])} returns is never empty, and true whatever is in it"
            made = made_by(value) if called[1] == "asserted" else ""
            if made:
                return f"{_dotted(called[0])}() is asserted, and always true: it makes a {made}"
            bare = _bare(value)
            if called[1] == "bare" and _is_code(bare):
                return f"{_dotted(called[0])} is asserted itself, and not called"
            code = _own_code(bare)
            if code is not None and self._is_of_tests(code.co_filename) and is_constant(code):
                return f"{_dotted(called[0])} returns a constant"
        return next(filter(None, (self._equals_anything(spec, frame) for spec in equals)), None) if equals else None

    def is_own(self, spec: Spec, frame: FrameType) -> bool:
        """Whether what is called is code of the tree."""
        code = code_behind(_value(spec, frame))
        return code is not None and self._is_of_tree(code)

    def are_one(self, one: Spec, other: Spec, frame: FrameType) -> str | None:
        """Why a comparison of what two functions returned says nothing of either: they are one. Methods are of objects
        that may differ.
        """
        value = _value(one, frame)
        same = value is _value(other, frame) and value is not _UNKNOWN
        is_one = same and not any(_is_method(spec, frame) for spec in (one, other))
        return f"{_dotted(one)} and {_dotted(other)} are one function" if is_one else None

    def must_raise(self, spec: Spec, frame: FrameType) -> bool:
        """Whether it is pytest's function, or unittest's method, that fails a test, or stands for one."""
        if spec[0] == "self":
            case = getattr(sys.modules.get("unittest.case"), "TestCase", ())
            return spec[1] == "fail" and isinstance(local(frame, "self"), case)
        return spec[2] == "pytest.fail"

    def stands_for_library(self, spec: Spec, frame: FrameType) -> str | None:
        """Why what the tree has put in the place of a library's equality cannot fail."""
        if not self._is_library(spec):
            return None
        value = _value(spec, frame)
        if not _file_of(value).startswith(self._checks.tree):
            return None
        return f"{_dotted(spec)} equals everything" if self._holds(lambda: value(ONE) == OTHER) else None

    def why_of_stand_ins(self, found: Sequence[tuple[Spec, str | None]], frame: FrameType) -> str | None:
        """Why a check of what these functions returned, each with what stood for it, is none of the tree's code."""
        instead = [(spec, why) for spec, why in found if why]
        if not instead:
            return None
        import re

        values = [_value(spec, frame) for spec, _ in instead]
        own = [(spec, _value(spec, frame)) for spec, why in found if why == ""]
        for (_, instead_of), value in zip(instead, values):
            for spec, other in own:
                if code_behind(other) is not None and _leads_to(value, other):
                    return f"{instead_of}, and calls {_dotted(spec)}, with which it is compared"
        for spec, why in found:
            is_other = why == "" and not any(_value(spec, frame) is value for value in values)
            if is_other and not re.search(_REFERENCE, spec[2]):
                return None
        return instead[0][1]

    def _equals_anything(self, spec: Spec, frame: FrameType) -> str | None:
        """By what a side of the comparison is, or is an instance of."""
        value = _value(spec, frame)
        kind = value if isinstance(value, type) else type(value)
        compare = getattr(kind, "__eq__", None) if value is not _UNKNOWN else None
        is_any = isinstance(compare, FunctionType) and is_constant(compare.__code__)
        return f"{_dotted(spec)} equals everything" if is_any else None

    # --- stand-ins for the tree's code ---

    def _judge(self, origin: str, value: Any) -> str | None:
        if value is _UNKNOWN or not (callable(value) or isinstance(value, ModuleType)):
            return None
        kept = self._originals.of(origin)
        if isinstance(value, ModuleType) or (kept is not None and isinstance(kept[0], ModuleType)):
            return None
        if kept is not None and kept[0] is value:
            return ("" if kept[1] is _own_code(value) else f"the code of {origin} was replaced") or self._genuine(value)
        if _is_mock(value):
            calls = value.side_effect
            is_spy = _wraps(value) or (callable(calls) if kept is None else _leads_to(calls, kept[0]))
            return None if is_spy else f"{origin} is a mock"
        code = code_behind(value)
        if kept is not None and _leads_to(value, kept[0]):
            return ""
        other = self._in_place_of(origin)
        if other is not None:
            return f"{origin} is of {self._shown(other)}"
        file = code.co_filename if code is not None else _file_of(value)
        if kept is None:
            owner = origin.rpartition(".")[0]
            instead = self._is_fake(owner) or (self._is_of_code_under_test(owner) and self._is_of_tests(file))
            return f"{origin} is of {self._shown(file)}" if instead else self._genuine(value)
        if self._is_of_tests(file) and not self._is_of_tests(_file_of(kept[0])):
            return f"{origin} is of {self._shown(file)}"
        if code is not None and file == _file_of(kept[0]) and code not in _codes_in(file):
            return f"the code of {origin} was replaced"
        return f"{origin} was replaced" if self._tests_replace(origin.rpartition(".")[2]) else ""

    def _genuine(self, value: Any) -> str | None:
        """Helpers of the tests are neither the code under test nor in its place."""
        return None if self._is_of_tests(_file_of(value)) else ""

    def _is_fake(self, module: str) -> bool:
        """Whether a module of the tree's name is no module of the tree: nobody has loaded it from anywhere."""
        found = sys.modules.get(module)
        if found is None or self._originals.knows(module):
            return False
        loaded = getattr(getattr(found, "__spec__", None), "loader", None) is not None
        return not loaded or not isinstance(getattr(found, "__file__", None), str)

    def _in_place_of(self, origin: str) -> str | None:
        """The file of the module that stands for another one of the tree, which has a file of its own."""
        module = origin
        while module and module not in sys.modules:
            module = module.rpartition(".")[0]
        package, _, last = module.rpartition(".")
        around = sys.modules.get(package)
        for found in (sys.modules.get(module), getattr(around, last, None)):
            file = getattr(found, "__file__", None) if isinstance(found, ModuleType) else None
            if isinstance(file, str) and not self._originals.chose(module, found):
                places = [os.path.join(folder, last) for folder in getattr(around, "__path__", sys.path)]
                own = [start for place in places for start in (f"{place}.", os.path.join(place, "__init__."))]
                ours = (f"{start}py" for start in own if start.startswith(self._checks.tree))
                if not file.startswith(tuple(own)) and any(map(os.path.isfile, ours)):  # compiled beside it, it is own
                    return file
        return None

    def _is_of_code_under_test(self, owner: str) -> bool:
        """Whether it is a module or a class of the tree, and none of the tests' own."""
        if self._originals.knows(owner):
            return not self._is_of_tests(str(getattr(sys.modules.get(owner), "__file__", "")))
        kept = self._originals.of(owner)
        return kept is not None and isinstance(kept[0], type) and not self._is_of_tests(_file_of(kept[0]))

    def _is_of_tests(self, file: str) -> bool:
        return file in self._checks.facts

    def _tests_replace(self, name: str) -> bool:
        """Whether a file of the tests sets an attribute of this name, by a statement or a call."""
        import re

        plain = re.escape(name)
        assigned = rf"\.{plain}\s*(?:,[^=\n]*|=[^=\n]*\.\w+\s*)?=[^=]"
        sets = rf"{assigned}|(?:setattr|patch|__dict__|vars)\b[^\n]*['\".]{plain}['\"]"
        return any(re.search(sets, read(path).decode("utf-8", "replace")) for path in list(self._checks.facts))

    # --- checks that are none ---

    def _why_empty(self, spec: Spec, value: Any, way: str) -> str | None:
        if value is _UNKNOWN:
            return None
        is_library = self._is_library(spec)
        if _is_mock(value):
            return None if _wraps(value) or not is_library else f"a mock stands for {_dotted(spec)}"
        called = _bare(value)
        if is_library and getattr(called, "__module__", "") in _HARMLESS and not _is_of(spec, called):
            return f"{getattr(called, '__name__', 'something')} stands for {_dotted(spec)}"
        code = code_behind(called)
        if code is None or not self._is_of_tree(code):
            return None
        if way != "asserted" and checks_nothing(code):
            return f"{_dotted(spec)} ({self._shown(code.co_filename)}) checks nothing"
        return self._why_holds(spec, value, way, is_library)

    def _why_holds(self, spec: Spec, value: Any, way: str, is_library: bool) -> str | None:
        """Try what the tree has put in the place of a library's comparison, with what differs."""
        if not is_library:
            return None
        dotted = spec[2]
        one, other = _tensors() if dotted.startswith("torch") else (ONE, OTHER)

        def holds() -> bool:
            if way == "entered":
                with value(LookupError):
                    pass
                return True
            result = value(one) == other if dotted.endswith("approx") else value(one, other)
            return way == "called" or bool(result)

        return f"what stands for {_dotted(spec)} cannot fail" if self._holds(holds) else None

    def _holds(self, compare: Any) -> bool:
        """Whether a comparison holds, of which nothing is to be seen."""
        self._checks.begin("")
        try:
            return bool(compare())
        except KeyboardInterrupt:
            raise
        except BaseException:  # it can fail, in whatever way
            return False
        finally:
            self._checks.end()

    def _why_none_ran(self, function: FunctionType) -> str | None:
        """A helper of the tests' that holds assertions, of which none ran in this test."""
        facts = self._checks.facts.get(function.__code__.co_filename)
        owed = facts.owed_by(function.__code__) if facts is not None else ()
        counts = self._checks.now.counts
        if owed and not any(key in counts for key in owed):
            return f"no assertion of {function.__name__} ran"
        return None

    def _is_library(self, spec: Spec) -> bool:
        """Whether the name was imported from what is not the tree's."""
        return spec[2][:1] not in ("", ".") and spec[2].partition(".")[0] not in self._names

    def _is_of_tree(self, code: CodeType) -> bool:
        return code.co_filename.startswith(self._checks.tree)

    def _shown(self, file: str) -> str:
        tree = self._checks.tree
        return file[len(tree) :] if file.startswith(tree) else os.path.basename(file) or "no file"


# --- values ---


def _value(spec: Spec, frame: FrameType) -> Any:
    """What the name stands for now; of an object that is no module, what its class has under the attribute."""
    root, path, _ = spec
    code = frame.f_code
    if root in code.co_varnames or root in code.co_cellvars or root in code.co_freevars:
        value = local(frame, root, _UNKNOWN)
    else:
        value = frame.f_globals.get(root, _UNKNOWN)
    for name in path.split(".") if path else ():
        if isinstance(value, (ModuleType, type)):
            value = getattr(value, name, _UNKNOWN)
        elif value is _UNKNOWN or name.startswith("__"):
            return _UNKNOWN
        elif _is_mock(value):
            value = getattr(value, name, _UNKNOWN)
        elif type(value).__name__ == "SimpleNamespace":
            value = vars(value).get(name, _UNKNOWN)
        else:
            value = getattr(type(value), name, _UNKNOWN)
    return value


def _is_method(spec: Spec, frame: FrameType) -> bool:
    """Whether it is an attribute of something else than a module or a class."""
    owner = spec[0], spec[1].rpartition(".")[0], ""
    return bool(spec[1]) and not isinstance(_value(owner, frame), (ModuleType, type))


def _absolute(origin: str, frame: FrameType) -> str:
    if origin[:1] != ".":
        return origin
    rest = origin.lstrip(".")
    package = str(frame.f_globals.get("__package__") or "").split(".")
    return ".".join([*package[: len(package) - (len(origin) - len(rest) - 1)], rest])


def _dotted(spec: Spec) -> str:
    return ".".join(filter(None, spec[:2]))


def _bare(value: Any) -> Any:
    """Below what is bound, and what is wrapped and says so."""
    for _ in range(20):
        inner = getattr(value, "__func__", None) or (getattr(value, "func", None) if _is_partial(value) else None)
        inner = inner or (value.__dict__.get("__wrapped__") if isinstance(value, FunctionType) else None)
        if inner is None:
            break
        value = inner
    return value


def _is_code(value: Any) -> bool:
    """What can be called, and is true; numpy's functions are of kinds of their own."""
    if isinstance(value, _CODE):
        return True
    is_named = callable(value) and isinstance(getattr(value, "__name__", None), str)
    return is_named and not any(hasattr(type(value), name) for name in ("__bool__", "__len__"))


def _is_partial(value: Any) -> bool:
    return type(value).__name__ == "partial"


def code_behind(value: Any) -> CodeType | None:
    """That of a function below what binds and wraps it."""
    return _own_code(_bare(value))


def _own_code(value: object) -> CodeType | None:
    return value.__code__ if isinstance(value, FunctionType) else None


def _file_of(value: Any) -> str:
    code = code_behind(value)
    if code is not None:
        return code.co_filename
    kind = value if isinstance(value, type) else type(value)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file if isinstance(file, str) else ""


def _is_of(spec: Spec, called: Any) -> bool:
    return (spec[2] or spec[0]).partition(".")[0] == getattr(called, "__module__", "")


def _is_mock(value: Any) -> bool:
    mock = sys.modules.get("unittest.mock")
    if mock is None:
        return False
    return isinstance(value, mock.NonCallableMock) or isinstance(getattr(value, "mock", None), mock.NonCallableMock)


def _wraps(value: Any) -> bool:
    mock = getattr(value, "mock", None) if isinstance(value, FunctionType) else value
    return vars(mock).get("_mock_wraps") is not None


def _leads_to(value: Any, original: object) -> bool:
    """Whether the original can be reached from what stands in its place."""
    if isinstance(value, type):
        return isinstance(original, type) and issubclass(value, original)
    from .reached import reached

    wanted = code_behind(original)
    if wanted is not None and wanted in reached(value).codes:
        return True
    return any(found is original for found in _named_in(_bare(value)))


def _named_in(function: Any) -> Iterator[object]:
    """What a function names: globals, and their attributes if they are modules."""
    names = function.__code__.co_names if isinstance(function, FunctionType) else ()
    for name in names:
        found = function.__globals__.get(name)
        yield found
        if isinstance(found, ModuleType):
            yield from (vars(found).get(attribute) for attribute in names)


def _codes_in(file: str) -> frozenset[CodeType]:
    """All code that the source of a file defines."""
    try:
        module = compile(read(file), file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    return frozenset(codes_in(module))


def _tensors() -> tuple[Any, Any]:
    torch = sys.modules["torch"]
    return torch.tensor(ONE), torch.tensor(OTHER)
