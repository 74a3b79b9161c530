"""Which checks ran for each test: its assertions, and what became of an AssertionError that nobody saw.

A test's checks are those that ran in this process between its begin and its end, in any thread, and in the processes
that it started, which tell of them in the stage's report under the test that pytest has named to them.
"""

from __future__ import annotations

import builtins
import os
import sys
from _thread import get_ident

from ..frames import local, raised_at
from ..stage import test_around
from .compared import UNKNOWN, Compared, extent
from .comparisons import is_list_of_truths, why_vacuous, why_wide
from .due import Due
from .marking import Marking
from .seen import Seen
from .stand_ins import Originals, StandIns, code_behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, FunctionType, ModuleType
    from typing import Any, Callable, Iterator

    from ..marks.callees import Spec
    from ..stage import Config, Notes
    from .compared import Extent
    from .comparisons import Size
    from .pending import Pending
else:  # as in `stand_ins`
    FunctionType, ModuleType = type(lambda: None), type(sys)

_COMPARING = ("torch.testing", "numpy", "pandas", "unittest", "_pytest")


class Record:
    """What was seen while one test ran; of a process that runs no session, since its start."""

    def __init__(self, test: str | None) -> None:
        self.test = test
        self.thread = get_ident()  # which runs it
        self.counts: dict[str, float] = _Counts()
        self.vacuous: list[str] = []  # of checks that ran and could not fail, why
        self.compared = Compared()
        self.none = ""  # why the first is none of what is called a check, or asserted
        self.loose = ""  # why what the next check may be about could not fail
        self.sizes: dict[str, tuple[Size | None, ...]] = {}  # of the sides of a difference, by where it stands
        self.extents: dict[str, Extent] = {}  # the same
        self.no_checks: set[str] = set()  # the keys of such
        self.called: dict[Spec, str | None] = {}  # functions of the tree that were called, with what stood for them
        self.dropped: list[str] = []  # comparisons that came out false, and were not asserted
        self.told: dict[str, bool] = {}  # the same, of which something was said, or in a thread's loop; whether exact
        self.entered: set[str] = set()  # marks in what `all` and `any` go through
        self.swallowed: dict[str, str] = {}
        self.managed: dict[str, set[CodeType]] = {}  # by which code of the tree's a `with` is left
        self.escaping: dict[str, str] = {}  # of them, what has failed inside
        self.pending: list[Pending] = []
        self.lost: list[str] = []
        self.begins = 0  # where the stage's report had ended before

    def count(self, key: str) -> None:
        """A check ran that could fail, but for what it was about."""
        self.counts[key] += 1
        if self.loose:
            self.vacuous.append(self.loose)
            self.loose = ""

    def held(self, name: str, *operands: Any, **options: Any) -> None:
        """A comparison by the function `name` has held."""
        self.note(why_vacuous(*operands, **options))
        self.compared.call(name, *operands, **options)

    def note(self, why: str | None) -> None:
        if why:
            self.vacuous.append(why)

    def failures(self) -> list[str]:
        """Each AssertionError that nobody saw, as a sentence."""
        if not (self.pending or self.lost or self.swallowed):
            return []
        unseen = [p.sentence for p in self.pending if p.is_lost]
        return list(dict.fromkeys([*self.lost, *self.swallowed.values(), *unseen]))


class _Counts(dict):  # type: ignore[type-arg]  # of str and float
    """In floats: to small integers there would be more references than a test may have counted."""

    def __missing__(self, key: str) -> float:
        return 0.0


class _ToldCounts(_Counts):
    """Of a child: each key is told when it is first seen, for the process may end in any way."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def __missing__(self, key: str) -> float:
        self._tell(key)
        return 0.0


class Checks:
    """The records of this process: of its own work, and of the tests that run in it, one inside another."""

    def __init__(self, config: Config, notes: Notes) -> None:
        self.notes = notes
        self.tree = config.one("tree") + os.sep
        self.marking = Marking(config)
        self.facts = self.marking.facts
        self.due = Due(self.tree)
        self.used: set[str] = set()  # comparisons of libraries that have held
        self._owed: dict[int, tuple[CodeType, list[str]]] = {}  # by ids, as in `Facts`
        self._doubts: set[str] = set()
        self._traced: set[str] = set()  # keys of assertions that a compiler has seen
        self.looked_at: set[int] = set()  # processes whose ends someone asked for
        self.failing: Callable[[FrameType], None] = lambda frame: None  # an assertion fails in it, outside of sessions
        self.comparing: Callable[[str, FrameType], None] = lambda name, frame: (
            None
        )  # the same of a library's comparison
        self._records: list[Record] = []
        self.now = Record(None)  # the last of them
        self.originals = Originals()
        self._stand_ins = StandIns(self, self.originals, config.all("name"))
        self._told = 0  # how much of the stage's report was looked at
        self.after_child_starts()

    def start(self) -> None:
        """Offer what the marks name."""
        setattr(builtins, "@nsa_pod_isinstance", isinstance)
        setattr(builtins, "@nsa_pod", Seen("Seen", (), {"checks": self}))

    def after_child_starts(self) -> None:
        """In a process that runs no session, or was forked out of one: what it sees it tells at once."""
        self.now = Record(self.now.test)
        self.now.counts = _ToldCounts(self._tell)
        self.now.begins = self._told = self.notes.size()
        self._records = [self.now]

    def begin(self, test: str) -> None:
        self.now = Record(test)
        self.now.begins = self._told
        self._records.append(self.now)

    def end(self) -> None:
        if len(self._records) > 1:  # not in a child that was forked in the midst of the test
            self._records.pop()
            self.now = self._records[-1]

    def found(self, code: CodeType, around: Callable[[], tuple[Any, type | None]]) -> dict[str, object]:
        """Of the test that ends: how many checks ran that could fail, or why none of those that ran could; whether all
        that it holds is `idle`. Nothing where that is not known. `around` gives its function and its class, for which
        few are asked.
        """
        if not self.facts[code.co_filename].is_known:
            file = code.co_filename[len(self.tree) :]
            self.doubt(f"whether the assertions of {file} ran is not seen, for it imports numba")
            return {}
        found, now = self._idle(code, around), self.now
        found["ran"] = max(int(sum(now.counts.values())) - len(now.vacuous), 0)
        if not found["ran"] and self._traced:
            found["ran"] = len(self._traced.intersection(self.facts[code.co_filename].owed_by(code)))
        if not found["ran"] and (now.vacuous or now.none):
            found["vacuous"] = now.vacuous[0] if now.vacuous else now.none
        if now.compared:
            is_of_any_data = getattr(around()[0], "is_hypothesis_test", False)
            found.update({"compared": [UNKNOWN]} if is_of_any_data else now.compared.told())
        return found

    def _idle(self, code: CodeType, around: Callable[[], tuple[Any, type | None]]) -> dict[str, object]:
        """Whether none of the assertions ran that a test owes whose own code is `code`, or one was forgotten."""
        record = self.now
        if self._ran_none(record, code, around):
            return {"idle": True, "why": record.none} if record.none else {"idle": True}
        checks = any(record.counts.values())
        for sentence in (said for said, is_exact in record.told.items() if checks and not is_exact):
            self.doubt(sentence)
        dropped = record.dropped or ([] if checks else [*record.told])
        return {"idle": True, "dropped": dropped[0]} if dropped else {}

    def _ran_none(self, record: Record, code: CodeType, around: Callable[[], tuple[Any, type | None]]) -> bool:
        ran, facts = record.counts.keys(), self.facts[code.co_filename]
        if facts.ran_own(code, ran) or not ran.isdisjoint(facts.owed_by(code)):
            return False
        function, kind = around()
        owed = self._owed_by(function, code)
        if not owed or not self._traced.isdisjoint(owed):
            return False
        if not ran.isdisjoint(owed) or self._overridden(code, kind, record):
            return False
        return not {*owed} <= {*self._owed_by_other_classes(function, code, kind)}

    def _owed_by_other_classes(self, function: Any, code: CodeType, kind: type | None) -> Iterator[str]:
        """The keys of methods that are called as one which `code` names, and which `kind` has itself or inherits."""
        from ..marks.facts import names_in

        values = getattr(function, "__globals__", {})
        for name in names_in(code):
            own = [vars(base)[name] for base in getattr(kind, "__mro__", ()) if name in vars(base)]
            if own:
                meant = (code_behind(getattr(each, "__func__", each)) for each in (*own, values.get(name)))
                lines = [c.co_firstlineno for c in meant if c is not None and c.co_filename == code.co_filename]
                yield from self.facts[code.co_filename].owed_by_namesakes(name, lines)

    def doubt(self, sentence: str) -> None:
        """Tell once of what only a person can judge."""
        if sentence not in self._doubts:
            self._doubts.add(sentence)
            self.notes.add(doubt=sentence)

    def note_due(self, code: CodeType, *, passed: bool) -> None:
        """Add the assertions of the test whose own code is `code` to those of tests that passed, and what ran."""
        if passed:
            self.due.passed(self.facts[code.co_filename], code)
        self.due.reached(self.now.counts, self.now.no_checks, self._traced)

    def trace(self, path: str, line: int) -> None:
        """A compiler has come to a line, of whose assertions nothing else is told from now on."""
        facts = self.facts.get(path)
        if facts is not None:
            self._traced.update(facts.assertions_at(line))

    def _owed_by(self, function: Any, code: CodeType) -> list[str]:
        """The keys of which one is to be seen when a test has run, whose own code is `code`: of its file, and of the
        tests' helpers that it has imported and names.
        """
        known = self._owed.get(id(code))
        if known is None:
            keys = self.facts[code.co_filename].owed_by(code)
            for helper in self._helpers_named(code, getattr(function, "__globals__", {})):
                keys = [*keys, *self.facts[helper.co_filename].owed_by(helper)]
            known = self._owed[id(code)] = code, keys
        return known[1]

    def _helpers_named(self, code: CodeType, values: dict[str, Any]) -> Iterator[CodeType]:
        """The code of functions in other files of the tests, by their names or as attributes of a module. A plugin's
        package, which pytest rewrites too, is none.
        """
        from ..marks.facts import names_in

        def is_other(file: str | None) -> bool:
            return file in self.facts and file != code.co_filename and self.marking.helps(file)

        names = names_in(code)
        for name in names:
            value = values[name] if name in values else sys.modules.get(name)
            is_module = type(value) is ModuleType and is_other(vars(value).get("__file__"))
            for found in map(vars(value).get, names) if is_module else (value,):
                helper = code_behind(found) if type(found) is FunctionType else None  # others may answer anything
                if helper is not None and is_other(helper.co_filename):
                    yield helper

    def _overridden(self, code: CodeType, kind: type | None, record: Record) -> bool:
        """Whether an assertion ran of a method that the class has in the place of one that `code` names."""
        from ..marks.facts import names_in

        names = names_in(code)
        for method in (vars(base)[name] for base in getattr(kind, "__mro__", ()) for name in names & vars(base).keys()):
            instead: Any = getattr(getattr(method, "__func__", method), "__code__", None)
            facts = self.facts.get(getattr(instead, "co_filename", ""))
            if facts is not None and not record.counts.keys().isdisjoint(facts.owed_by(instead)):
                return True
        return False

    def add_told(self, record: Record) -> None:
        """Add to the record of a test what the processes that it started have told."""
        self._told = self.notes.size()
        if self._told == record.begins:
            return
        import json

        for line in self.notes.since(record.begins).splitlines():
            if b'"checked"' in line or b'"died"' in line:
                note = json.loads(line)
                if note.get("test") != record.test:
                    continue
                if "checked" in note:
                    record.counts[note["checked"]] += 1
                elif self.looked_at.isdisjoint(note["pids"]):
                    record.lost.append(note["died"])

    def _tell(self, key: str) -> None:
        test = self.now.test or test_around()
        if test is not None:
            self.notes.add(checked=key, test=test)

    def is_ours(self, path: str) -> bool:
        return path.startswith(self.tree)

    def said(self, what: str, place: str) -> str:
        """A sentence with a place of the tree, `FILE:LINE`, as people name it."""
        return f"{what} ({place[len(self.tree) :]})"

    def note_raised(self, frame: FrameType) -> None:
        """What a function expects to be raised was, whatever it calls that (`context = partial(raises, ...)`)."""
        facts = self.facts.get(frame.f_code.co_filename)
        if facts is not None:
            self.now.counts[facts.key(frame.f_code.co_firstlineno)] += 1

    def see(self, mark: tuple[Any, ...], frame: FrameType) -> None:
        """What a mark says that is more than a key."""
        now = self.now
        if mark[0] == "vacuous":
            _, why, called = mark
            if called is not None and self._stand_ins.is_own(called, frame):  # its own assertions were counted
                now.vacuous.append(why)
            now.none = now.none or why
        elif mark[0] == "called":
            for spec in mark[1]:
                now.called[spec] = self._stand_ins.replaced(spec, frame)
        elif mark[0] == "pair":
            now.note(self._stand_ins.are_one(mark[1], mark[2], frame))
        elif mark[0] == "apart":
            left, right = local(frame, mark[1]), local(frame, mark[2])
            now.note(why_wide(left, right, mark[4]))
            now.compared.limit(mark[4], extent(left, right), mark[3])
        elif mark[0] == "within":
            _, key, averages, limit = mark
            if key or not isinstance(limit, (int, float)) or limit < 1:  # else seconds, say, or a count
                now.compared.limit(limit, now.extents.get(key, UNKNOWN), averages)
        elif mark[0] == "through":  # the next time it is asked anew
            if mark[1] not in now.entered:
                now.vacuous.append("empty sequences are compared")
            now.entered.discard(mark[1])
        elif mark[0] == "asserted":
            if is_list_of_truths(mark[1]) and not all(mark[1]):
                now.vacuous.append("a list of truths is asserted, which is true whatever they are")
        elif mark[0] == "returned":
            if self._stand_ins.must_raise(mark[1], frame):
                now.lost.append(f"{'.'.join(mark[1][:2])}() returned, and the test went on")
        else:
            key, called, about, equals = mark
            why = self._why_none(called, about, equals, frame)
            if why is not None:
                now.none = now.none or why
                now.no_checks.add(key)
                return
            now.count(key)
            now.note(self._stand_ins.cannot_fail(called, equals, frame))

    def _why_none(
        self, called: tuple[Spec, str] | None, about: tuple[Spec, ...], equals: tuple[Spec, ...], frame: FrameType
    ) -> str | None:
        """Why what ran is no check of the tree's code."""
        why = self._stand_ins.checks_nothing(*called, frame) if called is not None else None
        for spec in equals:
            why = why or self._stand_ins.stands_for_library(spec, frame)
        if why is not None or not about:
            return why
        known = self.now.called
        found = [(spec, known[spec] if spec in known else self._stand_ins.replaced(spec, frame)) for spec in about]
        return self._stand_ins.why_of_stand_ins(found, frame)

    def compares_kinds(self, left: Any, right: Any, operator: str) -> bool:
        """Whether two things are of different kinds, of which one is the tree's, which says how they compare."""
        methods = (vars(kind).get(f"__{operator}__") for side in (left, right) for kind in type(side).__mro__)
        codes = (getattr(method, "__code__", None) for method in methods)
        ours = any(code is not None and self.is_ours(code.co_filename) for code in codes)
        return ours and type(left) is not type(right)

    def only_judges(self, function: Any) -> bool:
        """Whether it is of the tests, and does no more than to return how a comparison came out."""
        code = code_behind(function)
        facts = self.facts.get(code.co_filename) if code is not None else None
        return code is not None and facts is not None and facts.judges(code.co_firstlineno)

    def raised_in_a_check(self, error: BaseException, *, keeps_it: bool) -> bool:
        """Whether an AssertionError comes from a check of the tests, not from a program that refuses its arguments.

        A handler that `keeps_it` may stand for `pytest.raises`: then only what the tests' files raise themselves is.
        """
        traceback = raised_at(error)
        if traceback is None:
            return False
        frame = traceback.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        if any(module == name or module.startswith(name + ".") for name in _COMPARING):
            return True
        path = frame.f_code.co_filename
        return path in self.facts or (self.is_ours(path) and not keeps_it)
