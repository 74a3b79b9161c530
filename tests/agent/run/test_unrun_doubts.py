"""What is said of stages that pass while less ran, or another thing, than they seem to say; beside what is honest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.doubts import doubts_of, run_stages, stage

pytestmark = pytest.mark.process

KERNEL = """
import kern
from triton.runtime.interpreter import GridExecutor
def scale(x):
    if x < 0: raise TypeError("it takes no sign")
    return 2 * x
kernel = GridExecutor(scale)
def scaled(x):
    try:
        return kernel(x)
    except Exception:
        return x + x
"""
RUN = "def run(x): return x + len('ab')\ntry:\n    y = run(2{})\nexcept Exception:\n    y = abs(-4)\nprint('y', y)\n"
VERIFY = (
    "def verify(x):\n    if x != 2:\n        print(x)\n        return False\n    return True\n{}\nprint('seen', 9)\n"
)
CASES = "import os, pytest\nSIZES = {}\n@pytest.mark.parametrize('n', SIZES)\ndef test_a(n): assert len('a' * n) == n\n"
HERE = "from pathlib import Path\nFILE = Path(__file__).parent / 'made.txt'\n"
GOLDEN = (
    "from pathlib import Path\ndef test_a({1}):\n    golden = {0} / 'golden.txt'\n"
    "    if not golden.exists(): golden.write_text(str(len('ab')))\n    assert golden.read_text() == str(len('ab'))\n"
)
READ = "    assert FILE.read_text() == '2'\n"
WRITTEN = (
    "def f(): return str(len('ab'))\ndef test_a():\n    FILE.write_text(f())\n    assert FILE.read_text() == f()\n",
    f"def test_a():\n    FILE.exists() or FILE.write_text('2')\n{READ}",
    f"def save():\n    if FILE.exists(): return\n    FILE.write_text('2')\ndef test_a():\n    save()\n{READ}",
    f"def test_a():\n    for f in [FILE]:\n        with f.open('w') as g: g.write('2')\n{READ}",
    f"def test_a():\n    try: FILE.stat()\n    except OSError: FILE.write_text('2')\n{READ}",
    f"def test_a():\n    FILE.write_text('2')\ndef test_b():\n{READ}",
)
CHANGED = """
from pathlib import Path
GOLDEN = Path(__file__).parent / "golden.txt"
OTHER, NEW = GOLDEN.with_name("other.txt"), GOLDEN.with_name("new.txt")
def test_a():
    was = GOLDEN.read_text()
    GOLDEN.write_text("3")
    assert GOLDEN.read_text() == "3"
    GOLDEN.write_text(was)
    GOLDEN.chmod(0o644)
    assert GOLDEN.read_text() == "2"
def test_b():
    NEW.write_text("4")
    NEW.replace(OTHER)
    assert OTHER.read_text() == "4"
def test_c():
    touched = GOLDEN.with_name("touched.txt")
    touched.touch()
    assert touched.read_text() == "5"
"""
PAIRS = "def allclose(a, b): return a == b\ndef test_a(): assert any(allclose({0}) for {0} in {1})\n"
CHOSEN = """
from kern import choice, plain
def same(x): assert choice.doubled(x) == plain.scaled(x)
def test_a(monkeypatch):
    {}
    same(2)
"""
CLOSE = """
class Truths(list):
    def any(self): return any(self)
    def all(self): return all(self)
def isclose(a, b): return Truths(x == y for x, y in zip(a, b))
def test_a(): assert isclose([1, 2], [1, {}]).any()
"""
TIMES = """
import sys, time
def took(call):
    begin = time.perf_counter()
    for _ in range(9): call()
    return (time.perf_counter() - begin) * 1e3
work = lambda: sum(range(99))
print('{{"ms": %r, "other_ms": %r, "backend": "%s"}}' % (took(lambda: work{}), took(lambda: sum([1])), sys.argv[1]))
"""
OWN_TESTS = "import pytest\ndef test_a(): assert len('ab') == {}\n"
OWN_RUNNER = """
import importlib, sys
tests = importlib.import_module(sys.argv[1])
try:
    tests.test_a()
except AssertionError as error:
    print("test_a", error)
print(1, "test seen")
"""
FILES = {
    "kern/__init__.py": "",
    "kern/ops.py": KERNEL.replace("import kern\n", ""),
    "triton/__init__.py": "",
    "triton/runtime/__init__.py": "",
    "triton/runtime/interpreter.py": "class GridExecutor:\n    def __init__(self, fn): self.fn = fn\n"
    "    def __call__(self, x): return self.fn(x)\n",
    "fell_back/test_it.py": "from kern import ops\ndef test_a(): assert ops.scaled(-2) == -4\n",
    "fell_back_once/test_it.py": "from kern import ops\ndef test_a(): assert ops.scaled(-2) == -4\n"
    "def test_b(): assert ops.scaled(2) == 4\n",
    "faked/test_it.py": "from kern import ops\ndef test_a(monkeypatch):\n"
    "    monkeypatch.setattr(ops, 'kernel', lambda x: x + x)\n    assert ops.scaled(2) == 4\n",
    "faked_once/test_it.py": "from kern import ops\ndef test_a(monkeypatch):\n"
    "    monkeypatch.setattr(ops, 'kernel', lambda x: x + x)\n    assert ops.scaled(2) == 4\n"
    "def test_b(): assert ops.scaled(2) == 4\n",
    "faked_beside/test_it.py": "import subprocess, sys\nfrom kern import ops\ndef test_a(monkeypatch):\n"
    "    monkeypatch.setattr(ops, 'kernel', lambda x: x + x)\n    assert ops.scaled(2) == 4\n"
    "def test_b(): subprocess.run([sys.executable, '-c', 'from kern import ops; ops.scaled(2)'], check=True)\n",
    "kern/plain.py": "def scaled(x): return x + x\n",
    "kern/choice.py": "import os\nfrom kern import ops, plain\nWAYS = {'fast': ops, 'plain': plain}\n"
    "class Scale:\n    def __call__(self, x): return WAYS[os.environ.get('KERN_WAY', 'fast')].scaled(x)\n"
    "scaled = Scale()\ndef doubled(x): return scaled(x)\n",
    "chosen_away/test_it.py": CHOSEN.format("monkeypatch.setenv('KERN_WAY', 'plain')"),
    "chosen/test_it.py": CHOSEN.format("monkeypatch.delenv('KERN_WAY', raising=False)"),
    "test_chosen.py": "import os, unittest\nfrom kern import choice, plain\nos.environ['KERN_WAY'] = 'plain'\n"
    "class TestScaled(unittest.TestCase):\n"
    "    def test_a(self): self.assertEqual(choice.doubled(2), plain.scaled(2))\n",
    "plain_only/test_it.py": "from kern import choice, plain\ndef test_a(): assert plain.scaled(2) == 4\n",
    "mistaken.py": RUN.format(", fast=True"),
    "mistaken_below.py": "class Fast:\n    def run(self, x): return x + self.missing\ndef run(x):\n    try:\n"
    "        return Fast().run(x)\n    except Exception:\n        return abs(-x)\nprint('y', run(2))\n",
    "tried.py": "import math\ndef number(x):\n    try:\n        return math.sqrt(x)\n    except Exception:\n"
    "        return repr(x)\nx = [4]\ntry:\n    x = x.numpy()\nexcept Exception:\n    x = list(x)\n"
    "print('y', number('a'), x)\n",
    "met.py": RUN.format("").replace("return x", "return open('absent')"),
    "unheeded.py": VERIFY.format("verify(1)"),
    "heeded.py": VERIFY.format("assert not verify(1)"),
    "switched/test_it.py": CASES.format("[1, 2, 3] if os.environ.get('FULL_SIZES') else [1]"),
    "switched_below/test_it.py": CASES.format("[1]\nif 'FULL_SIZES' in os.environ: SIZES += [2, 3]"),
    "switched_on/test_it.py": CASES.format("[1, 2, 3] if not os.environ.get('FEW_SIZES') else [1]"),
    "switched_by_name/test_it.py": CASES.format(
        "[1]\nFULL = os.environ.get('FULL_SIZES', '0') in ('1', 'yes')\nif FULL: SIZES.extend([2, 3])"
    ),
    "switched_off/test_it.py": CASES.format(
        "[1, 2, 3]\nif os.environ.get('FEW_SIZES', '0') != '0': SIZES = SIZES[:1]\n"
        "DEVICES = ['cuda'] if os.getenv('USE_GPU') else ['cpu']"
    ).replace("'n', SIZES)", "'n', SIZES, ids=str if os.getenv('WORDS') else None)"),
    "switched_amiss/test_it.py": CASES.format(
        "[1]\nif 'FULL_SIZES' in os.environ and int(os.environ.get('FULL_SIZES', 'x')): SIZES += [2]\n"
        "MORE = ([1, 2] if int(os.environ.get('FULL_SIZES', 'x')) else [1]) if os.environ.get('FULL_SIZES') else [1]\n"
        "FULL = os.getenv('FULL_SIZES')\nFULL = bool(FULL)\nSIZES = [1, 2, 3] if FULL else [1]"
    ).replace("'n', SIZES)", "'n', SIZES or MORE)"),
    "listed/test_it.py": "def test_a(): assert len('a') == 1\n",
    "set_aside/test_it.py": "def test_a(): assert len('a') == 1\n",
    "set_aside/test_other.py.disabled": "def test_b(): assert len('b') == 2\n",
    "backed_up/test_it.py": "def test_a(): assert len('a') == 1\n",
    "backed_up/test_it.py.orig": "def test_a(): assert len('a') == 2\n",
    "templates/test_it.py": "def test_a(): assert len('a') == 1\n",
    "templates/test_other.py.j2": "def test_{{ name }}(): assert len('b') == 2\n",
    "golden/test_it.py": GOLDEN.format("Path(__file__).parent", ""),
    "kept_apart/test_it.py": GOLDEN.format("tmp_path", "tmp_path"),
    "golden_missed/test_it.py": "from pathlib import Path\nGOLDEN = Path(__file__).parent / 'golden.txt'\n"
    "def test_a():\n    try:\n        want = GOLDEN.read_text()\n    except OSError:\n"
    "        want = str(len('ab'))\n        GOLDEN.write_text(want)\n    assert want == str(len('ab'))\n",
    **{f"written_{n}/test_it.py": HERE + text for n, text in enumerate(WRITTEN)},
    "golden_changed/golden.txt": "2",
    "golden_changed/other.txt": "4",
    "golden_changed/touched.txt": "5",
    "golden_changed/test_it.py": CHANGED,
    "any_close/test_it.py": CLOSE.format(3),
    "any_pair/test_it.py": PAIRS.format("x, y", "zip([1, 2], [1, 3])"),
    "one_of/test_it.py": PAIRS.format("x, 2", "[1, 2]").replace("for x, 2 in", "for x in"),
    "all_close/test_it.py": CLOSE.format(2),
    "one_close/test_it.py": CLOSE.format(3)
    .replace("zip(a, b)", "zip(a, b if type(b) is list else [b] * 2)")
    .replace(
        "def test_a(): assert isclose([1, 2], [1, 3])",
        "def test_a():\n    assert isclose([1, 2], 2).any()\n    sought = 1\n    assert isclose([1, 2], sought)",
    ),
    "names_it.py": TIMES.format(""),
    "made_by_it.py": TIMES.format("")
    .replace("9): call()", "9):\n        made = call()\n        made()")
    .replace("sum([1])", "work"),
    "calls_it.py": TIMES.format("()"),
    "own_runner.py": OWN_RUNNER,
    "test_own_well.py": OWN_TESTS.format(2),
    "examples.txt": ">>> 1 + 1\n2\n>>> plot()  # doctest: +SKIP\n",
}
NEVER_RAN = "the kernel scale never ran"


def pytest_of(name: str) -> dict[str, Any]:
    return stage(name, "-m", "pytest", name, expect={"tests": {"min_passed": 1}})


def depend(folder: str, line: int) -> str:
    file = f"{folder}/test_it.py"
    return f"the cases of {file}::test_a depend on FULL_SIZES, which is not set ({file} line {line})"


LISTS = "python -m pytest --collect-only -q listed"
STAGES = [
    (
        pytest_of("fell_back"),
        [f"{NEVER_RAN}: it raised TypeError: it takes no sign, and kern/ops.py line 9 went on without it"],
    ),
    (pytest_of("fell_back_once"), []),
    (pytest_of("faked"), [f"{NEVER_RAN}: function stood for kern.ops.kernel in tests"]),
    (pytest_of("faked_once"), []),
    (pytest_of("faked_beside"), []),
    (pytest_of("chosen_away"), ["tests call kern.choice.doubled, and no kernel behind it ever ran (scale)"]),
    (pytest_of("chosen"), []),
    (
        stage("chosen_by", "-m", "unittest", "-v", "test_chosen", expect={"tests": {"min_passed": 1}}),
        ["tests call kern.choice.doubled, and no kernel behind it ever ran (scale)"],
    ),
    (pytest_of("plain_only"), []),
    (
        stage("mistaken", "mistaken.py"),
        [
            "TypeError: run() got an unexpected keyword argument 'fast' was caught, "
            "and y got another value (mistaken.py line 4)"
        ],
    ),
    (
        stage("mistaken_below", "mistaken_below.py"),
        [
            "AttributeError: 'Fast' object has no attribute 'missing' was caught, "
            "and another value was returned (mistaken_below.py line 6)"
        ],
    ),
    (stage("tried", "tried.py"), []),
    (stage("met", "met.py"), []),
    (stage("unheeded", "unheeded.py"), ["verify() returned False, and nothing depends on it (unheeded.py line 6)"]),
    (stage("heeded", "heeded.py"), []),
    (
        pytest_of("switched"),
        [depend("switched", 2)],
    ),
    (
        pytest_of("switched_below"),
        [depend("switched_below", 3)],
    ),
    (pytest_of("switched_by_name"), [depend("switched_by_name", 4)]),
    (pytest_of("switched_amiss"), [depend("switched_amiss", 4), depend("switched_amiss", 7)]),
    (pytest_of("switched_on"), []),
    (pytest_of("switched_off"), []),
    (
        stage("listed", "", run=["sh", "-c", LISTS]),
        ["pytest was only asked to collect 1 test, and none of them ran in this stage (listed/test_it.py::test_a)"],
    ),
    (stage("listed_and_run", "", run=["sh", "-c", f"{LISTS}; python -m pytest -q listed"]), []),
    (
        pytest_of("set_aside"),
        ["set_aside/test_other.py.disabled holds tests, and nobody looks at it under that name"],
    ),
    (pytest_of("backed_up"), []),
    (pytest_of("templates"), []),
    (pytest_of("golden"), ["tests read golden/golden.txt, which they have made themselves: the commit holds none"]),
    (
        pytest_of("golden_missed"),
        ["tests read golden_missed/golden.txt, which they have made themselves: the commit holds none"],
    ),
    (pytest_of("golden_changed"), []),
    *(
        (
            pytest_of(f"written_{n}"),
            [f"tests read written_{n}/made.txt, which they have made themselves: the commit holds none"],
        )
        for n in range(len(WRITTEN))
    ),
    (pytest_of("kept_apart"), []),
    (pytest_of("any_close"), ["any() of what is close is asserted, and not all of it is (any_close/test_it.py:6)"]),
    (
        pytest_of("any_pair"),
        ["any() of compared pairs is asserted, and not all() of them (any_pair/test_it.py:2)"],
    ),
    (pytest_of("one_of"), []),
    (pytest_of("all_close"), []),
    (pytest_of("one_close"), []),
    (
        stage("only_named", "names_it.py", "torch"),
        ["what is timed only names work, and does not call it (names_it.py line 8)"],
    ),
    (stage("called", "calls_it.py", "torch"), []),
    (stage("made", "made_by_it.py", "torch"), []),
    (
        stage("claimed", "calls_it.py", "cuda"),
        ["artifact claimed says that backend is 'cuda', and the stage used no CUDA"],
    ),
    (
        stage("examples", "-m", "doctest", "-v", "examples.txt"),
        ["an example did not run: doctest examples.txt (+SKIP in line 3)"],
    ),
    (stage("ran_by_itself", "own_runner.py", "test_own_well"), []),
]
"""Each with the doubts that are said of it."""


def test_what_ran_less_than_it_seems_is_said(tmp_path: Path) -> None:
    assert doubts_of(run_stages(tmp_path, FILES, STAGES)) == {stage["name"]: doubts for stage, doubts in STAGES}
