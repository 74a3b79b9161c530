"""What the marks beside assertions name (`marks.nodes.SEEN`), and what it makes of what they give it."""

from __future__ import annotations

import sys
from _thread import get_ident
from sys import _getframe, exc_info  # bound here: a test may replace them while this is called

from ..frames import assertion_in, drops_result
from ..hooks import as_named
from .compared import extent
from .comparisons import EXCEEDED, exceeds, is_false, nan_among, size_of, why_far, why_loose, why_wide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Iterator

    from .records import Checks

_OF_SPAWN = "ProcessRaisedException"  # torch.multiprocessing's, with the traceback of the process as its text
_NEVER_BLANK = (int, float, complex, list, tuple, dict, set)
_NOT_ASSERTED = "a comparison came out false, and nothing asserts it"


class Seen(type):
    """The class of what they name, which is a class itself: `isinstance(KEY, SEEN)` notes the key, and is false;
    true of the one that says that it runs.
    """

    checks: Checks

    def __instancecheck__(cls, key: Any) -> bool:
        if key.__class__ is tuple:
            try:
                cls.checks.see(key, _getframe(1))
            except Exception:  # of what it looked at: the test is not to see it
                cls.checks.now.count(key[0])
        elif key[0] == "!":
            cls.checks.now.swallowed.pop(key[1:], None)
        elif key[0] == "~":
            return True
        elif key[0] == "*":
            cls.checks.now.entered.add(key)
        else:
            cls.checks.now.count(key)
        return False

    def compared(cls, name: str, first: Any, *others: Any, **options: Any) -> None:
        """Look at a comparison that has held: of a module's function, or a method's."""
        operands = others if isinstance(first, type(sys)) else (first, *others)
        cls.checks.now.held(name, *operands, **options)

    def __getitem__(cls, compare: Any) -> Any:
        """A comparison, which tells the next check to run of a tolerance that lets anything pass."""

        def compared(*operands: Any, **options: Any) -> Any:
            __tracebackhide__ = True
            result = compare(*operands, **options)
            if result is not False:
                now, own = cls.checks.now, getattr(compare, "__self__", None)  # of a method
                given = (own, *operands) if hasattr(own, "shape") and not isinstance(own, type) else operands
                if len(given) > 2 or options:  # a tolerance
                    now.loose = why_loose(*given, **options) or now.loose
                now.compared.call(getattr(compare, "__name__", ""), *given, **options)
            return result

        return as_named(compared, compare)

    def apart(cls, left: Any, right: Any, limit: Any, averages: bool) -> None:
        cls.checks.now.note(why_wide(left, right, limit))
        cls.checks.now.compared.limit(limit, extent(left, right), averages)

    def counted(cls, value: Any, key: str) -> Any:
        """One side of a difference, of which the number of elements is kept for the limit that it is held to."""
        cls.checks.now.extents[key] = extent(value)
        return value

    def sized(cls, value: Any, key: str) -> Any:
        """The same, where its size is, too."""
        sizes = cls.checks.now.sizes
        sizes[key] = (*sizes.get(key, ())[-1:], size_of(value))
        return cls.counted(value, key)

    def some_close(cls, value: Any, place: str, *sides: Any) -> Any:
        """Look at what is asserted of any of its elements, where it is meant of all: not where one number is sought."""
        if is_false(value) and all(extent(side)[0] != 1 for side in sides):
            cls.checks.doubt(cls.checks.said("any() of what is close is asserted, and not all of it is", place))
        return value

    def kept_apart(cls, key: str, limit: Any) -> None:
        cls.checks.now.note(why_far(cls.checks.now.sizes.pop(key, ()), limit))

    def ordered(cls, *sides: Any) -> None:
        if any(map(_is_nan, sides)):
            cls.checks.now.vacuous.append("NaN is compared, which is never larger nor smaller")

    def beyond(cls, values: Any, place: str) -> None:
        """Of these elements none has been beyond a limit."""
        some, all_of_them = nan_among(values)
        if all_of_them:
            cls.checks.now.vacuous.append("NaN is compared, which is never larger nor smaller")
        elif some:
            cls.checks.doubt(cls.checks.said("NaN is among what is not to be beyond a limit, and never is", place))

    def failing(cls) -> bool:
        try:
            cls.checks.failing(_getframe(1))
        except Exception:  # whatever it meets: the program is not to see it
            return False
        return False

    def worded(cls, value: Any) -> None:
        """Look at what is asserted as words, which are blank of no number, array or container."""
        if value is None or isinstance(value, _NEVER_BLANK) or hasattr(value, "dtype"):
            cls.checks.now.vacuous.append("words of a value are asserted, which are there whatever it is")

    def compared_all(cls, side: Any, equal: bool) -> None:
        """Look at one side of a comparison of which all elements have held."""
        if equal:
            cls.checks.now.compared.limit(0.0, extent(side))
        if hasattr(side, "dtype") and 0 in tuple(getattr(side, "shape", ())):  # what acts as a number may have none
            cls.checks.now.vacuous.append("empty tensors are compared")

    def compared_truths(cls, *sides: Any) -> None:
        """Look at what `a.all() == b.all()` is of: of numbers it says that none is 0."""
        if all("bool" not in str(getattr(side, "dtype", "bool")) for side in sides):
            cls.checks.now.vacuous.append("whether all numbers are other than 0 is compared, not the numbers")

    def compared_gradients(cls, *sides: Any) -> None:
        if all(side is None for side in sides):
            cls.checks.now.vacuous.append("gradients are compared, of which there are none")

    def gone_over(cls, values: Any) -> None:
        """Look at what `all` has gone over; a generator, of which nothing is left, does not say."""
        if isinstance(values, (list, tuple, set, dict)) and not values:
            cls.checks.now.vacuous.append("empty sequences are compared")

    def among(cls, value: Any, key: str) -> Any:
        """One of several, the largest of which is to be held to a limit."""
        cls.checks.now.entered.update((key, key + "NaN") if _is_nan(value) else (key,))
        return value

    def largest(cls, key: str, place: str) -> None:
        """It has been."""
        entered = cls.checks.now.entered
        if key not in entered:
            cls.checks.now.vacuous.append("the largest of nothing is held to a limit")
        if key + "NaN" in entered:
            cls.checks.doubt(cls.checks.said("NaN was among what the largest was sought of", place))

    def compared_slices(cls, left: Any, right: Any) -> None:
        if type(left) is type(right) and isinstance(left, (list, tuple, str, bytes)) and not left:
            cls.checks.now.vacuous.append("empty slices are compared")

    def dropped(cls, value: Any, place: str, repeats: bool = False) -> None:
        """A comparison that is a statement of its own; one that has held could as well have been asserted.

        One that `repeats` in a thread of the test's may be there to be made while another thread changes what it is of.
        """
        if not any(map(_is_falsy, value if type(value) is list else (value,))):
            return
        if repeats and get_ident() != cls.checks.now.thread:
            cls.checks.now.told[cls.checks.said(_NOT_ASSERTED, place)] = False
        else:
            cls.drops(_NOT_ASSERTED, place)

    def dropped_of(cls, left: Any, right: Any, operator: str, place: str, repeats: bool) -> None:
        """Of two: if the tree itself compares things of two kinds, that it can may be all that is asked."""
        import operator as operators

        value = getattr(operators, operator)(left, right)
        if left is not right and not cls.checks.compares_kinds(left, right, operator):
            cls.dropped(value, place, repeats)

    def ran(cls, value: Any, key: str) -> Any:
        """A check in a lambda, which has returned."""
        cls.checks.now.count(key)
        return value

    def judged(cls, value: Any, place: str, function: Any) -> None:
        """What a function returned, in a statement that drops it."""
        if value is not None and cls.checks.only_judges(function):
            cls.dropped(value, place)

    def told(cls, value: Any, place: str, expected: bool, is_exact: bool) -> Any:
        """A comparison of which the test makes no more than words."""
        if _is_falsy(value) is expected:
            cls.checks.now.told[cls.checks.said(_NOT_ASSERTED, place)] = is_exact
        return value

    def exceeds(cls, value: Any, bad: bool, place: str) -> Any:
        """A difference that is held to a limit, of which the test makes no more than words."""
        if exceeds(value, bad):
            cls.checks.doubt(cls.checks.said(EXCEEDED, place))
        return value

    def made(cls, value: Any, place: str) -> None:
        if isinstance(value, BaseException):
            cls.loses(f"{type(value).__name__} is made, and not raised", place)

    def made_up(cls, mock: Any, place: str, name: str) -> None:
        if any(kind.__name__ == "NonCallableMock" for kind in type(mock).__mro__) and not _is_of_spec(mock, name):
            cls.loses(f"{name} is no assertion, and a mock has made it up", place)

    def drops(cls, what: str, place: str) -> None:
        cls.checks.now.dropped.append(cls.checks.said(what, place))

    def doubts(cls, what: str, place: str) -> None:
        cls.checks.doubt(cls.checks.said(what, place))

    def loses(cls, what: str, place: str) -> None:
        cls.checks.now.lost.append(cls.checks.said(what, place))

    def with_text(cls, what: str, key: str, error: BaseException) -> str:
        text = str(error).partition("\n")[0][:200]
        return f"{cls.checks.said(what, key)}: {text}".rstrip(": ")

    def manages(cls, manager: Any, key: str) -> Any:
        """What a `with` is of; a library's may well collect what fails, or try again."""
        try:
            own = {code for code in _left_by(manager) if cls.checks.is_ours(code.co_filename)}
        except Exception:  # of what it is: the test is not to see it
            return manager
        cls.checks.now.managed.setdefault(key, set()).update(own)
        return manager

    def escapes(cls, key: str) -> None:
        """An assertion has failed in a `with`; one that may fail itself may expect just that."""
        now, failed = cls.checks.now, assertion_in(exc_info()[1])
        codes = now.managed.get(key)
        if not codes or any(map(_may_fail, codes)):
            return
        if failed is not None and cls.checks.raised_in_a_check(failed, keeps_it=True):
            now.escaping[key] = cls.with_text("an AssertionError was kept by what a `with` is of", key, failed)

    def kept_in(cls, key: str) -> None:
        """The `with` was left without an exception."""
        now = cls.checks.now
        if key in now.escaping:
            now.swallowed[key] = now.escaping.pop(key)

    def swallowed(cls, key: str, keeps_it: bool, answers: bool) -> None:
        error = exc_info()[1]
        if answers and not drops_result(_getframe(2)):
            return
        failed = assertion_in(error)
        if failed is not None and cls.checks.raised_in_a_check(failed, keeps_it=keeps_it):
            cls.checks.now.swallowed[key] = cls.with_text("an AssertionError was caught and dropped", key, failed)
        elif type(error).__name__ == _OF_SPAWN and not keeps_it and "\nAssertionError" in str(error):
            cls.checks.now.swallowed[key] = cls.checks.said(
                "an AssertionError of a process was caught and dropped", key
            )


def _left_by(manager: Any) -> Iterator[CodeType]:
    """Code of a context manager's own: its method's, or of a generator's that contextlib has made one of."""
    of_kind = (getattr(type(manager), name, None) for name in ("__exit__", "__aexit__"))
    generator = getattr(manager, "gen", None)
    for holder, name in (*((method, "__code__") for method in of_kind), (generator, "gi_code"), (generator, "ag_code")):
        if hasattr(holder, name):
            yield getattr(holder, name)


def _may_fail(code: CodeType) -> bool:
    """Whether it raises anything of its own."""
    import dis

    raises = (i.opname == "RAISE_VARARGS" and i.arg for i in dis.get_instructions(code))
    return "fail" in code.co_names or any(raises)


def _is_falsy(value: Any) -> bool | None:
    """Whether what a comparison came to, which may be anything, counts as false; None where that is not known."""
    try:
        return not (value.all() if hasattr(value, "all") else value) and value is not None
    except Exception:
        return None


def _is_nan(value: Any) -> bool:
    """Of a number, or of an array of one."""
    try:
        return (isinstance(value, float) or hasattr(value, "dtype")) and bool(value != value)
    except Exception:  # of several
        return False


def _is_of_spec(mock: Any, name: str) -> bool:
    """Whether what a mock stands for has a method of that name."""
    return name in (vars(mock).get("_mock_methods") or ())
