"""What is seen of stages that pass, and is said in the verdict line, for nobody but a person can judge it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.doubts import doubts_of, run_stages, stage
from tests.support.project import local_pod, new_project

pytestmark = pytest.mark.process

FORKS = """
import json, os
from _pytest.runner import runtestprotocol
def pytest_runtest_protocol(item, nextitem):
    said = item.config.hook
    said.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    read, write = os.pipe()
    if os.fork() == 0:
        reports = runtestprotocol(item, log=False)
        told = [said.pytest_report_to_serializable(config=item.config, report=r) for r in reports]
        os.write(write, json.dumps(told).encode())
        os._exit(0)
    os.wait()
    for told in json.loads(os.read(read, 1 << 16)):
        report = said.pytest_report_from_serializable(config=item.config, data=told)
        said.pytest_runtest_logreport(report=report)
    return True
"""
TESTS = """
def test_a(): assert len("a") == 1
def test_b():
    assert len("ab") == 2
    if not len("ab"):
        assert len("c") == 7
"""
DYNAMO = """
from collections import Counter, defaultdict
from torch._dynamo import utils
def optimize(backend):
    def compiled(function):
        if backend == "none":
            return function
        utils.counters["frames"]["total"] += 1
        if backend == "inductor":
            utils.counters["frames"]["ok"] += 1
            from torch._dynamo.symbolic_convert import InstructionTranslator
            if hasattr(function, "__code__"):  # marks are folded away while it traces
                return lambda *given: InstructionTranslator(function.__code__).run(*given)
        return function
    return compiled
def reset(): pass
def explain(function):
    def inner(*given):
        from torch._dynamo import optimize
        return getattr(optimize, "__wrapped__", optimize)("eager")(function)(*given)
    return inner
"""
TIMED = "from time import perf_counter as now\nt = now()\nsum(range(9))\nprint(f'{(now() - t) * 1e3:.5f} ms')\n"
ABSENT = "ModuleNotFoundError: No module named 'no_such_compiler'"
PARSES = "import argparse as a\np = a.ArgumentParser(add_help=False)\np.add_argument('--n')\n"
CODES = "import subprocess as s, sys\nchild = [sys.executable, 'fails.py']\n"
CODES += "codes = [s.call(c) for c in (child, ['true'])]\nprint(codes)\n"
RUNS = "import subprocess as s, sys\nclass Run:\n    def __init__(self, *command): self.code = s.call(command)\n"
RUNS += "runs = [Run(sys.executable, 'fails.py'), Run('true')]\n"
MAKES = "import sys, types\nname = '{}'\nmade = types.ModuleType(name)\n"
MAKES += "exec('def scale(x): return 2 * x', vars(made))\nsys.modules[name] = made\nprint(made.scale(1))\n"
ALARM = "import os, signal, sys\nsignal.signal(signal.SIGALRM, lambda *a: sys.exit({}))\n"
AS_0 = "python fails.py returned 3, which its {} takes for 0"
UNTIMED = "holds ms, and nothing was timed in its stage"
UNREAD = "is set, and the tree's code, which asks for others of KERN_, does not name it"
LAUNCHES = "import pytest\nfrom triton.runtime.interpreter import launch\n"
TAKES = (
    "import time\nclass M:\n    def __matmul__(self, other): return other\ndef took(fn):\n    t = time.perf_counter()\n"
)
TAKEN = "    return time.perf_counter() - t\nfor n in (1, 2): print(f'{took(lambda: 2 * n) * 1e3:.5f} ms')\n"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4" * 64 + "\nsize 12345\n"
FILES = {
    ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    "weights.bin": POINTER,
    "forked/conftest.py": FORKS,
    "forked/test_it.py": TESTS,
    "torch/__init__.py": "def compile(f, backend='inductor'):\n    import torch._dynamo\n"
    "    return torch._dynamo.optimize(backend)(f)\n",
    "torch/_dynamo/__init__.py": DYNAMO,
    "torch/_dynamo/utils.py": "from collections import Counter, defaultdict\ncounters = defaultdict(Counter)\n",
    "torch/_dynamo/symbolic_convert.py": "class InstructionTranslatorBase:\n"
    "    def __init__(self, f_code): self.f_code = f_code\n    def starts_line(self, lineno): pass\n"
    "class InstructionTranslator(InstructionTranslatorBase):\n    def run(self, n):\n"
    "        if n > 2: self.starts_line(self.f_code.co_firstlineno + 1)\n",
    "traced/test_it.py": "import pytest, torch\n@pytest.mark.parametrize('n', [3, 4])\ndef test_a(n):\n"
    "    def f(n):\n        assert n > 2\n    torch.compile(f)(n)\n",
    "untraced/test_it.py": "import torch\ndef test_a():\n"
    "    def f(n):\n        assert n > 2\n    torch.compile(f)(1)\n    assert f\n",
    "compiles.py": "import sys, torch\nfor backend in sys.argv[1:]: print(torch.compile(len, backend)('ab'))\n",
    "explained.py": "import torch\nprint(torch.compile(len)('ab'), torch._dynamo.explain(len)('ab'))\n",
    "cleared.py": "import torch\nprint(torch.compile(len)('ab'))\n"
    "torch._dynamo.reset()\ntorch._dynamo.utils.counters.clear()\n",
    "compiled/numba.py": "def njit(f): return f\n",
    "compiled/test_it.py": "import numba\n@numba.njit\ndef one(): return 1\ndef test_a(): assert one() == 1\n",
    "explores.py": "def allclose(a, b): return a == b\nprint('lossless:', allclose(1, 2))\n",
    "catches.py": "def main(): assert 1 > 2\ntry: main()\nexcept Exception as e: print('see the log', e)\n",
    "suppresses.py": "from contextlib import suppress\nwith suppress(Exception):\n    assert 1 > 2\nprint(1)\n",
    "beside.py": "from contextlib import ExitStack, suppress\nwith ExitStack(), suppress(AssertionError):\n"
    "    assert 1 > 2\nprint(1)\n",
    "lets_none_out.py": "class Quiet:\n    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
    "with Quiet():\n    assert 1 > 2\nprint(1)\n",
    "asks_it.py": "class Counts:\n    n = 0\n    def __enter__(self): return self\n"
    "    def __exit__(self, kind, *_): self.n += kind is not None; return True\n"
    "bad = Counts()\nwith bad: assert 1 > 2\nassert bad.n == 1\nprint(1)\n",
    "tries_again.py": "import threading\nlock = threading.Lock()\nfor i in range(3):\n    try:\n"
    "        with lock: assert i == 2\n    except AssertionError: continue\n    else: break\n"
    "else: raise SystemExit(1)\nprint(1)\n",
    "expects.py": "from contextlib import suppress\nwith suppress(KeyError): print({}[1])\nprint(1)\n",
    "repeated/test_it.py": "import pytest\n@pytest.mark.parametrize('kind', ['a', 'b'])\n"
    "def test_a(kind): assert len('a') == 1\n",
    "tells/test_it.py": "def allclose(a, b): return a == b\ndef test_a():\n    if not allclose(1, 2): print('no')\n"
    "    assert len('a') == 1\ndef test_b():\n    err = abs(3.5 - 1)\n    print('OK' if err < 1e-3 else 'WARN')\n"
    "    assert len('b') == 1\n",
    "asserts_too/test_it.py": "def equal(a, b): return a == b\ndef test_a():\n    print('bitwise:', equal(1, 2))\n"
    "    err = abs(3.5 - 1)\n    print('OK' if err < 1e-3 else 'WARN')\n    assert err < 3\n",
    "passes_over.py": f"{PARSES}args, _ = p.parse_known_args()\nprint(args.n)\n",
    "is_given_argv.py": f"{PARSES}import sys\nprint(sys.argv)\nargs, _ = p.parse_known_args(sys.argv[1:])\nprint(1)\n",
    "looks_itself.py": f"{PARSES}import sys\nargs, _ = p.parse_known_args()\n"
    "if '--m=2' not in sys.argv: sys.exit(1)\nprint(1)\n",
    "parses_twice.py": f"{PARSES}args, _ = p.parse_known_args()\nq = a.ArgumentParser(parents=[p], add_help=False)\n"
    "q.add_argument('--m')\nprint(q.parse_args().n)\n",
    "hands_on.py": f"{PARSES}args, rest = p.parse_known_args()\nimport subprocess as s, sys\n"
    "s.run([sys.executable, 'passes_over.py', *rest], check=True)\n",
    "tox/__main__.py": "from tox.run import run\nrun()\n",
    "tox/run.py": "import subprocess as s, sys\ndef run():\n    print('py: OK')\n"
    "    for name in sys.argv[1:]: s.run([sys.executable, '-m', name, '-h'], stdout=s.DEVNULL, check=True)\n",
    "venv.py": "print(1)\n",
    "Makefile": "OPTIONS =\ntest: timed.py\n\tpython timed.py $(OPTIONS)\nwords:\n\t@echo all passed\n"
    "copy:\n\t@cp timed.py $$TMPDIR && echo copied 1\n",
    "kern.py": "import os\nprint(os.environ.get('KERN_FAST_PATH', 0) == '1', 3)\n",
    "asserts.py": "assert 1 > 2\nprint('done')\n",
    "fast.py": "import no_such_compiler\ndef scale(x): return 2 * x\n",
    "fast_user.py": "import fast\nscale = fast.scale\n",
    "slow.py": "def scale(x): return x + x\n",
    "falls_back.py": "try:\n    from fast import scale\nexcept ImportError:\n    from slow import scale\nprint(3)\n",
    "falls_far.py": "try:\n    from fast_user import scale\nexcept Exception:\n    def scale(x): return 6\nprint(3)\n",
    "goes_without.py": "try: from fast import scale\nexcept ImportError: scale = None\nprint(scale)\n",
    "has_it.py": "try: from slow import scale\nexcept ImportError: from fast import scale\nprint(scale(3))\n",
    "jits.py": "import sys\nsys.path.append('compiled')\nimport numba\ndef main(): return 1\nmain()\nprint(1)\n",
    "lacks.py": "import sys\ntry: import no_such_kernel\nexcept ImportError:\n    print('done')\n    sys.exit(0)\n",
    "reads.py": "import sys\ntry: print(2), input()\nexcept EOFError: sys.exit()\n",
    "says.py": f"import sys\n{TIMED}print(sys.argv[1])\n",
    "triton/__init__.py": "from triton import compiler\n",
    "triton/compiler.py": "class CompiledKernel: pass\n",
    "triton/runtime/__init__.py": "",
    "triton/runtime/interpreter.py": "class GridExecutor:\n    def __init__(self, fn): self.fn = fn\n"
    "    def __call__(self, x): return self.fn(x)\nlaunch = GridExecutor(abs)\n",
    "warmed/test_it.py": f"{LAUNCHES}@pytest.fixture(autouse=True, scope='session')\ndef warm(): launch(-9)\n"
    "@pytest.mark.parametrize('n', [2, 3])\ndef test_a(n, tmp_path, monkeypatch): assert abs(-n) == n\n",
    "handed/test_it.py": f"{LAUNCHES}@pytest.fixture\ndef out(): return [launch(-9)]\n"
    "def test_a(out): assert out == [9]\n",
    "warm/test_it.py": f"{LAUNCHES}@pytest.fixture(autouse=True)\ndef warm(): launch(-9)\n"
    "def test_a(): assert launch(-2) == 2\ndef test_b(): assert abs(-2) == 2\n",
    "in_class/test_it.py": f"{LAUNCHES}class TestA:\n    @pytest.fixture(autouse=True)\n    def out(self): launch(-9)\n"
    "    def test_a(self): assert abs(-9) == 9\n    def test_b(self): assert abs(-2) == 2\n",
    "kept_in_class/test_it.py": f"{LAUNCHES}class TestA:\n    @pytest.fixture(autouse=True)\n"
    "    def out(self): self.out = launch(-9)\n    def test_a(self): assert self.out == 9\n",
    "kept_in_module/test_it.py": f"{LAUNCHES}@pytest.fixture(autouse=True, scope='module')\ndef out():\n"
    "    global OUT\n    OUT = launch(-9)\ndef test_a(): assert OUT == 9\n",
    "unread/test_it.py": f"{LAUNCHES}@pytest.fixture\ndef out(): return [launch(-9)]\n"
    "def test_a(out): assert abs(-9) == 9\n@pytest.mark.usefixtures('out')\ndef test_b(): assert abs(-2) == 2\n",
    "asked/test_it.py": f"{LAUNCHES}@pytest.fixture(scope='session')\ndef out(): return launch(-9)\n"
    "def test_a(request): assert request.getfixturevalue('out') == 9\n",
    "measured/test_it.py": f"{LAUNCHES}@pytest.fixture\ndef error(): return abs(launch(-9) - 9.0)\n"
    "def test_a(error): assert error < 1e-3\n",
    "timed.py": TIMED,
    "sleeps.py": "import time\nfor n in (1, 2):\n    t = time.perf_counter()\n    time.sleep(n * 0.01)\n"
    "    print(f'{(time.perf_counter() - t) * 1e3:.5f} ms')\n",
    "names_it.py": f"{TAKES}    for _ in range(3): fn\n{TAKEN}",
    "calls_it.py": f"{TAKES}    time.sleep(0.001)\n    for _ in range(3): fn()\n{TAKEN}",
    "multiplies.py": f"{TAKES}    fn @ fn\n{TAKEN}".replace("lambda: 2 * n", "M()"),
    "times_pass.py": "import timeit\nfor n in (1, 2): print(f\"{timeit.timeit('pass', number=99) * 1e3:.5f} ms\")\n",
    "times_it.py": "import timeit\nprint(f\"{timeit.timeit('len([])', number=99) * 1e3:.5f} ms\")\n",
    "keeps_time.py": "import time\nbegin = time.perf_counter()\n"
    "while time.perf_counter() - begin < 0.01: sum([1])\nprint(f'{time.perf_counter() - begin:.6f} ms')\n",
    "by_a_helper.py": "from time import perf_counter\ndef now(): return perf_counter()\nt = now()\nsum([1])\n"
    "print(f'{(now() - t) * 1e3:.5f} ms')\n",
    "invents.py": "import random, time\nprint(time.time() > 0)\nprint(f'{random.random():.4f} ms')\n",
    "by_a_child.py": "import subprocess as s, sys\nprint(s.check_output([sys.executable, 'timed.py'], text=True))\n",
    "by_another.py": "import os\nos.system('echo 0.3 ms')\n",
    "by_dates.py": "from datetime import datetime as d\nt = d.now()\n"
    "print((d.now() - t).total_seconds() * 1e3 + 0.1, 'ms')\n",
    "of_before.py": "import os\nprint(open(os.environ['NSA_POD_ARTIFACTS'] + '/said').read())\n",
    "fails.py": "import sys\nsys.exit(3)\n",
    "fails.sh": "exit 4\n",
    "sums.py": f"{CODES}sys.exit(min(codes))\n",
    "keeps.py": f"{RUNS}print(1)\nsys.exit(min(r.code for r in runs))\n",
    "asks_kept.py": f"{RUNS}assert [r.code for r in runs] == [3, 0]\nprint(1)\n",
    "runs_them.py": "import subprocess as s\ndef codes(*commands):\n    return [s.call(c) for c in commands]\n",
    "helped.py": "import runs_them as r, sys\nprint(1)\nsys.exit(min(r.codes(['python', 'fails.py'], ['true'])))\n",
    "asks_helped.py": "import runs_them as r\nassert max(r.codes(['python', 'fails.py'], ['true'])) == 3\nprint(1)\n",
    "makes_slow.py": MAKES.format("slow"),
    "makes_others.py": MAKES.format("of_its_own"),
    "alarmed.py": f"{ALARM.format(0)}os.kill(os.getpid(), signal.SIGALRM)\n",
    "in_time.py": f"{ALARM.format(1)}print(1)\n",
    "adds.py": f"{CODES}assert max(codes) == 3\n",
    "above.py": "import os, sys\nif os.system('python fails.py') >> 8 > 7: sys.exit(1)\nprint(1)\n",
    "tolerates.py": "import os, sys\nif os.system('python fails.py') >> 8 not in (0, 3): sys.exit(1)\nprint(1)\n",
    "finds.py": "import os, sys\nif os.system('grep nothing fails.py') >> 8 > 1: sys.exit(1)\nprint(1)\n",
    "by_words.py": "import subprocess as s, sys\nr = s.run(['python', 'fails.py'], capture_output=True, text=True)\n"
    "if r.returncode < 0: sys.exit(1)\nassert not r.stdout\nprint(1)\n",
    "claims.py": "import json, sys, time\nbegin = time.perf_counter()\nsum(range(9999))\n"
    "print(json.dumps({'ms': 1e3 * (time.perf_counter() - begin), 'device': sys.argv[1]}))\n",
    "acts.py": "import webbrowser as w\nassert not w.GenericBrowser(['python', '%s']).open('fails.py')\nprint(1)\n",
    "by_library.py": "import sys, webbrowser as w\nprint(w.GenericBrowser([sys.argv[1], '%s']).open(sys.argv[2]))\n",
}


def json_stage(name: str, *argv: str, **more: Any) -> dict[str, Any]:
    artifact = {"path": name, "from": "stdout", "kind": "json", "keys": ["ms"]}
    return stage(name, *argv, expect={"artifacts": [artifact]}, **more)


STAGES = [
    (
        json_stage("claimed", "claims.py", "cuda"),
        ["artifact claimed says that device is 'cuda', and the stage used no CUDA"],
    ),
    (
        stage("claimed_in_a_text", "claims.py", "cuda:0"),
        ["artifact claimed_in_a_text says that device is 'cuda:0', and the stage used no CUDA"],
    ),
    (json_stage("claimed_cpu", "claims.py", "cpu"), []),
    (json_stage("claimed_of_another", "claims.py", "cuda", needs=["claimed"]), []),
    (stage("forked", "-m", "pytest", "forked", expect={"tests": {"min_passed": 2}}), []),
    (stage("compiled", "compiles.py", "inductor", "inductor"), []),
    (
        stage("eager", "compiles.py", "none"),
        ["torch.compile compiled nothing: what it was given ran as it is, or never"],
    ),
    (
        stage("partly", "compiles.py", "inductor", "eager"),
        ["torch.compile gave up 1 of 2 times, and ran what it was given as it is"],
    ),
    (stage("explained", "explained.py"), []),
    (stage("cleared", "cleared.py"), []),
    (
        stage("by_numba", "-m", "pytest", "compiled", expect={"tests": {"min_passed": 1, "checked": True}}),
        ["whether the assertions of compiled/test_it.py ran is not seen, for it imports numba"],
    ),
    (stage("traced", "-m", "pytest", "traced", expect={"tests": {"min_passed": 2, "checked": True}}), []),
    (stage("untraced", "-m", "pytest", "untraced", expect={"tests": {"min_passed": 1}}), []),
    (stage("explored", "explores.py"), ["allclose() came out false, and nothing depends on it (explores.py line 2)"]),
    (stage("caught", "catches.py"), ["an AssertionError was caught, and nothing depends on it (catches.py line 3)"]),
    (
        stage("suppressed", "suppresses.py"),
        ["an AssertionError was caught, and nothing depends on it (suppresses.py line 2)"],
    ),
    (
        stage("suppressed_beside", "beside.py"),
        ["an AssertionError was caught, and nothing depends on it (beside.py line 2)"],
    ),
    (
        stage("let_none_out", "lets_none_out.py"),
        ["an AssertionError was caught, and nothing depends on it (lets_none_out.py line 4)"],
    ),
    (stage("asked_for", "asks_it.py"), []),
    (stage("tried_again", "tries_again.py"), []),
    (stage("expected", "expects.py"), []),
    (
        stage("repeated", "-m", "pytest", "repeated", expect={"tests": {"min_passed": 2}}),
        ["2 cases of repeated/test_it.py::test_a are 1: it does not use its parameter kind"],
    ),
    (
        stage("tells", "-m", "pytest", "tells", expect={"tests": {"min_passed": 2}}),
        [
            "a comparison came out false, and nothing asserts it (tells/test_it.py:3)",
            "a difference exceeded its limit, and nothing depends on it (tells/test_it.py:7)",
        ],
    ),
    (stage("asserts_too", "-m", "pytest", "asserts_too", expect={"tests": {"min_passed": 1}}), []),
    *(
        (
            stage(name, "-m", "pytest", name, expect={"tests": {"min_passed": 2}}),
            ["its kernels were launched by fixtures alone, and its tests take nothing of them"],
        )
        for name in ("warmed", "unread", "in_class")
    ),
    *(
        (stage(name, "-m", "pytest", name, expect={"tests": {"min_passed": 1}}), [])
        for name in ("handed", "warm", "kept_in_class", "kept_in_module", "asked", "measured")
    ),
    (
        stage("passed_over", "passes_over.py", "--n", "1", "--m=2"),
        ["--m=2 is no option that it knows, and was passed over (passes_over.py line 4)"],
    ),
    (stage("all_known", "passes_over.py", "--n", "1"), []),
    (
        stage("given_argv", "is_given_argv.py", "--m=2"),
        ["--m=2 is no option that it knows, and was passed over (is_given_argv.py line 6)"],
    ),
    (stage("looked_itself", "looks_itself.py", "--m=2"), []),
    (stage("parsed_twice", "parses_twice.py", "--n", "1", "--m=2"), []),
    (stage("handed_on", "hands_on.py", "--m=2"), []),
    (stage("runs_nothing", "-m", "tox"), ["tox ran nothing"]),
    (stage("only_prepares", "-m", "tox", "venv"), ["tox ran nothing but venv"]),
    (stage("runs_one", "-m", "tox", "venv", "timed"), []),
    (stage("touches", "", run=["make", "-t", "test"]), ["make ran nothing that does more than to say something"]),
    (
        stage("makes_words", "", run=["sh", "-c", "make words"]),
        ["make ran nothing that does more than to say something"],
    ),
    (stage("makes", "", run=["make", "-s", "test"]), []),
    (stage("copies", "", run=["make", "copy"]), []),
    (stage("late_only", "", run=["sh", "-c", "echo 1; python fails.py; [ $? -ne 124 ]"]), [AS_0.format("script")]),
    (stage("by_case", "", run=["sh", "-c", "python fails.py; case $? in 0|3) echo 1 ;; *) exit 1 ;; esac"]), []),
    (stage("renamed", "kern.py", env={"KERN_USE_FAST": "1"}), [f"KERN_USE_FAST {UNREAD}"]),
    (stage("renamed_in_lines", "", run=["sh", "-c", "KERN_FAST=1 python kern.py"]), [f"KERN_FAST {UNREAD}"]),
    (stage("named", "kern.py", env={"KERN_FAST_PATH": "1", "OTHER_SWITCH": "1"}), []),
    (stage("without", "-O", "asserts.py"), ["Python left the assertions of asserts.py out (-O)"]),
    (
        stage("fell_back", "falls_back.py"),
        [f"fast cannot be imported ({ABSENT}), and scale is another one then (falls_back.py line 2)"],
    ),
    (
        stage("fell_far", "falls_far.py"),
        [f"fast_user cannot be imported ({ABSENT}), and scale is another one then (falls_far.py line 2)"],
    ),
    (stage("without_it", "goes_without.py"), []),
    (stage("with_it", "has_it.py"), []),
    (stage("jitted", "jits.py"), ["what jits.py drops is not seen, for it imports numba"]),
    (
        stage("lacking", "lacks.py"),
        ["it ended with 0 for ModuleNotFoundError: No module named 'no_such_kernel' (lacks.py line 5)"],
    ),
    (stage("read", "reads.py"), []),
    (stage("said", "says.py", "PARITY FAILED"), ["it ended with 0, and its last words are 'PARITY FAILED'"]),
    (stage("said_well", "says.py", "0 FAILED"), []),
    (stage("timed", "timed.py"), []),
    (stage("invented", "invents.py"), [f"artifact invented {UNTIMED}"]),
    (
        stage("shown", "-c", "", run=["sh", "-c", "echo 0.3 ms | tee -a $TMPDIR/log"]),
        [f"artifact shown {UNTIMED}"],
    ),
    *((stage(name, f"{name}.py"), [f"artifact {name} {UNTIMED}"]) for name in ("sleeps", "names_it", "times_pass")),
    *((stage(name, f"{name}.py"), []) for name in ("calls_it", "multiplies", "times_it", "keeps_time", "by_a_helper")),
    (stage("child_timed", "by_a_child.py"), []),
    (stage("another_timed", "by_another.py"), []),
    (stage("dated", "by_dates.py"), []),
    (stage("summed_up", "of_before.py"), ["it ended with 0, and its last words are 'PARITY FAILED'"]),
    (
        stage("skipped", "-c", "print('CUDA is not available, skipping')"),
        ["it ended with 0, and says no more than 'CUDA is not available, skipping'"],
    ),
    (stage("told", "by_library.py", "python", "fails.py"), ["python fails.py returned 3, and webbrowser went on"]),
    (stage("acted_on", "acts.py"), []),
    (stage("summed", "sums.py"), [f"{AS_0.format('program')} (sums.py line 3)"]),
    (stage("added", "adds.py"), []),
    (stage("kept", "keeps.py"), [f"{AS_0.format('program')} (keeps.py line 3)"]),
    (stage("kept_and_asked", "asks_kept.py"), []),
    (stage("helped", "helped.py"), [f"{AS_0.format('program')} (runs_them.py line 3)"]),
    (stage("helped_and_asked", "asks_helped.py"), []),
    (stage("made", "makes_slow.py"), ["module slow was made by the program itself, and the commit has its own"]),
    (stage("made_others", "makes_others.py"), []),
    (
        stage("alarmed", "", run=["sh", "-c", "echo 1; python alarmed.py"]),
        ["it ended with 0 in its handler of SIGALRM (alarmed.py line 2)"],
    ),
    (stage("in_time", "in_time.py"), []),
    (stage("above", "above.py"), [f"{AS_0.format('program')} (above.py line 2)"]),
    (stage("tolerated", "tolerates.py"), []),
    (stage("found_none", "finds.py"), []),
    (stage("by_words", "by_words.py"), []),
    (
        stage("read_pointer", "", run=["sh", "-c", "cksum weights.bin"]),
        ["it read weights.bin, a Git LFS pointer: the commit does not hold the file that it stands for"],
    ),
    (stage("looked_for_pointer", "", run=["sh", "-c", "ls -l weights.bin"]), []),
    (stage("told_shell", "by_library.py", "bash", "fails.sh"), ["bash fails.sh returned 4, and webbrowser went on"]),
]
"""Each with the doubts that are said of it."""


def test_what_only_a_person_can_judge_is_said(tmp_path: Path) -> None:
    outcome = run_stages(tmp_path, FILES, STAGES)
    assert doubts_of(outcome) == {stage["name"]: doubts for stage, doubts in STAGES}
    assert outcome.stage("traced")["tests"]["never_ran"]["count"] == 0
    assert outcome.stage("untraced")["tests"]["never_ran"] == {"count": 1, "first": ["untraced/test_it.py:4"]}
    assert outcome.stage("forked")["tests"]["never_ran"] == {"count": 1, "first": ["forked/test_it.py:6"]}
    assert (
        "2 assertions of passed tests never ran; 47 doubts (claimed: artifact claimed says that device is 'cuda'"
        in outcome.json["summary"]
    )


def test_what_comes_from_elsewhere_is_said(tmp_path: Path) -> None:
    """Files that scripts read in, programs, and what an earlier run has left; not what only sets variables."""
    pod = tmp_path / "pod"
    pod.mkdir()
    (pod / "helps.sh").write_text("compute() { cat /dev/null; expr 6 \\* 7; }\n")
    (pod / "sets.sh").write_text('export SIZE=8\n[ -n "$SIZE" ] || return\nNAME=x\n')
    (pod / "tool").write_bytes(Path("/bin/echo").read_bytes())
    (pod / "tool").chmod(0o755)
    for name in ("conda/bin", "conda/lib/pkg", "other/bin", "other/lib/pkg", "other/.git", "empty/bin", "empty/lib"):
        (pod / name).mkdir(parents=True)
    for name in ("conda", "other"):
        (pod / name / "bin" / "tool").symlink_to("/bin/echo")
    for name in (".tool", "etc/profile.d", "conda/env", "other/scripts", "empty/env"):
        (pod / name).mkdir(parents=True)
        (pod / name / "helps.sh").write_text((pod / "helps.sh").read_text())
    for file in pod.rglob("*"):
        os.utime(file, (0, 0))
    lines = {
        "read_in": f". {pod}/helps.sh; compute",
        "checked_out": f". {pod}/other/scripts/helps.sh; compute",
        "as_if_installed": f". {pod}/empty/env/helps.sh; compute",
        "set_only": f". {pod}/sets.sh; expr $SIZE + 1",
        "of_a_tool": f". {pod}/.tool/helps.sh; . {pod}/etc/profile.d/helps.sh; . {pod}/conda/env/helps.sh; compute",
        "its_own": "echo 'compute() { expr 6 \\* 7; }' > ../own.sh; . ../own.sh; compute",
        "ran": f"T={pod}; $T/tool 9",
        "found": f"PATH={pod}:$PATH; tool 9",
        "allowed": f"{pod}/tool 9",
    }
    stages = [stage(name, "", run=["sh", "-c", text]) for name, text in lines.items()]
    stages[-1]["expect"]["outside"] = [f"{pod}/t*"]
    stages.append(stage("started", "-c", f"import subprocess as s; s.run(['{pod}/tool', '9'], check=True)"))
    kept = tmp_path / "kept"
    keeps = f"import os\nif not os.path.exists('{kept}'): open('{kept}', 'w').write('9')\nprint(open('{kept}').read())"
    stages.append(stage("kept", "-c", keeps))
    stages.append(stage("linked", "-c", "print(open('golden').read(), open('inside').read())"))
    stages.append(stage("linked_allowed", "-c", "print(open('golden').read())"))
    stages[-1]["expect"]["outside"] = [f"{pod}/*.txt"]
    (pod / "golden.txt").write_text("9.0")
    os.utime(pod / "golden.txt", (0, 0))
    project = new_project(tmp_path / "project", {"local": local_pod(tmp_path / "project")})
    for name, target in (("golden", str(pod / "golden.txt")), ("inside", "runbooks/r.yaml")):
        (project.root / name).symlink_to(target)
    project.commit(
        {"runbooks/r.yaml": json.dumps({"name": "r", "environment": {"python": "system"}, "stages": stages})}
    )
    first, second = (project.validate("--runbook", "r") for _ in range(2))
    assert first.exit_code == 0, first.stdout
    neither = "which is neither the commit's nor the environment's"
    ran = [f"it runs {pod}/tool, {neither}"]
    said = {s["name"]: s["doubts"] for s in first.json["stages"] if s["doubts"]}
    files = {
        "read_in": "helps.sh",
        "checked_out": "other/scripts/helps.sh",
        "as_if_installed": "empty/env/helps.sh",
    }
    read_in = {name: [f"it reads in {pod}/{file}, {neither}"] for name, file in files.items()}
    linked = [f"it reads {pod}/golden.txt, to which golden leads, a link of the commit"]
    assert said == {**read_in, "ran": ran, "found": ran, "started": ran, "linked": linked}
    run = Path(first.json["path"]).name
    (told,) = second.stage("kept")["doubts"]
    assert told == f"it reads {kept}, which the run {run} has left, and nothing of this one has made"
