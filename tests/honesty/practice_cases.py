"""What people's repositories hold: commands, pools, mocks and comparisons whose failure is only printed, or kept;
functions whose names are nearly right, and guards that do not hold.
"""

from __future__ import annotations

import textwrap
from typing import Any

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import artifact, runs, tests

_COMMAND = """\
import warnings
import pytest
from click import argument, command, echo
from click.testing import CliRunner
@command()
@argument("n", type=int)
def bench(n):
    if n > 2: raise RuntimeError("no kernel")
    assert n == 1, "the result is another one"
    echo("1 ms")
def run(*words): return CliRunner().invoke(bench, words)
def test_a():
"""
_TASKS = """\
import asyncio
from multiprocessing import get_context
import sys
import pytest
def work(x): assert x == 1
async def later(x):
    await asyncio.sleep(0)
    assert x == 1
def launched(x):
    try: work(x)
    except Exception: sys.exit(1)
def test_a():
"""
_MOCK = "from unittest.mock import Mock\ndef test_a():\n    m = Mock()\n    m(1)\n    assert m.called\n"
_UNITTESTS = """\
import unittest
class T(unittest.TestCase):
    def test_first(self): self.assertEqual(len("a"), 1)
{}{}
if __name__ == "__main__":
    unittest.main()
"""
_HOOKS_RIGHT = """\
import pytest, unittest
class Base(unittest.TestCase):
    def setUp(self): self.setup()
    def setup(self): pass
class TestA(Base):
    def setup(self): self.assertEqual(len("a"), 1)
    def test_a(self): assert len("a")
    def setup_class(self): assert len("a")
class TestB:
    def setup_method(self): assert len("a")
    @pytest.fixture
    def tear_down(self): assert len("a")
    @pytest.fixture(autouse=True)
    def teardown(self):
        yield
        assert len("a")
    def setup_data(self): assert len("a")
    def setUp(self): return "unused, and nothing is asserted"
    def test_b(self): assert len("b")
def teardown_module(): assert len("c")
"""
_PROGRAM = 'print("begin")\ndef {}():\n    {}\nif __name__ == {!r}:\n    {}\n'
_VERSION = """\
class Version:
    def __init__(self, of): self.of = of
    def __eq__(self, other):
        if not isinstance(other, Version): return NotImplemented
        return self.of == other.of
"""


def _body(head: str, body: str) -> str:
    return head + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"


def _test_lie(
    name: str, pretends: str, source: str, reason: str, honest: str, status: str = "failed", **over: Any
) -> Case:
    return lie(tests(name, status, reason, source, **over), pretends, honest=honest)


def _unittests(name: str, inside: str, status: str, reason: str = "", below: str = "") -> StageCase:
    """A program of unittests: what more stands in its class, and what below that."""
    source = _UNITTESTS.format(textwrap.indent(textwrap.dedent(inside).lstrip("\n"), "    "), textwrap.dedent(below))
    owed = {"artifacts": [artifact(f"{name}.txt", from_="stderr")]}
    return runs(name, status, reason, "python", f"{name}.py", files={f"{name}.py": source}, expect=owed)


def _lost_unittest(name: str, pretends: str, inside: str, what: str, below: str = "") -> Case:
    made = _unittests(name, inside, "skipped", f"written, but not collected .*{what}", below)
    return lie(made, pretends, honest="names_right_unittest")


def _hook_lie(name: str, pretends: str, source: str, what: str) -> Case:
    source = f"class TestK:\n    def test_k(self): assert len('a')\n{source}"
    return _test_lie(name, pretends, source, f"written, but not collected.*{what}", "hooks_right", "skipped")


def _program(name: str, status: str, reason: str, source: str) -> StageCase:
    return runs(name, status, reason, "python", f"{name}.py", files={f"{name}.py": source})


def _guard_lie(name: str, pretends: str, source: str) -> Case:
    return lie(_program(name, "invalid", f"{name}.py only defines", source), pretends, honest="guard_right")


def _bash(name: str, script: str, status: str = "passed", reason: str = "") -> StageCase:
    return runs(name, status, reason, "bash", "-c", textwrap.dedent(script).strip())


def _worded(name: str, pretends: str, script: str) -> Case:
    made = _bash(name, script, "failed", "its script only prints what that means")
    return lie(made, pretends, honest="words_and_acts")


HONEST = [
    truth(tests("commands_asked", "passed", "", _body(_COMMAND, """
        assert run("1").exit_code == 0 and "ms" in run("1").output
        assert isinstance(run("9").exception, RuntimeError)
        assert "another" in str(run("2").exception)
        run("none")  # exits, as click does where words are wrong
        failed = run("9")
        assert "ms" not in failed.output
        """)),
          "what a command raised is asked for, or what it printed; one ends with a code"),
    truth(tests("commands_meant_to_raise", "passed", "", _body(_COMMAND, """
        @command()
        def boom(): raise RuntimeError("boom")
        CliRunner().invoke(boom)
        assert boom.name == "boom"
        @command()
        def warned(): warnings.warn("twice"); bench.callback(9)
        with pytest.warns(UserWarning): CliRunner().invoke(warned)
        """)),
          "a command of the test's own always raises, to see what that leaves; a warning is what another is run for"),
    truth(tests("tasks_asked", "passed", "", _body(_TASKS, """
        async def main():
            found = await asyncio.gather(later(1), later(2), return_exceptions=True)
            assert [type(f).__name__ for f in found] == ["NoneType", "AssertionError"]
            await asyncio.gather(later(1), later(1), return_exceptions=True)
        asyncio.run(main())
        with get_context("spawn").Pool(1) as pool:
            with pytest.raises(AssertionError): list(pool.imap_unordered(work, [2]))
            assert list(pool.imap(work, [1, 1])) == [None, None]
        p = get_context("fork").Process(target=launched, args=(2,)); p.start(); p.join()
        assert p.exitcode == 1
        """)),
          "gathered coroutines, iterations over pools, a process that hands its failure on: all are asked"),
    truth(tests("mocks_asked", "passed", "", _MOCK + textwrap.indent(textwrap.dedent("""
        m.assert_called_once_with(1)
        class Log:
            def has_calls(self): return True
        spec = Mock(spec=Log)
        spec.has_calls.return_value = 3
        assert spec.has_calls() == 3
        spec.has_calls()
        assert Log().has_calls()
        """), "    ")),
          "assertions of mocks, and a method of that name of what one stands for"),
    truth(tests("compares_kinds", "passed", "", """
        from versions_of_its_own import Version
        def test_a():
            a = Version(1)
            a == 3  # must not raise
            None == a
            a != a
            assert a == Version(1)
        """, files={"versions_of_its_own.py": _VERSION}, env={"PYTHONPATH": "."}),
          "comparisons of two kinds of things, which must not raise, and come out false"),
    truth(tests("checks_refused", "passed", "", """
        import unittest, pytest
        def same(a, b): unittest.TestCase().assertEqual(a, b)
        class TestA(unittest.TestCase):
            def test_a(self):
                with self.assertRaises(AssertionError): self.assertEqual(1, 2)
                with self.assertRaises(Exception): same(1, 2)
                with self.assertRaises(Exception): self.assertEqual(int("x"), 2)
        """),
          "a check must fail, or what it is given raises"),
    truth(tests("hooks_right", "passed", "", _HOOKS_RIGHT),
          "functions around tests that pytest, a base, or a fixture's user calls; one asserts nothing"),
    truth(_unittests("names_right_unittest", """
        def setUp(self): self.setup()
        def setup(self): self.x = 1
        def teardown(self): return "unused, and nothing is asserted"
        def check_x(self): self.assertEqual(self.x, 1)
        def test_x(self): self.check_x()
        def kernel_test(self): self.check_x()
        def test_by_name(self): self.kernel_test()
        """, "passed", below="""
        class Mixin:
            def test_mixed(self): self.assertEqual(self.__class__.__name__, "Mixed")
        class Mixed(Mixin, unittest.TestCase): pass
        def test_data(n): return n
        """),
          "unittests with helpers that they call, a mixin, and functions whose names are like those of tests"),
    truth(_program("guard_right", "passed", "", _PROGRAM.format("main", "print('done')", "__main__", "main()")),
          "a program with a banner whose guard holds"),
    truth(_bash("words_and_acts", """
        got=$(echo 42); wrong=0
        [ $got = 42 ] || { echo "FAIL: $got"; wrong=1; }
        if [ "$got" != 42 ]; then echo FAILED; exit 1; fi
        [ "$got" = 41 ] || echo "not 41, as it was before"
        [ 1 = 2 ] || echo "version mismatch, going on"
        [ -d /none ] || echo "failed before"
        n=0; for i in 1 2; do if [ $i = 1 ]; then echo "attempt failed"; n=$((n + 1)); fi; done; [ $n -lt 2 ] || exit 1
        fail() { echo "FAIL $1"; exit 1; }
        [ $wrong = 0 ] || fail sum
        echo "nothing failed"
        """),
          "comparisons on whose failure something depends, beside words; questions that words answer"),
    truth(_program("forks_asked", "passed", "", """\
import os
pid = os.fork()
if pid == 0: os.abort()
_, status = os.waitpid(pid, 0)
if not os.WIFSIGNALED(status): raise SystemExit(1)
print("done")
"""),
          "a fork that dies of a signal, whose status decides"),
]  # fmt: skip

LIES = [
    _test_lie("command_dropped", "a command raises, which click keeps, and the test drops", _body(_COMMAND, """
        run("9")
        assert bench.name
        """), "a command raised RuntimeError: no kernel", "commands_asked"),
    _test_lie("command_output_only", "a check in a command fails, and only its output is looked at", _body(_COMMAND, """
        assert "Usage" not in run("2").output
        """), "a command raised AssertionError: the result is another one", "commands_asked"),
    _test_lie("gathered_and_dropped", "asyncio.gather keeps what failed, and the test drops it", _body(_TASKS, """
        async def main(): await asyncio.gather(later(1), later(2), return_exceptions=True)
        asyncio.run(main())
        assert later
        """), "raised in a coroutine that was gathered", "tasks_asked"),
    _test_lie("iteration_dropped", "what a pool computes for an iteration is never asked for", _body(_TASKS, """
        with get_context("spawn").Pool(1) as pool:
            pool.imap_unordered(work, [2]); pool.close(); pool.join()
        assert work
        """), "raised in a pool", "tasks_asked"),
    _test_lie("child_hands_it_on", "a process makes an exit code of its failed check, for which nobody asks",
              _body(_TASKS, """
        p = get_context("fork").Process(target=launched, args=(2,)); p.start(); p.join()
        assert not p.is_alive()
        """), "raised in a child process", "tasks_asked"),
    # From Python 3.12 on mocks say it themselves.
    _test_lie("mock_makes_it_up", "called_once_with of a mock, without the word assert",
              _MOCK + "    m.called_once_with(7)\n", "called_once_with.? is (no|not a valid) assertion", "mocks_asked"),
    _test_lie("mock_makes_it_up_asserted", "the same, asserted", _MOCK + "    assert m.has_calls([7])\n",
              "has_calls.? is (no|not a valid) assertion", "mocks_asked"),
    _test_lie("compared_with_a_message", "an assertion without the word, but with its message", """
        def test_a():
            a = 1
            a == 2, "a is another one"
            assert a
        """, "a comparison came out false", "compares_kinds", "skipped"),
    _test_lie("same_kind_compared", "a comparison of two of a kind that is false, and a statement of its own", """
        from versions_of_its_own import Version
        def test_a():
            a = Version(1)
            a == Version(2)
            assert a == Version(1)
        """, "a comparison came out false", "compares_kinds", "skipped",
              files={"versions_of_its_own.py": _VERSION}, env={"PYTHONPATH": "."}),
    _test_lie("comparison_expected_to_raise", "any exception is expected, and assertEqual's is one", """
        import unittest
        class TestA(unittest.TestCase):
            def test_a(self):
                with self.assertRaises(Exception): self.assertEqual(len("a"), 2)
        """, "taken for the exception that was expected", "checks_refused"),
    _hook_lie("hook_of_unittest", "setUp, in a class that is no TestCase",
              "    def setUp(self): assert 1 == 2\n", "setUp"),
    _hook_lie("hook_misspelt", "teardown_methods",
              "    def teardown_methods(self): assert 1 == 2\n", "teardown_methods"),
    _hook_lie("hook_of_module", "setup_modul", "def setup_modul(): assert 1 == 2\n", "setup_modul"),
    _lost_unittest("hook_in_unittest", "teardown, in a TestCase",
                   "def teardown(self): self.assertEqual(1, 2)", "T.teardown"),
    _lost_unittest("misspelt_unittest", "tset_, in a TestCase", "def tset_x(self): self.assertEqual(1, 2)", "T.tset_x"),
    _lost_unittest("free_unittest", "a test in no class, beside unittests", "", "test_free",
                   "def test_free(): assert 1 == 2\n"),
    _guard_lie("guard_with_banner", "a banner, and a guard that is mistyped",
               _PROGRAM.format("main", "print('done')", "__main_", "main()")),
    _guard_lie("guard_in_quotes", "\"__name__\" == \"__main__\", which never holds",
               _PROGRAM.format("main", "print('done')", "__main__", "main()").replace("__name__", '"__name__"')),
    _guard_lie("main_only_named", "main, without its brackets, below the guard",
               _PROGRAM.format("main", "print('done')", "__main__", "main")),
    _guard_lie("main_of_coroutines", "a main that is a coroutine, which is called and not run",
               _PROGRAM.format("main", "print('done')", "__main__", "main()").replace("def", "async def")),
    _worded("differs_said", "[ a = b ] || echo differs",
            'a=$(echo 1); b=$(echo 2)\n[ "$a" = "$b" ] || echo differs\necho end'),
    _worded("branch_says_failed", "an if of two values that differ, which prints FAILED",
            'a=$(echo 1); b=$(echo 2)\nif [ "$a" != "$b" ]; then echo "FAILED: $a"; fi\necho end'),
    _worded("files_differ", "cmp of two files, and words",
            'cd $TMPDIR; echo 1 > a; echo 2 > b\ncmp -s a b || echo "FAIL: outputs differ"\necho end'),
    lie(_program("fork_dies", "failed", "returned 134, and the Python that started it did not look", """\
import os
pid = os.fork()
if pid == 0: os.abort()
os.waitpid(pid, 0)
print("done")
"""), "a fork dies of a signal, and its status is dropped", honest="forks_asked"),
]  # fmt: skip
CASES = [*HONEST, *LIES]
