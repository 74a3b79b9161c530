"""Real programs that drop what says that something is wrong: what is seen of it, and that nothing else is different."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.injected.stage import TEST_VARIABLE
from tests.support import ROOT

pytestmark = pytest.mark.process

SITE = """
import json
from orchestrator.agent.injected.programs.dropped import Programs
class Told:
    def is_of_stage(self): return True
    def ended_inside(self, code): self._tell("main", code)
    def note(self, name, code, file, line, *, call): self._tell(name, line)
    def add(self, *, doubt): self._tell("doubt", doubt)
    def _tell(self, *what): open({notes!r}, "a").write(json.dumps(what) + "\\n")
import runpy
programs = Programs({tree!r}, Told(), Told(), Told(), lambda path: False)
programs.after_import["runpy"](runpy)
programs.start()
"""
GUARD = "if __name__ == '__main__':\n    "
MAIN = "import sys\ndef main():\n    if len(sys.argv) > {}:\n        return 1\n    return 0\n"
BAD, GOOD = MAIN.format(0), MAIN.format(9)
ONLY_1 = "def main():\n    if 1 < 2:\n        return 1\n    print('same')\n"
ALLCLOSE = "def allclose(a, b): return a == b\nequal = allclose\n"
DOUBT = ["doubt", "allclose() came out false, and nothing depends on it (program.py line 3)"]
JITTED = ["doubt", "what program.py drops is not seen, for it imports numba"]
CAUGHT = ["doubt", "an AssertionError was caught, and nothing depends on it (program.py line 5)"]
EXCEEDED = ["doubt", "a difference exceeded its limit, and nothing depends on it (program.py line 2)"]
MADE = "a check (ValueError is made, and not raised)"
ALL = ["doubt", "all() came out false, and nothing depends on it (program.py line 10)"]
LEFT = ["doubt", "it was left before its assertions (program.py line 2)"]
MASK = """class Mask:
    shape = (2,)
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __lt__(self, limit): return self
    __gt__ = __lt__
    def __bool__(self): return False
    def all(self): return False
m = Mask()
"""
NO_VALUE = MASK.replace("(2,)", "()").replace("return False", "raise RuntimeError")  # as on PyTorch's device `meta`
EARLY = "def main():\n    if 1 < 2:\n        {}\n        return\n    assert 1 < 2\nmain()\n"
WHERE = """
import json, sys
from operator import eq as equal
def frames():
    frame, found = sys._getframe(1), []
    while frame: found.append(frame.f_code.co_name); frame = frame.f_back
    return [name for name in found if "_run" not in name]
print(json.dumps([__name__, __file__, __spec__, __package__, type(__loader__).__name__, __doc__,
                  sys.path, sys.argv, sorted(globals()), frames(), sys.modules["__main__"].__dict__ is globals()]))
"""


def seen(tmp_path: Path, source: str, *argv: str, stdin: str = "") -> tuple[str, list[list[object]]]:
    """What the program `source` printed, and what was told of it."""
    notes, site, program = tmp_path / "notes", tmp_path / "site", tmp_path / "tree" / "program.py"
    for folder in (site, program.parent):
        folder.mkdir(exist_ok=True)
    tree = os.path.realpath(program.parent) + os.sep
    (site / "sitecustomize.py").write_text(SITE.format(notes=str(notes), tree=tree))
    program.write_text(source)
    env = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
    env.pop(TEST_VARIABLE, None)
    command = [sys.executable, *(argv or ["program.py"])]
    done = subprocess.run(command, cwd=program.parent, env=env, capture_output=True, timeout=60, text=True, input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout, [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


EXIT = (
    "import types\nclass Exit(RuntimeError):  # as click's, which typer's is\n"
    "    def __init__(self, code): self.exit_code = code\ntypes.Exit = Exit\n"
)
OTHER = "import sys, types\nmade = sys.modules['check'] = types.ModuleType('check')\nmade.main = lambda: {}\n"
DROPPED: list[tuple[str, list[list[object]]]] = [
    (BAD + "main()\n", [["main", 1]]),
    (BAD + GUARD + "main()\n", [["main", 1]]),
    (BAD + GUARD + "main()\n    print('end')\n", [["main", 1]]),
    (ONLY_1 + GUARD + "main()\n", [["main", 1]]),
    ("def main():\n    return -1 if 1 < 2 else 0\nmain()\n", [["main", -1]]),
    (BAD.replace("main", "check") + GUARD + "check()\n", [["main", 1]]),
    ("# as fast as numba\n" + BAD + "main()\n", [["main", 1]]),
    ("try: import numba\nexcept ImportError: pass\n" + BAD + "main()\n", [JITTED]),
    (GOOD + "main()\n", []),
    (GOOD + GUARD + "main()\n", []),
    (GOOD + GUARD + "sys.exit(main())\n", []),
    ("# -*- coding: latin-1 -*-\nif 1 < 2:\n    ValueError('no')\n", [[MADE, 3]]),
    (MASK + "(m < 1).all()  # or m == 1\n", [ALL]),
    (MASK + "for _ in range(9): (m < 1).all()\ntry: (m < 1).all()\nexcept TypeError: pass\n# a.all() == b\n", []),
    (MASK + "near = (m < 1).all()\nif near == 1: near = (m == 1).all()\n", []),
    ("print('no')\nraise SystemExit(0)\nassert 1 < 2\n", [LEFT]),
    ("import sys\nsys.exit()\nassert 1 < 2\n", [LEFT]),
    ("def main():\n    return\n    assert 1 < 2\nmain()\n", [LEFT]),
    ("assert 1 < 2\nraise SystemExit(0)\nassert 1 < 2\n", []),
    ("for x in 1, 2: print(x)\nraise SystemExit(0)\nassert 1 < 2\n", []),
    ("def main(): assert 1 < 2\nmain()\nraise SystemExit(0)\nassert 1 < 2\n", []),
    ("print('no')\nraise SystemExit(0)\nassert False\n", []),
    ("raise SystemExit(0)\ndef f(): assert 1 < 2\n", []),
    (BAD + GUARD + "assert main() == 1\n", []),
    (ONLY_1.replace("main", "check") + "check()\n", []),
    ("def save(x):\n    return 1 if x else 0\nsave('x')\n", []),
    ("def main():\n    return 3\ndef other():\n    return main()\nprint(other())\n", []),
    ("def main():\n    return int('3')\nmain()\n", []),
    ("def main():\n    def inner():\n        return 1\n    print(inner())\nmain()\n", []),
    (f"def again(f): return f\n@again\n{BAD[BAD.index('def') :]}import sys\nmain()\n", []),
    (ALLCLOSE + "allclose(1, 2)\n", [["allclose()", 3]]),
    (ALLCLOSE + "allclose(1, 1)\n", []),
    (ALLCLOSE + "equal(1, 2)\n", [["equal()", 3]]),
    (ALLCLOSE + "print('equal', equal(1, 2))\n", []),
    (ALLCLOSE + "if allclose(1, 2):\n    print('match')\nelse:\n    print('differ')\n", [["allclose()", 3]]),
    (ALLCLOSE + "if not allclose(1, 1):\n    print('differ')\n", []),
    (ALLCLOSE + "ok = allclose(1, 2)\nprint('done')\n", [["allclose()", 3]]),
    (ALLCLOSE + "from statistics import mean\nok = allclose(1, 2)\nif not ok:\n    far = mean([2])\n    print(far)\n",
     [["allclose()", 4]]),
    (ALLCLOSE + "far = 0\nif not allclose(1, 2):\n    far = abs(1 - 2)\n    print(far)\nassert far < 9\n", []),
    (ALLCLOSE + "allclose(int('1'), 2) or print('differ')\n", [["allclose()", 3]]),
    (ALLCLOSE + "print('match') if allclose(1, 2) else print('differ')\n", [["allclose()", 3]]),
    (ALLCLOSE + "[allclose(int(x), 2) for x in '1']\n", [["allclose()", 3]]),
    (ALLCLOSE + "allclose(1, 2) or open('x', 'w').close()\n", []),
    (ALLCLOSE + "open('x', 'w').close() if allclose(1, 2) else print('differ')\n", []),
    (ALLCLOSE + "ok = allclose(1, 2)\nassert not ok\n", []),
    (ALLCLOSE + "fast = 2 if allclose(1, 2) else 3\nopen('x', 'w').write(str(fast))\n", []),
    ("def allclose(a, b, atol): return b - a < atol\n"
     "for tol in (1, 9): print(tol, allclose(1, 5, atol=tol))\n", []),
    ("def allclose(a, b, atol): return b - a < atol\n"
     "for x in (1, 9):\n    if not allclose(1, x, atol=3): print(x)\n", [["allclose()", 3]]),
    (ALLCLOSE + "def check(): return allclose(1, 2)\ncheck()\n", [["allclose()", 3]]),
    (ALLCLOSE + "def check(): return allclose(1, 2)\nassert not check()\n", []),
    ("def gradcheck(*a, **k): return False\nprint(gradcheck(1, raise_exception=False))\n", [["gradcheck()", 2]]),
    ("assert (1 > 2, 'why')\n", [["an assertion of a tuple", 1]]),
    ("assert (1 < 2, 'why')\n", []),
    ("assert (1 <\n 2)\n", []),
    (EXIT + "if 1 < 2:\n    types.Exit(1)\n", [["a check (Exit is made, and not raised)", 6]]),
    (EXIT + "if 1 < 2:\n    types.Exit(0)\n", []),
    ("def MadeError(): return 1\nMadeError()\n", []),
    ("if 1 < 2:\n    ValueError('no')\n", [["a check (ValueError is made, and not raised)", 2]]),
    ("import sys\nif 1 < 2:\n    print('no')\n    sys.exit\n", [["a check (exit is named, and not called)", 4]]),
    ("import sys\nif 1 > 2:\n    sys.exit\nquit\n", []),
    ("try:\n    raise ValueError('no')\nexcept ValueError: pass\n", []),
    ("class equal:\n    def __init__(self, _): pass\n    def __bool__(self): raise TypeError\nequal(1)\n", []),
    (ALLCLOSE + "1 == 2\nlen('a') > 3\n", []),
    # What converges, what is searched, and at which tolerance.
    (ALLCLOSE + "x, y = 4, 0\nwhile not allclose(x, y): x, y = x // 2, x\nprint(x)\n", []),
    (ALLCLOSE + "for i in range(9):\n    if i and allclose(i, 3):\n        print(i)\n        break\n", []),
    (ALLCLOSE + "def root():\n    for i in range(9):\n        if allclose(i, 3): return i\nprint(root())\n", []),
    (ALLCLOSE + "for i in range(9):\n    done = allclose(i, 3)\n    if done: break\nprint(done)\n", []),
    (ALLCLOSE + "for i in range(9):\n    if not allclose(i, 3):\n        print('no')\n        break\n",
     [["allclose()", 4]]),
    ("def allclose(a, b, rtol): return b - a < rtol\n"
     "for e in (1, 9): print(e, allclose(1, 5, 10 ** -e))\nprint([allclose(1, 5, rtol=r) for r in (1, 9)])\n", []),
    (ALLCLOSE + "import timeit\ntimeit.timeit(lambda: allclose(1, 2), number=1)\n", []),
    # What only has the name of a comparison, or of an exit.
    ("class Model:\n    def equal(self, a, b): return 0\nModel().equal(1, 2)\n", []),
    ("def equal(a, b, out): return False\nequal(1, 2, out=[])\n", []),
    ("from unittest import mock\nm = mock.Mock()\nm.equal(1)\nassert len(m.mock_calls) == 1\n", []),
    ("class Server:\n    @property\n    def exit(self): open('left', 'w').close()\n"
     "if 1 < 2:\n    Server().exit\nassert open('left')\n", []),
    ("if 1 < 2:\n    UserWarning('old')\nValueError\n", []),
    ("def main(): return None\nif 1 < 2:\n    SystemExit(main())\nValueError\n", []),
    ("def main(): return 3\nif 1 < 2:\n    SystemExit(main())\n",
     [["a check (SystemExit is made, and not raised)", 3]]),
    # An assertion that failed, of which nothing but words is made.
    ("def main():\n    assert 1 > 2\ntry:\n    main()\nexcept Exception as e:\n    print('no', e)\n", [CAUGHT]),
    ("try:\n    assert 1 > 2\nexcept AssertionError: pass\n", [["doubt", CAUGHT[1].replace("5", "3")]]),
    ("try:\n    assert 1 > 2\nexcept AssertionError:\n    ok = False\nelse:\n    ok = True\nassert not ok\n", []),
    ("try:\n    assert 1 > 2\nexcept AssertionError: print('as it must')\nelse: raise SystemExit(1)\n", []),
    ("try:\n    assert 1 > 2\n    raise SystemExit(1)\nexcept AssertionError: print('as it must')\n", []),
    ("try:\n    assert 1 < 2\n    int('a')\nexcept Exception: print('no number')\n", []),
    ("import unittest\ntry:\n    assert 1 < 2\n    unittest.TestCase().fail('a library')\n    1 < 2\n"
     "except Exception: print('elsewhere')\n", []),
    # A difference and its limit, compared by hand.
    ("err = abs(3 - 1)\nif err > 1:\n    print('differs')\n", [EXCEEDED]),
    ("a, b = 3, 1\n" + "print('PASS' if abs(a - b) < 1 else 'FAIL')\n", [EXCEEDED]),
    ("err = abs(3 - 1) / abs(1)\nok = err <= 1\nprint('ok' if ok else 'bad')\n", [EXCEEDED]),
    ("err = max(abs(3 - 1), 0)\nif 1 < err:\n    print('differs')\n", []),  # of what is not known
    ("err = max(abs(3 - 1), abs(2 - 2))\nif 1 < err:\n    print('differs')\n", [EXCEEDED]),
    ("err = 0\nfor x in (1, 3): err = max(err, abs(x - 1))\nprint('FAIL' if err > 1 else 'PASS')\n",
     [["doubt", EXCEEDED[1].replace("line 2", "line 3")]]),
    ("err = 0\nfor x in (1, 3): err = max(err, x)\nprint('FAIL' if err > 1 else 'PASS')\n", []),
    ("err = 2\nprint('FAIL' if err > 1 else 'PASS')\n", []),
    ("err = abs(3 - 2)\nif err > 1:\n    print('differs')\n", []),
    ("err = abs(3 - 1)\nif err > 1:\n    print('large')\nassert err < 9\n", []),
    ("err = abs(3 - 1)\nif err > 1:\n    print('large')\n    open('x', 'w')\n", []),
    ("for x in (5, 3, 1):\n    if abs(x - 1) < 1: print('there')\n", []),
    ("x, y = 9, 1\nwhile abs(x - y) > 1: x -= 1\nprint(x)\n", []),
    ("for x in (9, 1):\n    if abs(x - 1) < 1:\n        print(x)\n        break\n", []),
    ("began, now = 1, 9\nif now - began > 5: print('slow')\n", []),  # no size of it
    ("if abs(3) > 1: print('large')\n", []),
    (MASK + "near = abs(m - m) < 3\nprint(near)\n", []),  # of elements
    (MASK + "near = (abs(m - m) < 3).all()\nprint('near' if near else 'far')\n",
     [["doubt", EXCEEDED[1].replace("line 2", "line 10")]]),
    (NO_VALUE + "near = abs(m - m) < 3\nprint(near.shape)\n", []),
    (NO_VALUE + "far = abs(m - m) > 3\nprint(far.shape)\n", []),
    ("def differs(a, b):\n    if abs(a - b) < 1:\n        return None\n    return 'differs'\n"
     "if differs(1, 9) is None: raise SystemExit(1)\n", []),
    # Left before its assertions, for no reason but words.
    (EARLY.format("print('no GPU')"), [["doubt", "it was left before its assertions (program.py line 4)"]]),
    (EARLY.format("open('x', 'w').write('no GPU')"), []),
    (EARLY.replace("if 1 < 2", "if 1 > 2").format("print('no GPU')"), []),
    (EARLY.replace("\nmain()", "\ndef other(): main()\nother()").format("print('no GPU')"), []),
    ("import sys\nif 1 < 2:\n    print('no GPU')\n    sys.exit(0)\nassert 1 < 2\n",
     [["doubt", "it was left before its assertions (program.py line 4)"]]),
    ("try:\n    import no_such\nexcept ImportError:\n    raise SystemExit\nassert 1 < 2\n",
     [["doubt", "it was left before its assertions (program.py line 4)"]]),
    ("import sys\nif 1 < 2:\n    print('no GPU')\n    sys.exit(0)\nif 1 < 2:\n    assert 1 < 2\n", []),
    # What may be meant as it is: told, and not by words that say which way it went.
    (ALLCLOSE + "print('match', allclose(1, 2))\n", [DOUBT]),
    (ALLCLOSE + "print('match' if allclose(1, 2) else 'differ')\n", [["allclose()", 3]]),
    (ALLCLOSE + "for x in (1, 2): print(f'{x}: {allclose(1, x)}')\n", [DOUBT]),
    (ALLCLOSE + "print({x: allclose(1, x) for x in (1, 2)})\n", [DOUBT]),
    (ALLCLOSE + "rows = [(x, allclose(1, x)) for x in (1, 2)]\nfor row in rows:\n    print(row)\n", [DOUBT]),
    (ALLCLOSE + "ok = allclose(1, 2)\nprint(ok)\n", [DOUBT]),
    (ALLCLOSE + "ok = allclose(1, 2)\nprint(ok)\nif not ok: print('differ')\n", [["allclose()", 3]]),
    (ALLCLOSE + "def check(): return allclose(1, 2)\nprint('match', check())\n", [DOUBT]),
    (ALLCLOSE + "def check(): return allclose(1, 2)\ncheck()\nprint(check())\n", [["allclose()", 3]] * 2),
    (ALLCLOSE + "print('changed:', not allclose(1, 2))\n",
     [DOUBT]),
    (ALLCLOSE + "for _ in range(3):\n    equal(1, 2)\n",
     [["doubt", "equal() came out false, and nothing depends on it (program.py line 4)"]]),
    (BAD.replace("main", "collatz") + GUARD + "collatz()\n",
     [["doubt", "collatz() returned 1, which the program drops (program.py line 7)"]]),
    (OTHER.format(1) + "from check import main\nmain()\n",
     [["doubt", "the imported main() returned 1, which the program drops (program.py line 5)"]]),
    (OTHER.format(1) + "import check\nif __name__ == '__main__':\n    check.main()\n",
     [["doubt", "the imported main() returned 1, which the program drops (program.py line 6)"]]),
    (OTHER.format(0) + "from check import main\nmain()\n", []),
    (OTHER.format(1) + "from check import main\nif main(): print('differ')\n", []),
]  # fmt: skip


@pytest.mark.parametrize(("source", "told"), DROPPED)
def test_what_a_program_drops(tmp_path: Path, source: str, told: list[list[object]]) -> None:
    assert seen(tmp_path, source)[1] == told
    assert seen(tmp_path, source, "-m", "program")[1] == 2 * told


def called(told: list[list[object]], name: str) -> list[list[object]]:
    return [[what.replace("program.py", name) if isinstance(what, str) else what for what in each] for each in told]


@pytest.mark.parametrize("of", DROPPED, ids=range(len(DROPPED)))
def test_what_a_program_drops_that_comes_in_no_file(tmp_path: Path, of: tuple[str, list[list[object]]]) -> None:
    source, told = of
    assert seen(tmp_path, source, "-c", source)[1] == called(told, "python -c")
    (tmp_path / "notes").unlink(missing_ok=True)
    assert seen(tmp_path, source, "-", "a", stdin=source)[1] == called(told, "python -")
    (tmp_path / "notes").unlink(missing_ok=True)
    assert seen(tmp_path, source, "/dev/stdin", stdin=source)[1] == called(told, "/dev/stdin")


@pytest.mark.parametrize(
    "source",
    [
        WHERE.replace("__name__, __file__", "__name__").replace('"_run" not in name', 'name not in ("_run", "hook")'),
        "def f(): 1 / 0\nf()\n",
        "try: 1 / 0\nfinally: {}['k']\n",
        "import sys\nsys.exit('message')\n",
        "import sys\nsys.exit(3)\n",
        "import sys\ndef hook(*of): print(of[0], of[2].tb_lineno)\nsys.excepthook = hook\n1 / 0\n",
        "import sys\ndef hook(*of): raise RuntimeError('hook')\nsys.excepthook = hook\n1 / 0\n",
        "import sys\ndef hook(*of): print(sys.exc_info())\nsys.excepthook = hook\n1 / 0\n",
        "import sys\nsys.excepthook = None\n1 / 0\n",
        "import sys\ndel sys.excepthook\n1 / 0\n",
        "import traceback, warnings\nwarnings.warn('seen')\ntry: 1 / 0\nexcept Exception: traceback.print_exc()\n",
        "import atexit, sys\n"
        "atexit.register(lambda: print(sys.last_value, sys.last_traceback.tb_frame.f_code.co_name))\n1 / 0\n",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\n",
        "import sys\ncalls = []\nsys.settrace(lambda frame, *_: calls.append(frame.f_code.co_name))\n"
        "def f(): pass\nf()\nsys.settrace(None)\nprint(calls)\n",
        "import os\nprint(os.read(0, 9))\n",
        "x = 'é'\nprint(ascii(x))\n",
        "print(\n",
        " print(1)\n",
        "",
    ],
)
def test_a_program_in_no_file_ends_and_says_all_as_without(tmp_path: Path, source: str) -> None:
    """With something to look at in it, and without."""
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONIOENCODING": "utf-8"}
    env.pop(TEST_VARIABLE, None)
    for drops in ("", "if 1 > 2:\n    ValueError('no')\n"):
        program = source + drops
        for argv in (["-c", program, "a"], ["-"], [], ["/dev/stdin", "a"]):
            ends = []
            for site in ("", SITE.format(notes=str(tmp_path / "notes"), tree=os.path.realpath(tmp_path) + os.sep)):
                (tmp_path / "sitecustomize.py").write_text(site)
                done = subprocess.run(
                    [sys.executable, *argv], cwd=tmp_path, env=env, capture_output=True, timeout=60, text=True,
                    input="read" if "-c" in argv else program,
                )  # fmt: skip
                ends.append((done.returncode, done.stdout, done.stderr))
            assert ends[0] == ends[1], argv
    assert not (tmp_path / "notes").exists()


@pytest.mark.parametrize("argv", [["-"], ["-c", "if 1 > 2: ValueError('no')\nraise KeyboardInterrupt"]])
def test_an_interrupted_program_in_no_file_ends_by_the_signal(tmp_path: Path, argv: list[str]) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE.format(notes="n", tree=os.path.realpath(tmp_path) + os.sep))
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    env.pop(TEST_VARIABLE, None)
    done = subprocess.run(
        [sys.executable, *argv], cwd=tmp_path, env=env, input=b"raise KeyboardInterrupt", capture_output=True
    )
    assert done.returncode == -signal.SIGINT
    assert re.search(rb'File "<st(din|ring)>", line \d, in <module>\n(.*\n)?KeyboardInterrupt\n$', done.stderr)


@pytest.mark.parametrize(("source", "told"), [("x = 1; assert x", True), ("x = 'assert not'", False)])
def test_assertions_that_python_leaves_out(tmp_path: Path, source: str, told: bool) -> None:
    doubts = [["doubt", "Python left the assertions of python -c out (-O)"]] if told else []
    assert seen(tmp_path, source, "-O", "-c", source)[1] == doubts


ASIDE = """import sys
def allclose(a, b): return a == b
def check():
    allclose(1, 2)
    return allclose(1, 2)
if len(sys.argv) > 9:
    ValueError("no")
    sys.exit
class Last:
    def equal(self, *of): self.of = of; return False
    def set(self): self.equal(1, 2)
Last().set()
kept = allclose(1, 2)
assert (kept, "is kept")
check()
"""
TOLD_ASIDE = [["an assertion of a tuple", 14], ["allclose()", 4]]


@pytest.mark.parametrize(
    "source",
    [
        "import aside\n",
        "import runpy\nassert not runpy.run_path('aside.py')['kept']\n",
        "names = {}\nexec(open('aside.py').read(), names)\nassert not names['kept']\n",
        "exec(open('aside.py', 'rb').read())\nassert not kept\n",
        "exec(compile(open('aside.py').read(), 'aside.py', mode='exec'))\n"
        "assert check.__code__.co_filename == 'aside.py'\n",
        "exec(compile(open('aside.py').read(), 'aside.py', 'exec', 0, True))\n",
        "import builtins\nbuiltins.exec(*[open('aside.py').read(), {}])\n",
        "exec(open('aside.py').read(), {'__builtins__': dict(vars(__builtins__))})\n",
        "from importlib.machinery import SourceFileLoader as L\nexec(L('aside', 'aside.py').get_code('aside'))\n",
        "def f():\n    there = 3\n    exec('assert there == 3')\nf()\nexec(open('aside.py').read())\n",
        "from __future__ import annotations\n"
        "exec(open('aside.py').read() + 'def f(a: b): pass\\nassert f.__annotations__ == dict(a=\"b\")')\n",
    ],
)
def test_what_is_dropped_in_what_a_program_brings_in(tmp_path: Path, source: str) -> None:
    """By statements of their own; of all else others may make something."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "aside.py").write_text(ASIDE)
    assert seen(tmp_path, source)[1] == TOLD_ASIDE
    (tmp_path / "notes").unlink()
    assert seen(tmp_path, source, "-c", source)[1] == TOLD_ASIDE


@pytest.mark.parametrize(
    "source",
    [
        "exec('x = 1; assert (', {})\n",
        "exec('raise ValueError(3)')\n",
        "compile('a', 'b', 'exec', 0, 1, 2)\n",
        "import ast\nraise SystemExit(ast.dump(compile('assert (a, b)', 'b', 'exec', ast.PyCF_ONLY_AST)))\n",
        "exec(3)\n",
        "exec('math.isclose(1, 1)\\nreturn 3')\n",
        "exec(*['math.isclose(1, 1)', {'math': math}])\n",
        "exec('math.isclose(1, 1)', {'__builtins__': {}, 'math': math})\n",
        "exec('math.isclose(1, 1)', {'__builtins__': None, 'math': math})\n",
        "exec(compile('math.isclose(1, 1)', '', 'exec'), {'__builtins__': {}, 'math': math})\n",
        "exec('# coding: latin-1\\nmath.isclose(1, 1)\\nraise SystemExit(ascii(\"\xe4\"))')\n",
        "def exec(text): raise SystemExit(text)\nexec('math.isclose(1, 1)')\n",
        "def compile(*given): raise SystemExit(str(given))\ncompile('math.isclose(1, 1)', 'a.c', 'exec')\n",
        "exec('math.isclose(1, 1)\\nx = 1 is 1')\nexec(compile('math.isclose(1, 1)\\nx = 1 is 1', 'a', 'exec'))\n",
    ],
)
def test_what_is_executed_fails_as_without(tmp_path: Path, source: str) -> None:
    def ended(site: str) -> tuple[int, str]:
        (tmp_path / "sitecustomize.py").write_text(site)
        command = [sys.executable, "-c", "import math\nmath.isclose(1, 1)\n" + source]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=60, text=True)
        return done.returncode, done.stderr

    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    env.pop(TEST_VARIABLE, None)
    assert ended(SITE.format(notes=str(tmp_path / "notes"), tree=os.path.realpath(tmp_path) + os.sep)) == ended("")


def test_a_folder_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "tree" / "folder").mkdir(parents=True)
    for second, told in ((2, [["equal()", 2]]), (1, [])):
        program = tmp_path / "tree" / "folder" / "__main__.py"
        program.write_text(f"from operator import eq as equal\nequal(1, {second})\n")
        assert seen(tmp_path, "", "folder")[1] == told
        (tmp_path / "notes").unlink(missing_ok=True)


def test_a_program_without_a_suffix(tmp_path: Path) -> None:
    source = "#!/usr/bin/env python\n" + ALLCLOSE + "allclose(1, 2)\n"
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "check").write_text(source)
    assert seen(tmp_path, source, "check")[1] == [["allclose()", 4]]
    assert seen(tmp_path, source, "./check")[1] == 2 * [["allclose()", 4]]


@pytest.mark.parametrize("first", ["", '"""Text."""\n', '"""Text."""\nfrom __future__ import annotations\n', "# x\n"])
def test_a_program_with_marks_finds_all_as_without(tmp_path: Path, first: str) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link.py").symlink_to("program.py")
    (tmp_path / "tree" / "program").symlink_to("program.py")
    whole = str(tmp_path / "tree" / "program.py")
    for argv in (["program.py", "--all"], ["./program.py"], [whole], ["link.py"], ["program"]):
        plain, told = seen(tmp_path, first + WHERE, *argv)
        assert told == []
        assert seen(tmp_path, first + WHERE + "equal(1, 2)\n", *argv) == (
            plain,
            [["equal()", len((first + WHERE).splitlines()) + 1]],
        )
        (tmp_path / "notes").unlink()


def test_processes_of_a_program_with_marks(tmp_path: Path) -> None:
    source = BAD + "import multiprocessing\ndef twice(x): return 2 * x\n" + GUARD + (
        "with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(twice, [1, 2]))\n    main()\n"
    )  # fmt: skip
    assert seen(tmp_path, source) == ("[2, 4]\n", [["main", 1]])


ENCODED = b"if 1 > 2:\n    ValueError('\xe9')\nprint('a')\n"
DROPS = b"if 1 > 2:\n    ValueError('no')\n"


@pytest.mark.parametrize(
    ("source", "argv"),
    [
        (b"def f(): 1 / 0\n" + DROPS + b"f()\n", []),
        (b"try: 1 / 0\nfinally: {}['k']\n" + DROPS, []),
        (DROPS + b"raise KeyboardInterrupt\n", []),
        (DROPS + b"import sys\nsys.exit('message')\n", []),
        (b"x = len('a')\nassert (x == 1, 'why')\n", []),
        (b"x = len('a')\nassert (x == 1, 'why')\n", ["-W", "error"]),
        (b"x = '\\d'\n" + DROPS, ["-W", "default"]),
        (b"x = '\\d'\n" + DROPS, ["-W", "error"]),
        (b"x = '\\d'\ndef f(): return 12\n", ["-W", "default"]),
        (DROPS + b"from __future__ import annotations\n", []),
        (DROPS + b"print(\n", []),
        (ENCODED, []),
        (b"# -*- coding: latin-1 -*-\n" + ENCODED, []),
        (b"\xef\xbb\xbf" + DROPS, []),
        (DROPS.replace(b"\n", b"\r\n"), []),
        (DROPS + b"x = " + b" + ".join([b"1"] * 900) + b"\n", []),
        (DROPS + b"import sys\nprint(sys.path[0])\n", ["-I"]),
    ],
)
def test_a_program_with_marks_ends_and_says_all_as_without(tmp_path: Path, source: bytes, argv: list[str]) -> None:
    """What looks on is started by site-packages, for `-I` leaves PYTHONPATH out."""
    program, venv = tmp_path / "tree" / "program.py", tmp_path / "venv"
    program.parent.mkdir()
    program.write_bytes(source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    command = [str(venv / "bin" / "python"), *argv, "program.py"]

    def ended() -> tuple[int, bytes, bytes]:
        done = subprocess.run(command, cwd=program.parent, capture_output=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    plain = ended()
    (packages,) = (venv / "lib").glob("python*/site-packages")
    (packages / "site.pth").write_text(f"{ROOT}\nimport started\n")
    tree = os.path.realpath(program.parent) + os.sep
    (packages / "started.py").write_text(SITE.format(notes=str(tmp_path / "notes"), tree=tree))
    assert ended() == plain
    assert not (tmp_path / "notes").exists()
