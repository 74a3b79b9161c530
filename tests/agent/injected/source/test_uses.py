"""What programs make of a status and of an error, by their text: `status()` gives one, `fail()` raises."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from orchestrator.agent.injected.source import caught, uses

pytestmark = pytest.mark.unit

USED = [
    "assert status() == 3",
    "if status(): raise SystemExit(1)",
    "if status():\n    print('no')\n    act()",
    "if status():\n    pass\nelse:\n    act()",
    "code = status()\nif code: act()",
    "code = status()\nprint(code)\nact(code)",
    "failed = []\nif status(): failed.append(1)\nif failed: act()",
    "n = 0\nn += status()\nassert n == 0",
    "codes = {'a': status()}\nbad = [k for k in codes if codes[k]]\nassert not bad",
    "ok = status() == 0\nact(ok)",
    "while status(): act()",
    "act(status())",
    "status() and act()",
    "def f(): return status()\nassert f()",
    "def f(): return status()\nact(f())",
    "def f():\n    code = status()\n    return code\nif f(): act()",
    "class C:\n    def f(self): self.code = status()\nC().f()",
    "codes = [status() for _ in range(2)]\nassert codes",
    "raise SystemExit(status())",
    "exit(status() or 0)",
    "exit(1 if status() else 0)",
    "exit(status() * 2)",
    "def bench(d):\n    for x in range(2): list(range(x))\n    return d\nd = 'a' if status() else 'b'\nprint(bench(d))",
    "import heapq\nd = 'a' if status() else 'b'\nrows = heapq.nsmallest(1, d)\nprint(rows)",
    "def f():\n    if status(): return None\n    return 1\nx = f()\nassert x is None",
    "n = 8\nwhile n:\n    if status() == 0: break\n    n //= 2\nassert n == 0",
    "rows = []\nfor x in (1, 2):\n    if status(): continue\n    rows.append(x)\nassert not rows",
    "[act(status()) for _ in range(2)]",
    "for x in (1, 2):\n    if status() == 0:\n        print(x)\n        break\nelse: exit('none')",
    "for x in (1, 2):\n    code = status()\n    if not code: break\nraise SystemExit(code)",
    "worst = 0\nfor x in (1, 2):\n    code = status()\n    worst = max(worst, code)\nassert worst",
    "n = 2\nwhile status(): n -= 1\nprint(n)",
    "def f():\n    if status() == 0: return\n    raise OSError\nf()",
    "def f():\n    for x in (1, 2):\n        if status() == 0: return print(x)\n    exit('none')\nf()",
    "best = None\nfor x in (1, 2):\n    if status() == 0: best = x\nact(best)",
    "codes = {}\ndef note(n, code): codes[n] = code\nnote(0, status())\nif any(codes.values()): exit(1)",
    "def f(): return status()\nverbs = {'a': f}\nexit(verbs['a']())",
    "async def f(): return status()\ntry: f().send(None)\nexcept StopIteration as e: exit(e.value)",
    "def f(): yield status()\nfor x in f(): assert not x",
    "code = status()\ncode = code or 1\nexit(code)",
    "code = status()\ndef f(): assert code == 3\nf()\ncode = 0",
    "code = status()\nwhile code: code = 0\nexit(code)",
]
NOT_USED = [
    "status()",
    "for x in (1, 2): code = status()\nraise SystemExit(code)",
    "code = status()",
    "print(status())",
    "print('code', status(), flush=True)",
    "import logging\nlogging.warning('%d', status())",
    "import sys\nsys.stderr.write(str(status()))",
    "if status(): print('no')",
    "if status():\n    print('no')\nelse:\n    print('yes')",
    "code = status()\nprint(code)\nif code:\n    print('no')",
    "failed = []\nif status():\n    failed.append(1)\nprint(len(failed), 'failed')",
    "n = 0\nn += status()\nprint(n)",
    "ok = status() == 0\nprint('yes' if ok else 'no')",
    "codes = {'a': status()}\nprint(codes)",
    "def report(code):\n    print('yes' if code else 'no')\nreport(status())",
    "def f(): return status()\nf()",
    "def f(): return status()\nprint(f())",
    "def f():\n    code = status()\n    return code\ncode = f()\nprint(code)",
    "codes = [status() for _ in range(2)]\nprint(codes)",
    "while status():\n    break",
    "if status(): import_error = 1",
    "if status():\n    print('no')\n    exit(0)",
    "exit(status() and 0)",
    "bad = status()\nexit(0 if bad else 0)",
    "raise SystemExit(status() * 0)",
    "n = 0\nwhile n < 3:\n    if status() == 0: break\n    n += 1\nprint(n)",
    "for x in (1, 2):\n    if status(): continue\n    act(x)",
    "[status() for _ in range(2)]",
    "for x in (1, 2):\n    if status() == 0:\n        print(x)\n        break\nelse: print('none')",
    "import json\ncodes = {'a': status()}\nprint(json.dumps(codes))",
    "def show(d):\n    for x in d: print(x)\nshow([status()])",
    "def f():\n    if status(): return None\n    return 1\nprint(f())",
    "def main():\n    if status(): return None\n    return 1\nexit(main())",
    "def f():\n    if status(): return\n    if act(): raise OSError\nf()",
    "def f():\n    if status(): return\n    exit(0)\nf()",
    "while True:\n    if status() == 0: break\n    break",
    "def f(n):\n    codes = {}\n    codes[n] = status()\nf(0)",
    "def f(): return status()\nverbs = {'a': f}\nverbs['a']()",
    "def f(): return status()\ndef main(): return verbs['a']()\nverbs = {'a': f}\nx = main()\nprint(x)",
    "def f(): yield status()\nfor x in f(): print(x)",
    "code = status()\nprint('on')\ncode = 0\nexit(code)",
    "def f(x): return status()\nimport heapq\ncodes = heapq.nsmallest(1, [1, 2], key=f)\nprint(codes)",
]
DROPPED = [
    "try: fail()\nexcept ValueError: pass",
    "try: fail()\nexcept Exception as e: print('no', e)",
    "try: fail()\nexcept (KeyError, ValueError):\n    print('no')\n    exit(0)",
    "try:\n    fail()\nexcept:\n    pass",
    "import contextlib\nwith contextlib.suppress(ValueError): fail()",
    "def f(): fail()\ntry: f()\nexcept ValueError as e:\n    message = str(e)\n    print(message)",
    "errors = []\ntry: fail()\nexcept ValueError as e: errors.append(e)\nprint(len(errors))",
    "def f():\n    try: fail()\n    except ValueError: return\nf()",
    "def f():\n    try: fail()\n    except ValueError as e: return len(str(e))\n    return 0\nf()",
    "try: fail()\nexcept ValueError as e: exit(print(e))",
    "def f():\n    try: fail()\n    except ValueError: return 'none'\nf()",
    "def f():\n    try: fail()\n    except ValueError: return False\n    return True\nprint(f())",
    "def f():\n    try: fail()\n    except ValueError: return 0\n    return 1\nexit(f())",
    "def f():\n    try: fail()\n    finally: return 0\nexit(f())",
    "for x in (1, 2):\n    try: fail()\n    finally: break",
    "def f():\n    rc = 0\n    try:\n        fail()\n        act()\n    finally: return rc\nexit(f())",
    "how = {}\ntry: fail()\nexcept Exception as e: how['a'] = type(e).__name__\nprint(how)",
]
NOT_DROPPED = [
    "try: fail()\nexcept ValueError: act()",
    "try: fail()\nexcept ValueError as e:\n    if len(str(e)): raise",
    "errors = []\ntry: fail()\nexcept ValueError as e: errors.append(e)\nif errors: act()",
    "try:\n    try: fail()\n    finally: print('on')\nexcept ValueError: act()",
    "try:\n    try: fail()\n    except KeyError: pass\nexcept ValueError: act()",
    "def f():\n    try: fail()\n    except ValueError: return 'none'\nact(f())",
    "def f():\n    try: fail()\n    except ValueError: return False\n    return True\nif not f(): act()",
    "def f():\n    try: return fail()\n    except ValueError: return None\nassert f() is None",
    "def f():\n    ok = False\n    try:\n        fail()\n        ok = True\n    finally: return ok\nassert not f()",
    "def f():\n    try: fail()\n    except ValueError: act()\n    finally: return 0\nexit(f())",
    "try:\n    try: fail()\n    finally:\n        for x in (1, 2): break\nexcept ValueError: act()",
]

MANAGERS = """
import contextlib
class Passes:
    def __enter__(self): return self
    def __exit__(self, kind, *_): print("left by", kind)
class Asks(Passes):
    def __exit__(self, kind, *_): return kind is not None and issubclass(kind, ValueError)
class Says(Passes):
    def __exit__(self, kind, *_):
        print("warning" if kind else "ok")
        return True
class Counts(Passes):
    failed = 0
    def __exit__(self, kind, *_):
        if kind is ValueError:
            Counts.failed += 1
            return True
class Others(Passes):
    def __exit__(self, kind, *_): return kind is KeyError
class Acts(Passes):
    def __exit__(self, *_):
        act()
        return True
@contextlib.contextmanager
def step(name):
    try: yield
    except ValueError: print(name, "failed")
@contextlib.contextmanager
def timed():
    try: yield
    finally: print("done")
@contextlib.contextmanager
def refused():
    try: yield
    except ValueError: act()
"""
DROPPED_BY = ["Asks()", "Says()", "step('one')", "timed(), step('one')"]
NOT_DROPPED_BY = ["Passes()", "Others()", "Acts()", "timed()", "refused()", "Counts()", "contextlib.nullcontext()"]


class _Asked(BaseException):
    """Ends a program that is better not run."""


def _not_as_0(frame: FrameType) -> bool:
    assert not uses.takes_for_0(frame, 1)
    raise _Asked


def asked(tmp_path: Path, source: str, ask: Callable[[FrameType], bool]) -> bool:
    """What `ask` says where the program `source` calls `status` or `fail` first."""
    file = tmp_path / "program.py"
    file.write_text(source + "\n")
    uses._programs.clear()
    found: list[bool] = []

    def status() -> int:
        found.append(ask(sys._getframe(1)))
        return 0

    def fail() -> None:
        found.append(ask(sys._getframe(1)))
        raise ValueError("wrong")

    names = {"status": status, "fail": fail, "act": lambda *a: None, "__name__": "__main__"}
    with contextlib.suppress(SystemExit, AssertionError, ValueError):
        exec(compile(source + "\n", str(file), "exec"), names)
    return found[0]


@pytest.mark.parametrize(("source", "used"), [*((s, True) for s in USED), *((s, False) for s in NOT_USED)])
def test_what_a_status_leads_to(tmp_path: Path, source: str, used: bool) -> None:
    assert asked(tmp_path, source, lambda frame: uses.is_used(frame, called=True)) is used


@pytest.mark.parametrize(("source", "dropped"), [*((s, True) for s in DROPPED), *((s, False) for s in NOT_DROPPED)])
def test_what_becomes_of_an_error(tmp_path: Path, source: str, dropped: bool) -> None:
    assert asked(tmp_path, source, lambda frame: caught.drops_error(frame, ("ValueError", "Exception"))) is dropped


@pytest.mark.parametrize(
    ("manager", "dropped"), [*((m, True) for m in DROPPED_BY), *((m, False) for m in NOT_DROPPED_BY)]
)
def test_what_a_manager_makes_of_an_error(tmp_path: Path, manager: str, dropped: bool) -> None:
    source = f"{MANAGERS}try:\n    with {manager}: fail()\nexcept ValueError: act()\n"
    assert asked(tmp_path, source, lambda frame: caught.drops_error(frame, ("ValueError", "Exception"))) is dropped


def test_a_program_whose_text_is_not_there_looks_at_what_it_keeps() -> None:
    found = []
    names = {"status": lambda: found.append(uses.is_used(sys._getframe(1), called=True)), "__name__": "m"}
    exec(compile("x = status()\nstatus()", "<nowhere>", "exec"), names)
    assert found == [True, False]


@pytest.mark.parametrize(("part", "used"), [(0, False), (1, True)])
def test_of_a_tuple_the_status_counts(tmp_path: Path, part: int, used: bool) -> None:
    source = "pid, code = status() or (1, 2)\nprint(pid)\nact(code)"
    assert asked(tmp_path, source, lambda frame: uses.is_used(frame, called=True, part=part)) is used


KEPT = [
    "class C: pass\nrows = [C(), C()]\nfor r in rows: r.code = status()\nexit(max(r.code for r in rows))",
    "codes = {}\ndef f(_, n): codes[n] = status()\nf(codes, 0)\nact(codes)",
    "codes = {}\ndef f(found, n): found[n] = status()\nf(codes, 0)\nact(codes)",
    "code = 0\ndef f():\n    global code\n    code = status()\nf()\nact(code)",
    "def g():\n    codes = []\n    def f(): codes.append([status()])\n    f()\n    act(codes)\ng()",
    "def g():\n    n = 0\n    def f():\n        nonlocal n\n        n = status()\n    f()\n    act(n)\ng()",
    "codes = []\ndef f(found):\n    found.append(status())\n    if found[0] > 3: print(9)\nf(codes)\nact(codes)",
]
KEPT_FOR_NOBODY = [
    "codes = {}\ndef f(n): codes[n] = status()\nf(0)\nprint(codes)",
    "code = 0\ndef f():\n    code = status()\nf()\nact(code)",
]


@pytest.mark.parametrize(("source", "used"), [*((s, True) for s in KEPT), *((s, False) for s in KEPT_FOR_NOBODY)])
def test_what_a_function_keeps_outside_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, used: bool
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "program.py"), raising=False)
    assert asked(tmp_path, source, lambda frame: uses.is_used(frame)) is used
    assert not (used and asked(tmp_path, source, lambda frame: uses.takes_for_0(frame, 1)))


RUN = """
from dataclasses import dataclass
@dataclass
class Run:
    name: str
    code: int = 0
    @property
    def ok(self): return self.code == 0
    def failed(self):
        if self.code: return True
        return False
"""
RUNS = f"{RUN}runs = [Run(str(x), code=status()) for x in (1, 2)]\n"
SUITE = """
class Suite:
    def __init__(self): self.codes = {}
    def run(self, name): self.codes[name] = status()
    def worst(self): return min(self.codes.values())
suite = Suite()
for name in "ab": suite.run(name)
"""
NOTED = "codes = {}\ndef note(n, code): codes[n] = code\nfor x in 'ab': note(x, status())\n"
MAPPED = "def run(x): return status()\ncodes = list(map(run, 'ab'))\n"
OBJECTS_AS_0 = [
    f"{RUN}runs = [Run('a'), Run('b')]\nfor r in runs: r.code = status()\nexit(min(r.code for r in runs))",
    f"{RUN}runs = []\nfor x in 'ab':\n    r = Run(x)\n    r.code = status()\n    runs.append(r)\n"
    "exit(min(r.code for r in runs))",
    f"{RUNS}exit(min(r.code for r in runs))",
    f"{RUNS}exit(min(runs, key=lambda r: r.code).code)",
    f"{RUNS}exit(runs[0].code)",
    f"{RUNS}if all(r.failed() for r in runs): exit(1)",
    f"{RUNS}exit(0 if any(r.ok for r in runs) else 1)",
    f"{RUNS}for r in runs: print(f'{{r.name}}: {{r.code}}')\nprint('ok')",
    f"{RUNS}from operator import attrgetter\nexit(min(map(attrgetter('code'), runs)))",
    f"{RUN}import time\ndef run(x):\n    t = time.time()\n    code = status()\n    return Run(x, code)\n"
    "def main():\n    runs = [run(x) for x in 'ab']\n    return 0 if any(r.ok for r in runs) else 1\nexit(main())",
    f"{SUITE}exit(min(suite.codes.values()))",
    f"{SUITE}exit(suite.worst())",
    f"{NOTED}exit(min(codes.values()))",
    f"{MAPPED}exit(min(codes))",
    "class R:\n    def __init__(self, n, c):\n        self.n = n\n"
    "        self.c = c\nrows = [R(x, status()) for x in 'ab']\nexit(min(r.c for r in rows))",
    "from typing import NamedTuple\nclass R(NamedTuple):\n    n: str\n    c: int\n"
    "rows = [R(x, status()) for x in 'ab']\nexit(min(c for _, c in rows))",
    "from collections import namedtuple\nR = namedtuple('R', 'n c')\nrows = [R(x, status()) for x in 'ab']\n"
    "exit(min(r.c for r in rows))",
    "from types import SimpleNamespace\nrows = [SimpleNamespace(c=status()) for x in 'ab']\n"
    "exit(min(r.c for r in rows))",
    "import time\nrows = {}\nfor x in 'ab':\n    t = time.time()\n"
    "    rows[x] = {'code': status(), 's': round(time.time() - t, 1)}\nexit(min(r['code'] for r in rows.values()))",
    "worst = lambda codes: min(codes)\nexit(worst([status() for x in 'ab']))",
    "run = lambda x: status()\nexit(min([run(x) for x in 'ab']))",
    "def worst(codes):\n    w = 9\n    for c in codes:\n        if c < w: w = c\n    return w\n"
    "codes = [status() for x in 'ab']\nexit(worst(codes))",
    "class R:\n    bad = 0\n    def run(self, x):\n        if status(): self.bad += 1\nr = R()\n"
    "for x in 'ab': r.run(x)\nexit(r.bad > 5)",
    "class C:\n    def f(self): self.code = status()\nc = C()\nc.f()\nif c.code > 1: exit(1)",
    "def f():\n    global code\n    code = status()\nf()\nif code > 1: exit(1)",
]
OBJECTS_NOT_AS_0 = [
    f"{RUN}runs = [Run('a'), Run('b')]\nfor r in runs: r.code = status()\nexit(max(r.code for r in runs))",
    f"{RUNS}exit(max(r.code for r in runs))",
    f"{RUNS}exit(0 if all(r.ok for r in runs) else 1)",
    f"{RUNS}good = [r for r in runs if r.ok]\nassert len(good) == 2",
    f"{RUNS}for r in runs:\n    if r.code: act(r.name)",
    f"{RUNS}for r in runs:\n    if r.code != len(r.name): exit(1)",
    f"{RUNS}bad = [r.name for r in runs if not r.ok]\nif bad: exit('failed: ' + ', '.join(bad))",
    f"{RUNS}import json\nfrom dataclasses import asdict\njson.dump([asdict(r) for r in runs], open('/dev/null', 'w'))",
    f"{RUN}best = None\nfor x in 'ab':\n    r = Run(x, status())\n    if r.ok: best = r\n"
    "if best is None: exit(1)\nact(best)",
    f"{RUN}def run(x):\n    for i in range(3):\n        r = Run(x, status())\n        if r.ok: return r\n"
    "    exit(1)\nrun('a')",
    f"{SUITE}exit(max(suite.codes.values()))",
    f"{NOTED}exit(1 if any(codes.values()) else 0)",
    f"{MAPPED}exit(max(codes))",
    "class Suite:\n    def __init__(self): self.failed = []\n    def run(self, x):\n        code = status()\n"
    "        if code != 0:\n            self.failed.append(x)\n    def code(self): return 1 if self.failed else 0\n"
    "s = Suite()\nfor x in 'ab': s.run(x)\nexit(s.code())",
    "class D:\n    def __init__(self): self.device = 'cuda' if status() == 0 else 'cpu'\n"
    "    def run(self): act(self.device)\nD().run()",
    "class P:\n    def __init__(self): self._code = status()\n    @property\n    def code(self): return self._code\n"
    "if P().code: exit(1)",
    f"{RUN}r = Run('a')\nr.code = status()\nact(vars(r))",
    f"{RUN}r = Run('a')\nr.code = status()\nif getattr(r, 'co' + 'de'): exit(1)",
    "import cmd\nclass C(cmd.Cmd):\n    def do_run(self, line): return status()\nC().onecmd('run')",
    "import queue\nq = queue.Queue()\ndef put(code): print(code)\nq.put(status())\nact(q)",
    "checks = {'a': lambda: status()}\nif any(check() for check in checks.values()): exit(1)",
]
MATCHES_AS_0 = [
    "good = 0\nfor x in 'ab':\n    match status():\n        case 0: good += 1\n        case _: print('no')\n"
    "exit(0 if good else 1)",
    "def f():\n    match status():\n        case 0: return 'ok'\n        case 7: return 'bad'\n"
    "        case _: return 'ok'\nexit(0 if f() == 'ok' else 1)",
]
MATCHES_NOT_AS_0 = [
    "match status():\n    case 0: act()\n    case _: exit(1)",
    "match status():\n    case 0: act(1)\n    case 1: act(2)\n    case _: exit(1)",
    "bad = 0\nmatch status():\n    case 0: pass\n    case _: bad = 1\nexit(bad)",
]
AS_0 = [
    *OBJECTS_AS_0,
    *(MATCHES_AS_0 if sys.version_info >= (3, 10) else ()),
    "exit(status() > 1)",
    "codes = [status(), 0]\nexit(min(codes))",
    "codes = [status() for _ in range(3)]\nexit(min(codes))",
    "codes = [status() for _ in range(3)]\nexit(codes[0])",
    "codes = []\nfor x in (1, 2): codes.append(status())\nif all(codes): exit(1)",
    "codes = {}\nfor x in (1, 2): codes[x] = status()\nexit(0 if any(c == 0 for c in codes.values()) else 1)",
    "worst = 0\nfor x in (1, 2): worst = min(worst, status())\nexit(worst)",
    "good = 0\nfor x in (1, 2):\n    if status() == 0:\n        good += 1\nexit(0 if good else 1)",
    "ok = False\nfor x in (1, 2):\n    if not status(): ok = True\nif not ok: exit(1)",
    "def ok(x):\n    if status():\n        print('no')\n        return False\n    return True\n"
    "exit(0 if any([ok(x) for x in (1, 2)]) else 1)",
    "def run(x): return status()\na, b = 0, 0\na = run(1)\nb = run(2)\nif a and b: exit(1)",
    "failed = []\nfor x in (1, 2):\n    if status(): failed.append(x)\nif len(failed) > 1: exit(1)",
    "failed = [x for x in (1, 2) if status()]\nexit(len(failed) // 2)",
    "n = sum([status() for _ in range(2)])\nassert n < 3",
    "for code in [status() for _ in range(2)]:\n    if code > 1: exit(code)",
    "if status() < 0: raise ValueError",
    "raise SystemExit(status() // 2)",
    "code = status()\nif code == 7: exit(1)\nelif code == 9: exit(2)",
    "rows = [(x, status()) for x in (1, 2)]\nif all(code for _, code in rows): exit(1)",
    "todo = [3, 4]\nn = 0\nwhile todo:\n    todo.pop()\n    if status() > 3: n += 1\nexit(n)",
    "def run(c): return status()\ncs = [str(1), str(2)]\nbad = [c for c in cs if run(c)]\n"
    "if len(bad) == len(cs): exit(1)",
    "def main():\n    codes = {}\n    for c in [str(1)]: codes[c[0]] = status()\n"
    "    return min(codes.values())\nexit(main())",
    "if status() > 1: exit(2)\nelse: act()",
]
NOT_AS_0 = [
    *(source for source in USED if "self.code" not in source),  # which nobody reads
    *OBJECTS_NOT_AS_0,
    *(MATCHES_NOT_AS_0 if sys.version_info >= (3, 10) else ()),
    "bad = [n for n in (1, 2) if status()]\nif len(bad) != 2: exit(1)",  # where both are to fail
    "bad = [n for n in (1, 2) if status()]\nexit(0 if len(bad) == 2 else 1)",
    "bad = {n for n in (1, 2) if status()}\nif bad != {2}: exit(1)",
    "bad = {}\nfor n in open('/dev/null'): bad[n] = 1\nfor n in open('/proc/self/stat'): bad[n] = status()\n"
    "if 2 in bad: exit(1)",
    "exit(max([status() for _ in range(3)]))",
    "exit(any([status() for _ in range(3)]))",
    "codes = [status() for _ in range(3)]\nif any(codes): exit(1)\nprint(codes[0])",
    "codes = [status() for _ in range(3)]\nassert codes == [0, 1, 0]",
    "if status() != 1: exit(1)",
    "assert status() == 1",
    "code = status()\nif code > 1: exit(2)\nact(code)",
    "good = [x for x in (1, 2) if status() == 0]\nassert len(good) == 2",
    "def f(n):\n    while n:\n        if status() == 0: return\n        n -= 1\n    exit('none')\nf(1)",
]
WITHOUT_END = [
    "bad = status() + sum(range(10000000000))\nexit(bad * 0)",
    "bad = [status()] * 100000000000\nexit(min(bad))",
    "bad = '%100000000000d' % status()\nexit(bad > '1')",
    "bad = [status()]\nbad *= 100000000000\nexit(min(bad))",
    "for x in range(status() * 100000000000): exit(x)",
    "r = [1, 2, 3, 4, 5, 6, 7, 8, 9]\ncode = status()\n"
    "bad = [code for a in r for b in r for c in r for d in r for e in r for f in r for g in r for h in r for i in r]\n"
    "exit(len(bad) > 9)",
    "code = status()\nexit(sum(iter(int, code)) > 1)",
    "code = status()\n" + "if code > 5: exit(1)\n" * 300,
    "def g():\n    code = status()\n    if code: return 1\n    def f(n): return f(n)\n    return f(1)\nexit(g())",
]


@pytest.mark.parametrize(("source", "same"), [*((s, True) for s in AS_0), *((s, False) for s in NOT_AS_0)])
def test_what_a_1_is_taken_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, same: bool) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "program.py"), raising=False)
    assert asked(tmp_path, source, lambda frame: uses.takes_for_0(frame, 1)) is same


@pytest.mark.parametrize("source", WITHOUT_END)
def test_what_has_no_end_or_no_size_is_not_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "program.py"), raising=False)
    with pytest.raises(_Asked):  # before the program itself goes on
        asked(tmp_path, source, _not_as_0)


def test_a_place_is_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[object] = []
    at = uses.Program.at
    monkeypatch.setattr(uses.Program, "at", lambda program, frame: places.append(frame) or at(program, frame))
    source = "def f(): return status()\nwhile f() == 7: pass"
    assert asked(tmp_path, source, lambda frame: all(uses.is_used(frame, called=True) for _ in "1234"))
    assert len(places) == 3  # two ask whether they hand it on, and one of them what it makes of it


@pytest.mark.parametrize(("fine", "same"), [("(0, 3)", False), ("(0, 1, 2, 3)", False), ("range(9)", True)])
def test_a_number_that_is_asked_for_where_the_answer_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fine: str, same: bool
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "program.py"), raising=False)
    source = f"ok = status() in {fine}\nif not ok: exit(1)"
    assert asked(tmp_path, source, lambda frame: uses.takes_for_0(frame, 3)) is same


@pytest.mark.parametrize(("code", "same"), [(5, False), (3, True), (2, True)])
def test_a_code_that_was_chosen_is_tolerated_by_its_number(tmp_path: Path, code: int, same: bool) -> None:
    source = "FINE = (0, 5)\ncode = status()\nif code not in FINE and code > 9: exit(1)"
    assert asked(tmp_path, source, lambda frame: uses.takes_for_0(frame, code)) is same


@pytest.mark.parametrize(("code", "same"), [(4, True), (5, False)])
def test_so_is_one_by_a_method_of_what_it_is_kept_in(tmp_path: Path, code: int, same: bool) -> None:
    kept = RUN.replace("== 0", "in (0, 5) or self.code < 9")
    source = f"{kept}runs = [Run(x, status()) for x in 'ab']\nexit(1 if [r for r in runs if not r.ok] else 0)"
    assert asked(tmp_path, source, lambda frame: uses.takes_for_0(frame, code)) is same


@pytest.mark.parametrize(("end", "same"), [("min([run(x) for x in 'ab'])", True), ("max([run(1), 0])", False)])
def test_a_function_of_a_module_is_called_by_whoever_calls_it_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, same: bool
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "main.py"), raising=False)
    asks: list[bool] = []
    helper = "def call(x): return status()\ndef run(x):\n    code = call(x)\n    return code\n"
    main = f"exit({end})\n"
    names = {"status": lambda: asks.append(uses.takes_for_0(sys._getframe(1), 1)) or 0, "__name__": "helper"}
    for name, text in (("helper.py", helper), ("main.py", main)):
        (tmp_path / name).write_text(text)
    uses._programs.clear()
    exec(compile(helper, str(tmp_path / "helper.py"), "exec"), names)
    with pytest.raises(SystemExit):
        exec(compile(main, str(tmp_path / "main.py"), "exec"), {"run": names["run"], "__name__": "__main__"})
    assert asks[0] is same


def test_a_function_of_a_module_whose_caller_cannot_be_read(tmp_path: Path) -> None:
    source = "def run(x): return status()\nexit(min(map(run, [1, 0])))"
    assert not asked(tmp_path, source, lambda frame: uses.takes_for_0(frame, 1))
