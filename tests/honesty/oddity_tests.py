"""Honest oddities of tests: unusual options, configurations, conftests, layouts and styles."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from tests.honesty.case import Case, truth
from tests.support.agent_pod import artifact, pytest_stage
from tests.support.stage_cases import TWO, YAML_COLLECTOR, runs, tests
from tests.support.stage_cases import Case as StageCase

CHECKS = "def test_a(): assert len('a') == 1\n"
RERUNS = """
    import pytest
    def pytest_addoption(parser):
        for name in ("--reruns", "--count", "--numprocesses", "--durations-min-of-us", "--cov-report-to"):
            parser.addoption(name, default="0")
    def pytest_generate_tests(metafunc):
        if "turn" in metafunc.fixturenames:
            metafunc.parametrize("turn", range(int(metafunc.config.getoption("--count"))))
    @pytest.fixture
    def reruns(request):
        return int(request.config.getoption("--reruns"))
"""
USES_RERUNS = "def test_a(turn, reruns): assert turn < 3 and reruns == 2\n"
CALLS_THE_TEST = """
    import pytest
    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(pyfuncitem):
        names = pyfuncitem._fixtureinfo.argnames
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        return True
"""
RUNS_COROUTINES = """
    import asyncio, inspect, pytest
    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(pyfuncitem):
        if inspect.iscoroutinefunction(pyfuncitem.obj):
            names = pyfuncitem._fixtureinfo.argnames
            asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
            return True
"""
REORDERS = """
    import random
    def pytest_collection_modifyitems(session, config, items):
        random.Random(1).shuffle(items)
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
    def pytest_configure(config):
        config.addinivalue_line("markers", "slow: takes long")
"""
ADDS = """
    def pytest_collection_modifyitems(items):
        first = items[0]
        items.append(type(first).from_parent(first.parent, name="test_added", callobj=first.obj))
"""
CLOSES_WHOLESALE = """
    import os
    def test_a():
        os.closerange(20, 256)
        assert os.getpid()
    def test_b(tmp_path):
        assert list(tmp_path.iterdir()) == []
"""
CACHED = """
    def test_a(pytestconfig, cache):
        cache.set("odd/figure", 3)
        assert pytestconfig.cache.get("odd/figure", 0) == 3
"""
AUTOUSE = """
    import os, pytest
    @pytest.fixture(autouse=True, scope="session")
    def place(tmp_path_factory):
        return tmp_path_factory.mktemp("place")
    @pytest.fixture(autouse=True)
    def elsewhere(monkeypatch, place):
        monkeypatch.chdir(place)
        monkeypatch.setenv("ODD", "1")
        yield
        assert os.environ["ODD"] == "1"
"""
UNITTESTS = """
    import unittest
    class Base(unittest.TestCase):
        @classmethod
        def setUpClass(cls): cls.figures = [1, 2, 3]
        def setUp(self): self.addCleanup(self.figures.copy)
    class T(Base):
        def test_each(self):
            for figure in self.figures:
                with self.subTest(figure=figure):
                    self.assertGreater(figure, 0)
        def test_raises(self):
            with self.assertRaises(ZeroDivisionError): 1 / 0
        def test_logs(self):
            import logging
            with self.assertLogs("odd", "ERROR") as caught: logging.getLogger("odd").error("as asked")
            self.assertEqual(len(caught.output), 1)
    class Asynchronous(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self): self.value = 1
        async def test_a(self): self.assertEqual(self.value, 1)
"""
NEAR_ENOUGH = """
    def greatest(a, b): return max(abs(x - y) for x, y in zip(a, b))
    def relative(a, b): return greatest(a, b) / max(map(abs, a))
    def assert_close(a, b, ratio):
        error = relative(a, b)
        if greatest(a, b) <= 1e-6:
            return
        assert error < ratio
    def test_a(): assert_close([1.0], [1.0], 0.01)
"""
UNITTEST_MARKS = """
    import sys, unittest
    class T(unittest.TestCase):
        @unittest.skipUnless(sys.platform == "beos", "needs BeOS")
        def test_beos(self): self.fail()
        @unittest.expectedFailure
        def test_known(self): self.assertEqual(1, 2)
        def test_a(self): self.assertTrue(1)
"""
DOCTESTED = '''
    def double(x):
        """Twice `x`.

        >>> double(2)
        4
        >>> double(None)
        Traceback (most recent call last):
            ...
        TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'
        """
        return x * 2
'''
ASYNC = """
    import asyncio
    async def double(x):
        await asyncio.sleep(0)
        return 2 * x
    def test_a():
        async def all_of():
            return await asyncio.gather(*(double(i) for i in range(3)), return_exceptions=True)
        assert asyncio.run(all_of()) == [0, 2, 4]
    def test_timeout():
        async def waits():
            try: await asyncio.wait_for(asyncio.sleep(9), 0.01)
            except asyncio.TimeoutError: return "late"
        assert asyncio.run(waits()) == "late"
    def test_cancelled():
        async def cancels():
            task = asyncio.ensure_future(asyncio.sleep(9))
            await asyncio.sleep(0)
            task.cancel()
            done = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(done[0], asyncio.CancelledError)
        asyncio.run(cancels())
"""
THREADS = """
    import threading, pytest
    from concurrent.futures import ThreadPoolExecutor, as_completed
    def check(x): assert x > 1, "too small"
    def test_future():
        with ThreadPoolExecutor(2) as pool:
            assert isinstance(pool.submit(check, 1).exception(), AssertionError)
            with pytest.raises(AssertionError): pool.submit(check, 0).result()
            with pytest.raises(AssertionError): list(pool.map(check, [2, 1]))
    def test_thread():
        caught = []
        def work():
            try: check(0)
            except AssertionError as error: caught.append(error)
        thread = threading.Thread(target=work); thread.start(); thread.join()
        assert len(caught) == 1
    def test_daemon():
        thread = threading.Thread(target=threading.Event().wait, daemon=True); thread.start()
        assert thread.is_alive()
"""
SUBPROCESSES = """
    import subprocess, sys, pytest
    def run(code, **more): return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **more)
    def test_code(): assert run("raise SystemExit(3)").returncode == 3
    def test_check():
        with pytest.raises(subprocess.CalledProcessError): run("assert 0", check=True)
    def test_traceback():
        done = run("assert 1 == 2, 'as expected'")
        assert done.returncode == 1 and "AssertionError: as expected" in done.stderr
    def test_killed():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        child.kill()
        assert child.wait() == -9
    def test_shell(): assert subprocess.call("exit 4", shell=True) == 4
"""
OWN_VARIABLES = """
    import os, subprocess, sys, pytest
    from unittest import mock
    def run(*args, env, cwd): return subprocess.run(args, env=env, cwd=cwd, capture_output=True, text=True)
    def session(tmp_path, env, line):
        (tmp_path / "test_inner.py").write_text(f"def test_inner():\\n    {line}\\n")
        return run(sys.executable, "-m", "pytest", "-q", "test_inner.py", env=env, cwd=tmp_path)
    def test_nothing_else_is_there(tmp_path):
        done = run(sys.executable, "-c", "import os; print(sorted(os.environ))", env={"A": "1"}, cwd=tmp_path)
        assert "A" in done.stdout and "PATH" not in done.stdout
    def test_code(tmp_path):
        assert run(sys.executable, "-c", "raise SystemExit(3)", env={}, cwd=tmp_path).returncode == 3
    @pytest.mark.parametrize("env", [{}, {"PATH": os.environ["PATH"]}])
    def test_sessions(tmp_path, env):
        assert session(tmp_path, env, "assert 1 == 1").returncode == 0
        assert "1 failed" in session(tmp_path, env, "assert 1 == 2").stdout
    def test_cleared(tmp_path):
        with mock.patch.dict(os.environ, clear=True): done = session(tmp_path, None, "assert 1 == 2")
        assert done.returncode == 1
    def test_behind_a_shell(tmp_path):
        session(tmp_path, None, "assert 1 == 2")
        line = f"env -i {sys.executable} -m pytest -q test_inner.py"
        assert run("sh", "-c", line, env=None, cwd=tmp_path).returncode == 1
"""
LETS_GO = """
    import weakref
    from odd_lets_go.held import Held, one
    class Same:
        def __eq__(self, other): return True
    def test_compared():
        same = Same(); left = weakref.ref(same)
        assert same == 3
        del same
        assert left() is None
    def test_called():
        def function(): return one()
        held, left = Held(), weakref.ref(function)
        assert held.value() == function() == 1
        held.value()
        gone = weakref.ref(held)
        del function, held
        assert left() is None and gone() is None
    def test_locals():
        value = 3
        names = locals()
        assert value == one() + 2
        assert names["value"] == 3 and sorted(names) == ["value"]
    class TestInClass:
        held = Held()
        assert held.value() == 1
        def test_held(self): assert self.held.value() == 1
"""
SEEN_FROM_WITHIN = """
    import multiprocessing, os, pickle, signal, subprocess, sys
    import pytest
    def test_pool():
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            assert pool.map(os.system, ["exit 0", "true"]) == [0, 0]
    @pytest.mark.parametrize("function", [os._exit, os.system, os.fork, os.kill, subprocess.run, sys.exit])
    def test_pickled(function): assert pickle.loads(pickle.dumps(function)) is function
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
    def test_ended_by(signum):
        child = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1)
        assert child.stdout.readline() == b"1\\n"
        child.send_signal(signum)
        assert child.wait(timeout=30) == -signum
"""
RAISES = """
    import math, warnings, pytest
    def strict(x):
        if x < 0: raise AssertionError("negative")
        assert x < 10, "too large"
        return x
    def test_raises():
        with pytest.raises(AssertionError, match="negative"): strict(-1)
        with pytest.raises(AssertionError): strict(11)
    def test_swallowed_on_purpose():
        try: strict(11)
        except AssertionError as error: assert "large" in str(error)
        else: pytest.fail("nothing was raised")
    def refuses(x):
        try: strict(x)
        except AssertionError: return True
        return False
    def test_refuses(): assert refuses(-1) and refuses(12) and not refuses(1)
    def test_counted():
        refused = 0
        for x in (-1, 1, 11):
            try: strict(x)
            except AssertionError: refused += 1
        assert refused == 2
    def test_warns():
        with pytest.warns(UserWarning, match="odd"): warnings.warn("odd")
        with pytest.deprecated_call(): warnings.warn("old", DeprecationWarning)
    def test_approx():
        assert 0.1 + 0.2 == pytest.approx(0.3)
        assert math.isclose(0.1 + 0.2, 0.3)
        assert [0.1, 2.0] == pytest.approx([0.1, 2.0], rel=1e-3)
    def test_nan(): assert math.isnan(float("nan"))
"""
HYPOTHESIS = """
    from hypothesis import assume, given, settings, strategies as st
    @settings(max_examples=20, database=None)
    @given(st.lists(st.integers()))
    def test_sorted(xs):
        assert sorted(sorted(xs)) == sorted(xs)
    @given(st.integers(), st.integers())
    def test_assume(a, b):
        assume(a != b)
        assert a - b != 0
"""
MOCKS = """
    from unittest import mock
    import gc, os
    def test_a():
        with mock.patch("os.getcwd", return_value="/nowhere") as getcwd: assert os.getcwd() == "/nowhere"
        getcwd.assert_called_once_with()
    @mock.patch.dict(os.environ, {"ODD": "1"})
    @mock.patch("os.listdir", side_effect=[["a"], OSError])
    def test_b(listdir):
        assert os.listdir(".") == ["a"] and os.environ["ODD"]
    def test_open():
        with mock.patch("builtins.open", mock.mock_open(read_data="x")): assert open("none").read() == "x"
    def test_garbage_is_collected(): assert gc.isenabled()
    def test_time():
        with mock.patch("time.time", return_value=0.0), mock.patch("time.monotonic", return_value=0.0):
            import time
            assert time.time() == 0
    def test_exit():
        with mock.patch("os._exit") as ended, mock.patch("sys.exit"):
            os._exit(3)
        ended.assert_called_with(3)
"""
HELPER = """
    def check(x): assert x > 0
    class Checks:
        def same(self, a, b): assert a == b
    class Problem:
        def __init__(self, size): self.size = size
        @classmethod
        def of(cls, size): return cls(size)
"""
USES_HELPER = """
    from .helper import Checks, Problem, check
    class TestIt(Checks):
        def test_a(self):
            check(1)
            self.same(1, 1)
        def test_b(self):
            problem = Problem.of(3)
            assert problem.size == 3
"""
PARTS = """
    def test_one(number, verbose=False): assert number == 1
    def test_two(verbose=False): assert not verbose
    test_one.numbers = [1]
    test_two.numbers = [None]
"""
HANDS_ON = """
    import pytest
    class Part(pytest.Item):
        def __init__(self, *, function, number, **more):
            super().__init__(**more)
            self._function, self._number = function, number
        def runtest(self): self._function(*[self._number] * (self._number is not None))
    @pytest.hookimpl(hookwrapper=True)
    def pytest_pycollect_makeitem(collector, name, obj):
        made = yield
        numbers = getattr(obj, "numbers", ())
        parts = [Part.from_parent(collector, name=name, function=obj, number=number) for number in numbers]
        made.force_result(parts or None)
    def pytest_ignore_collect(collection_path):
        return True if collection_path.name in ("test_parts.py", "test_main.py") else None
"""
IMPORT_HOOK = """
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path
    class Loader(SourceFileLoader):
        def source_to_code(self, data, path, *, _optimize=-1):
            return super().source_to_code(data + b"INSTRUMENTED = True", path, _optimize=_optimize)
    def test_a():
        file = str(Path(__file__).with_name("helper.py"))
        spec = spec_from_file_location("helper", file, loader=Loader("helper", file))
        helper = module_from_spec(spec)
        spec.loader.exec_module(helper)
        helper.check(helper.INSTRUMENTED)
"""
WARNED_IMPORTER = """
    import pytest
    def test_a():
        with pytest.warns(DeprecationWarning, match="use new") as met: import odd_old_module.old
        assert met[0].filename == __file__
"""
MAKES_METHODS = """
    from unittest import TestCase
    class Made(TestCase):
        @classmethod
        def of(cls, *cases):
            for x in cases:
                def method(self, x=x): self.same(x)
                setattr(cls, f"test_{x}", method)
        def same(self, x): self.assertEqual(x, abs(x))
"""
OVERRIDES = """
    from .helper import Made
    class TestIt(Made):
        def same(self, x): self.assertEqual(x, +x)
    TestIt.of(1, 2)
"""
ODD_IDS = """
    import pytest
    NAMES = ["\\x1b[31mred", "a\\nb", "a/b\\\\c", "[x]", "ü☃", "", " ", "a::b", "x" * 300, "\\x00",
             "<&>", "\\ud800", "%s {}"]
    @pytest.mark.parametrize("name", NAMES, ids=NAMES)
    def test_a(name): assert isinstance(name, str)
    @pytest.mark.parametrize("name", NAMES)
    def test_b(name): assert isinstance(name, str)
    @pytest.mark.parametrize("x", [1, 1.5, None, object(), [1], b"\\x1b", float("nan"), lambda: 1])
    def test_c(x): assert x is x
"""
INHERITED = """
    import abc, pytest
    class Mixin:
        def test_mixed(self): assert self.make() == 1
    class Base(abc.ABC):
        @abc.abstractmethod
        def make(self): ...
        def test_base(self): assert self.make() > 0
    class TestA(Mixin, Base):
        def make(self): return 1
    class TestB(TestA):
        def test_base(self):
            super().test_base()
            assert 1
    class TestOuter:
        class TestInner:
            @pytest.mark.parametrize("x", [1])
            def test_x(self, x): assert x
    class TestData:
        \"\"\"A class without tests.\"\"\"
        value = 1
    class HelperOfTests:
        def __init__(self, value): self.value = value
    def test_helper(): assert HelperOfTests(1).value == TestData.value
"""
GENERATED = """
    def make(n):
        def test(): assert n + 1 > n
        return test
    for n in range(3):
        globals()[f"test_number_{n}"] = make(n)
    class TestMade: pass
    TestMade.test_m = lambda self: make(1)()
"""
CLOSES = """
    import io, os, sys
    def test_streams(capfd):
        print("out"); sys.stderr.write("err"); os.write(1, b"raw")
        out, err = capfd.readouterr()
        assert "raw" in out
    def test_replaced(monkeypatch):
        monkeypatch.setattr(sys, "stdout", io.StringIO()); print("x")
        assert sys.stdout.getvalue() == "x\\n"
    def test_excepthook(monkeypatch):
        monkeypatch.setattr(sys, "excepthook", print)
        assert sys.excepthook is print
    def test_path(monkeypatch, tmp_path):
        (tmp_path / "odd_made_up.py").write_text("VALUE = 5")
        monkeypatch.syspath_prepend(tmp_path)
        import odd_made_up
        assert odd_made_up.VALUE == 5
    def test_tmpdir_module(tmp_path):
        import importlib.util
        (tmp_path / "loaded.py").write_text("VALUE = 6")
        spec = importlib.util.spec_from_file_location("odd_loaded", tmp_path / "loaded.py")
        module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
        assert module.VALUE == 6
"""
OWN_PLUGIN = """
    import pytest
    @pytest.fixture
    def plugged(): return 7
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(item): yield
    def pytest_report_header(config): return "plugged in"
    def pytest_terminal_summary(terminalreporter): terminalreporter.write_line("FAILED is only a word")
"""
TESTS_PLUGIN = """
    pytest_plugins = ["pytester"]
    def test_plugged(plugged): assert plugged == 7
    def test_inner(pytester):
        pytester.makepyfile("def test_x(plugged): assert plugged == 7\\ndef test_y(): assert 0")
        pytester.runpytest_inprocess("-p", "odd_plugin", plugins=[]).assert_outcomes(passed=1, failed=1)
"""
FORKS = """
    import multiprocessing, os, sys, pytest
    def square(x): return x * x
    def dies(): sys.exit(3)
    def raises(): raise ValueError("asked for")
    @pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
    def test_pool(method):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool: assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
        process = context.Process(target=dies); process.start(); process.join()
        assert process.exitcode == 3
    def test_fork():
        pid = os.fork()
        if pid == 0: os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    def test_child_fails():
        context = multiprocessing.get_context("fork")
        with context.Pool(1) as pool, pytest.raises(ValueError, match="asked"): pool.apply(raises)
"""
CHECKS_IN_FIXTURES = """
    import pytest
    @pytest.fixture
    def checked():
        made = [1]
        assert made
        yield made
        assert made == [1, 2]
    def test_a(checked): checked.append(2)
"""
LOGS = """
    import logging, sys, traceback
    def test_logged(caplog):
        for attempt in range(3):
            try:
                if attempt < 2: raise OSError("busy")
            except OSError: logging.exception("again")
        assert len(caplog.records) == 2
    def test_printed():
        try: 1 / 0
        except ZeroDivisionError: traceback.print_exc(file=sys.stdout)
        assert not sys.exc_info()[0]
"""
IMPORT_SKIPS = """
    import pytest
    numbers = pytest.importorskip("json")
    @pytest.mark.skipif(False, reason="never")
    def test_a(): assert numbers.loads("1") == 1
    @pytest.mark.xfail(False, reason="not here")
    def test_b(): assert 1
"""
STACKED = """
    import functools, pytest
    def twice(test):
        @functools.wraps(test)
        def both(*args, **kw):
            test(*args, **kw)
            test(*args, **kw)
        return both
    @twice
    @pytest.mark.usefixtures("tmp_path")
    def test_a(capsys): assert capsys
    @pytest.mark.parametrize("x", [1, 2])
    @pytest.mark.parametrize("y", [pytest.param(3, id="three", marks=pytest.mark.filterwarnings("error"))])
    def test_b(x, y, request): assert x < y and request.node.name
    test_alias = test_a
    @staticmethod
    def helper(): assert 0
"""
SLOW_CHILD = """
    import subprocess, sys
    def test_writer():
        child = subprocess.Popen([sys.executable, "-c", "for i in range(99999): print(i)"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        assert child.stdout.readline() == b"0\\n"
        child.stdout.close(); child.stderr.close()
        assert child.wait() in (1, 120, -13)
"""
IDENTICAL = "def test_same(): assert __name__\n"


def _tests(name: str, says: str, source: str, *arguments: str, **over: Any) -> Case:
    return truth(tests(name, "passed", "", source, *arguments, **over), says)


def _folder(name: str, says: str, files: Mapping[str, str], *arguments: str, **over: Any) -> Case:
    """A pytest stage on all of a folder, whose `files` lie below it."""
    found = {f"{name}/{path}": textwrap.dedent(text) for path, text in files.items()}
    prepare = over.pop("prepare", None)
    return truth(StageCase(pytest_stage(name, *arguments, name, **over), "passed", "", found), says, prepare=prepare)


def _ini(name: str, file: str, text: str, source: str = TWO, **over: Any) -> Case:
    """Tests under an ini of their own."""
    files = {f"{name}/{file}": text, **over.pop("files", {})}
    return _tests(name, f"a {file} with settings", source, "-c", f"{name}/{file}", files=files, **over)


OPTIONS = [
    _tests(
        "odd_options_of_plugins",
        "options of plugins, with values after a blank",
        USES_RERUNS,
        "--reruns",
        "2",
        "--count",
        "3",
        "--numprocesses",
        "2",
        "--durations-min-of-us",
        "0.1",
        "--cov-report-to",
        "term-missing",
        conftest=RERUNS,
    ),
    _tests(
        "odd_durations",
        "pytest's own options with values",
        TWO,
        "--durations",
        "3",
        "--durations-min",
        "0.5",
        "--maxfail",
        "2",
        "--tb",
        "short",
        "-r",
        "A",
        "--color",
        "yes",
        "-W",
        "ignore::DeprecationWarning",
        "--log-level",
        "DEBUG",
        "--show-capture",
        "no",
        "--verbosity",
        "2",
        "--capture",
        "sys",
        "-o",
        "console_output_style=classic",
        "--import-mode",
        "append",
        "--basetemp",
        "made/base",
    ),
    _tests(
        "odd_importlib",
        "modules are imported by importlib, and nothing is put on sys.path",
        CHECKS,
        "--import-mode=importlib",
        "-vv",
        "-s",
    ),
    _tests(
        "odd_xdist",
        "tests in two processes",
        "".join(f"def test_{i}(): assert {i} + 1\n" for i in range(9)),
        "-p",
        "xdist.plugin",
        "-n",
        "2",
        tests={"min_passed": 9},
    ),
    _tests(
        "odd_xdist_loadscope",
        "tests in two processes, by file",
        CHECKS,
        "-p",
        "xdist.plugin",
        "-n2",
        "--dist",
        "loadscope",
        "--maxprocesses",
        "2",
    ),
    _tests("odd_failed_first", "the cache decides what comes first", TWO, "--ff", "--nf"),
    _tests("odd_last_failed", "nothing failed last time, so all run", TWO, "--lf", "--cache-clear"),
    _tests("odd_stepwise", "step by step", TWO, "--sw"),
    _tests(
        "odd_no_cache",
        "without a cache, nor plugins of others",
        TWO,
        "-p",
        "no:cacheprovider",
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    ),
    _tests("odd_keyword", "-k and -m that match all", TWO, "-k", "test_a or test_b", "-m", "not slow"),
    _tests("odd_asserts_plain", "assertions are not rewritten", CHECKS, "--assert=plain"),
    _tests(
        "odd_warnings",
        "warnings are errors",
        CHECKS,
        "-W",
        "error",
        start=["python", "-W", "error", "-X", "dev", "-m", "pytest"],
    ),
    _tests("odd_twice_named", "the same test is named twice", CHECKS, "odd_twice_named/test_it.py::test_a"),
    _tests(
        "odd_capture_off",
        "prints go through",
        "import os\ndef test_a():\n    os.write(1, b'5 failed\\n')\n    assert 1\n",
        "--capture=no",
    ),
]
CONFIGURATIONS = [
    _ini("odd_pytest_ini", "pytest.ini", "[pytest]\naddopts = -ra --strict-markers\nmarkers = slow: takes long\n"
         "xfail_strict = true\nfilterwarnings =\n    error\n    ignore::ResourceWarning\n"),
    _ini("odd_tox_ini", "tox.ini", "[tox]\nenvlist = py\n[pytest]\naddopts = --tb=short\nnorecursedirs = data\n"),
    _ini("odd_setup_cfg", "setup.cfg", "[tool:pytest]\naddopts = -v\njunit_family = xunit1\njunit_suite_name = odd\n"),
    _ini("odd_pyproject", "pyproject.toml", '[tool.pytest.ini_options]\naddopts = ["-v", "--import-mode=importlib"]\n'
         'log_cli = true\nlog_cli_level = "INFO"\njunit_logging = "all"\n'),
    truth(tests("odd_own_junit", "passed", "", TWO, "--junitxml={artifacts}/odd_own.xml",
                expect={"artifacts": [artifact("odd_own.xml", contains=['tests="2"'])]}),
          "a JUnit file of the command's own, which is an artifact"),
    _ini("odd_junit_in_ini", "pytest.ini", "[pytest]\naddopts = --junit-xml=made/odd_ini.xml\n",
         expect={"artifacts": [artifact("odd_ini.xml", from_="tree:made/odd_ini.xml")]}),
    _ini("odd_no_junit", "pytest.ini", "[pytest]\naddopts = -p no:junitxml\n"),
    _ini("odd_python_functions", "pytest.ini",
         "[pytest]\npython_functions = test_* check_*\npython_classes = Test* *Spec\n",
         "def check_a(): assert 1 + 1\nclass ThisSpec:\n    def test_b(self): assert 2\n"),
    _ini("odd_python_files", "pytest.ini", "[pytest]\npython_files = test_*.py check_*.py\ntestpaths = .\n"),
    truth(StageCase(pytest_stage("odd_cut_off", "odd_cut_off/inner"), "passed", "", {
        "odd_cut_off/conftest.py": "raise RuntimeError('of the project around it')\n",
        "odd_cut_off/inner/pytest.ini": "[pytest]\n", "odd_cut_off/inner/test_it.py": CHECKS}),
        "a project within the repository, above which pytest looks for no conftest"),
    truth(StageCase(pytest_stage("odd_beside", "odd_beside/tests"), "passed", "", {
        "odd_beside/pytest.ini": "[pytest]\nnorecursedirs = extra\n", "odd_beside/extra/test_x.py": CHECKS,
        "odd_beside/tests/test_it.py": CHECKS}),
        "an ini leaves out a folder of tests that stands beside the one that is named"),
    _folder("odd_own_rootdir", "a folder with a configuration of its own", {
        "pytest.ini": "[pytest]\naddopts = -p no:doctest\n", "test_a.py": CHECKS, "sub/test_b.py": CHECKS}),
]  # fmt: skip
CONFTESTS = [
    _tests("odd_pyfunc_call", "a conftest calls the tests itself", CHECKS, conftest=CALLS_THE_TEST),
    _tests("odd_coroutines", "a conftest runs tests that are coroutines",
           "import asyncio\nasync def test_a(tmp_path):\n    await asyncio.sleep(0)\n    assert tmp_path.exists()\n",
           conftest=RUNS_COROUTINES),
    _tests("odd_reordered", "a conftest shuffles the tests",
           "import pytest\n@pytest.mark.slow\ndef test_a(): assert 1\n" + TWO.replace("_a", "_c"), conftest=REORDERS),
    _tests("odd_added", "a conftest adds a test to those that were collected", CHECKS, conftest=ADDS,
           tests={"min_passed": 2, "must_pass": ["::test_added$"]}),
    _folder("odd_collector", "a conftest collects files of its own kind, and gives two tests one name", {
        "conftest.py": YAML_COLLECTOR, "figures.case": "a:1\nb:2\nb:3\n", "test_it.py": CHECKS},
        tests={"min_passed": 4}),
    _folder("odd_collector_xdist", "tests of one name in two processes", {
        "conftest.py": YAML_COLLECTOR, "figures.case": "a:1\nb:2\nb:3\n", "test_it.py": CHECKS},
        "-p", "xdist.plugin", "-n2", tests={"min_passed": 4}),
    _folder("odd_ignores", "a conftest leaves out what holds no tests", {
        "conftest.py": "collect_ignore = ['setup.py']\ncollect_ignore_glob = ['data/*']\n"
                       "def pytest_ignore_collect(collection_path):\n"
                       "    return True if collection_path.name == 'vendor' else None\n",
        "setup.py": "raise SystemExit('no')\n", "data/x.py": "1 / 0\n", "vendor/y.py": "1 / 0\n",
        "test_it.py": CHECKS}),
    _folder("odd_hands_on", "a conftest runs what ignored files define, by items of its own; one is a program", {
        "conftest.py": HANDS_ON, "test_parts.py": PARTS, "test_main.py": "def main(): print('no test')\n",
        "test_it.py": "from odd_hands_on.test_parts import *\n", "__init__.py": ""}, tests={"min_passed": 2}),
    _tests("odd_autouse", "fixtures that change folder and variables", CHECKS, conftest=AUTOUSE),
    _tests("odd_cache", "a test that keeps something in pytest's cache", CACHED),
    _tests("odd_generates", "a conftest makes the parameters",
           "def test_a(figure): assert figure\n",
           conftest="def pytest_generate_tests(metafunc):\n"
                    "    metafunc.parametrize('figure', [1, 2], ids=['one', 'two'], indirect=True)\n"
                    "import pytest\n@pytest.fixture\ndef figure(request): return request.param\n"),
    _folder("odd_conftests", "a conftest in each folder", {
        "conftest.py": "import pytest\n@pytest.fixture\ndef level(): return 0\n",
        "test_top.py": "def test_a(level): assert level == 0\n",
        "sub/conftest.py": "import pytest\n@pytest.fixture\ndef level(level): return level + 1\n",
        "sub/test_sub.py": "def test_a(level): assert level == 1\n"}),
    _tests("odd_protocol", "a conftest runs the protocol itself", CHECKS,
           conftest="from _pytest.runner import runtestprotocol\n"
                    "def pytest_runtest_protocol(item, nextitem):\n"
                    "    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)\n"
                    "    runtestprotocol(item, nextitem=nextitem)\n"
                    "    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)\n"
                    "    return True\n"),
    _tests("odd_report_fields", "a conftest adds to reports and properties", "def test_a(record_property, "
           "record_testsuite_property):\n    record_property('ms', 1.5)\n"
           "    record_testsuite_property('gpu', 'none')\n    assert 1\n",
           conftest="import pytest\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
                    "    report = yield\n    report.user_properties.append(('phase', call.when))\n    return report\n"),
    _tests("odd_plugin", "a plugin of the tree, which is what is tested", TESTS_PLUGIN, "-p", "odd_plugin",
           files={"odd_plugin.py": OWN_PLUGIN}),
    _tests("odd_plugin_imported", "a test imports, and does not call, what a plugin of the tree has",
           CHECKS + "def test_importable():\n    from odd_package import must  # noqa: F401\n", "-p", "odd_package",
           files={"odd_package.py": "def must(x):\n    assert x\n    return x\n"}),
    _tests("odd_pytest_plugins", "a plugin of the tree, named by its variable", CHECKS.replace("()", "(plugged_too)"),
           env={"PYTEST_PLUGINS": "odd_plugin_too"},
           files={"odd_plugin_too.py": OWN_PLUGIN.replace("def plugged", "def plugged_too")}),
]  # fmt: skip
STYLES = [
    _tests("odd_unittest", "unittest's classes, subtests, logs and coroutines", UNITTESTS),
    _tests("odd_unittest_marks", "unittest's skip and expected failure, both allowed", UNITTEST_MARKS,
           tests={"allow_skips": ["needs BeOS", "^xfail"]}),
    _folder("odd_doctests", "doctests, one of a traceback", {"odd_doubles.py": DOCTESTED}, "--doctest-modules"),
    _tests("odd_testmod", "a function of the standard library is collected for its name, and returns what it found",
           "from doctest import testmod\n" + CHECKS),
    _folder("odd_doctest_files", "doctests in a text file",
            {"guide.txt": "A sum:\n\n>>> 1 + 1\n2\n", "test_it.py": CHECKS},
            "--doctest-glob=*.txt"),
    _tests("odd_asyncio", "coroutines, cancelled and late ones too", ASYNC),
    _tests("odd_threads", "failures in threads and pools, which are asked for", THREADS),
    _tests("odd_subprocesses", "programs that fail as expected", SUBPROCESSES),
    _tests("odd_own_variables", "tests start Pythons, pytest too, with other variables", OWN_VARIABLES),
    _tests("odd_processes", "processes of every kind of start", FORKS),
    _tests("odd_raises", "raises, warns, approx", RAISES),
    _tests("odd_hypothesis", "properties", HYPOTHESIS),
    _tests("odd_lets_go", "tests of what is let go of, by weak references; one looks at its locals", LETS_GO, files={
        "odd_lets_go/__init__.py": "",
        "odd_lets_go/held.py": "class Held:\n    def value(self): return 1\ndef one(): return 1\n"}),
    _tests("odd_pickled", "functions of os in a pool and pickled; children ended by signals", SEEN_FROM_WITHIN),
    _tests("odd_mocks", "mocks, of time and of exits too", MOCKS),
    _tests("odd_helpers", "helpers that assert or make what is tested; a relative import", USES_HELPER,
           files={"odd_helpers/helper.py": HELPER, "odd_helpers/__init__.py": "from . import helper\n"}),
    _tests("odd_import_hook", "a loader of the tests' own compiles a helper in its own way", IMPORT_HOOK,
           files={"odd_import_hook/helper.py": "def check(x): assert x\n", "odd_import_hook/__init__.py": ""}),
    _tests("odd_old_module", "a module warns whoever imports it", WARNED_IMPORTER, files={
        "odd_old_module/old.py": "import warnings\nwarnings.warn('use new', DeprecationWarning, stacklevel=2)\n",
        "odd_old_module/__init__.py": ""}),
    _tests("odd_overridden", "made methods, whose assertion a class overrides in another file", OVERRIDES,
           files={"odd_overridden/helper.py": MAKES_METHODS, "odd_overridden/__init__.py": "from . import helper\n"}),
    _tests("odd_fixture_asserts", "the assertions stand in a fixture", CHECKS_IN_FIXTURES),
    _tests("odd_smoke", "a test without an assertion", "import json\ndef test_a(): json.loads('[1]')\n"),
    _tests("odd_ids", "parameters of odd characters", ODD_IDS),
    _tests("odd_classes", "mixins, abstract bases, nested classes, helpers with __init__", INHERITED),
    _tests("odd_generated", "tests that a loop makes", GENERATED),
    _tests("odd_streams", "streams, hooks and paths replaced for a while", CLOSES),
    _tests("odd_closes_wholesale", "a test closes all files that it does not know of", CLOSES_WHOLESALE, "-s"),
    _tests("odd_logged", "exceptions that are logged", LOGS),
    _tests("odd_import_skips", "conditions of skips that do not hold", IMPORT_SKIPS),
    _tests("odd_decorated", "decorated tests, stacked parameters, an alias", STACKED),
    _tests("odd_near_enough", "a helper returns before its assertion where the error is as good as none", NEAR_ENOUGH),
    _tests("odd_broken_pipe", "a child whose reader ends first", SLOW_CHILD),
]  # fmt: skip
LAYOUTS = [
    _folder("odd_same_names", "the same names in two folders", {
        "one/__init__.py": "", "two/__init__.py": "", "__init__.py": "",
        "one/test_same.py": IDENTICAL, "two/test_same.py": IDENTICAL}, tests={"min_passed": 2}),
    _folder("odd_same_names_importlib", "the same names in two folders that are no packages", {
        "one/test_same.py": IDENTICAL, "two/test_same.py": IDENTICAL}, "--import-mode=importlib"),
    _folder("odd_relative", "relative imports among the tests", {
        "__init__.py": "", "sub/__init__.py": "", "common.py": "VALUE = 1\n",
        "sub/test_it.py": "from ..common import VALUE\nfrom . import __name__ as name\n"
                          "def test_a(): assert VALUE and name\n"}),
    _tests("odd_namespace", "a package without __init__.py, in two folders",
           "from odd_space.a import A\nfrom odd_space.b import B\ndef test_a(): assert A + B == 3\n",
           env={"PYTHONPATH": "odd_ns/one:odd_ns/two"},
           files={"odd_ns/one/odd_space/a.py": "A = 1\n", "odd_ns/two/odd_space/b.py": "B = 2\n"}),
    _tests("odd_src", "a package under src/", "import odd_src_pkg\ndef test_a(): assert odd_src_pkg.VALUE\n",
           env={"PYTHONPATH": "src"}, files={"src/odd_src_pkg/__init__.py": "from .core import VALUE\n",
                                             "src/odd_src_pkg/core.py": "VALUE = 1\n"}),
    _tests("odd_lib", "a package under lib/, found by an ini's pythonpath",
           "import odd_lib_pkg\ndef test_a(): assert odd_lib_pkg.VALUE\n", "-c", "odd_lib/pytest.ini",
           files={"lib/odd_lib_pkg/__init__.py": "VALUE = 1\n",
                  "odd_lib/pytest.ini": "[pytest]\npythonpath = ../lib\n"}),
    _tests("odd_path_inserted", "a conftest puts a folder of the tree on sys.path",
           "import odd_inserted\ndef test_a(): assert odd_inserted.VALUE\n",
           conftest="import pathlib, sys\nsys.path.insert(0, str(pathlib.Path(__file__).parent / 'code'))\n",
           files={"odd_path_inserted/code/odd_inserted.py": "VALUE = 1\n"}),
    _tests("odd_named_as_installed", "a folder of examples is named as an installed package, which is what is imported",
           "import pluggy, iniconfig\ndef test_a(): assert pluggy.__file__ and iniconfig\n",
           files={"examples/pluggy/readme.txt": "x\n", "docs/iniconfig/conf.py": "X = 1\n"}),
    _tests("odd_data_named_as_stdlib", "folders of data are named as modules of the standard library",
           "import json, logging.handlers, queue\ndef test_a(): assert json and logging and queue\n",
           files={"data/json/a.txt": "x\n", "odd_data_named_as_stdlib/queue.txt": "x\n"}),
    _folder("odd_alias", "a second name of a file of tests, by a link", {"test_it.py": CHECKS},
            prepare=lambda root: (root / "odd_alias/also.py").symlink_to("test_it.py")),
    truth(StageCase(pytest_stage("odd_pyargs", "--pyargs", "odd_args.test_it"), "passed", "",
                    {"odd_args/__init__.py": "", "odd_args/test_it.py": CHECKS}), "tests of a module by its name"),
    truth(StageCase(pytest_stage("odd_pyargs_ini", "odd_named.test_it", "-c", "odd_named/pytest.ini"), "passed", "",
                    {"odd_named/pytest.ini": "[pytest]\naddopts = --pyargs\n", "odd_named/__init__.py": "",
                     "odd_named/test_it.py": CHECKS}), "tests of a module by its name, as an ini file allows"),
    truth(runs("odd_unittest_module", "passed", "", "python", "-m", "unittest", "-v", "odd_unittest_pkg.test_it",
               files={"odd_unittest_pkg/__init__.py": "", "odd_unittest_pkg/test_it.py":
                      "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertTrue(1)\n"},
               expect={"artifacts": [{"path": "odd_unittest_module.txt", "from": "stderr"}]}),
          "python -m unittest, whose lines are on stderr"),
]  # fmt: skip
CASES = [*OPTIONS, *CONFIGURATIONS, *CONFTESTS, *STYLES, *LAYOUTS]
