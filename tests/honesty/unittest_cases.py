"""Unittests and doctests that run outside pytest: what of them ran, and what was left out."""

from __future__ import annotations

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import artifact, runs

_PROGRAM = """
import sys, unittest
from unittest import mock
class T(unittest.TestCase):
    def test_first(self): self.assertEqual(1, 1)
{}
if __name__ == "__main__":
    unittest.main({})
"""
_HONEST = """
    @mock.patch("os.getcwd")
    def test_patched(self, getcwd): self.assertIsNot(getcwd(), None)
    def test_by_helper(self): self.is_one(1)
    def is_one(self, x): self.assertEqual(x, 1)
    def test_of_module(self): is_one(self, 1)
    def test_parts(self):
        for i in range(3):
            with self.subTest(i=i): self.assertLess(i, 3)
    def test_smoke(self): len("a")
    if sys.platform == "win32":
        def test_system(self): self.fail()
    else:
        def test_system(self): self.assertTrue(sys.platform)
    @unittest.skip("slow")
    def test_slow(self): self.fail()
def is_one(test, x): test.assertEqual(x, 1)
class Base(unittest.TestCase):
    def test_inherited(self): self.assertEqual(self.x, 1)
class A(Base):
    x = 1
del Base
class Later(unittest.IsolatedAsyncioTestCase):
    async def test_later(self): self.assertEqual(1, 1)
def each(n):
    def test(self): self.assertEqual(n, n + 0)
    return test
class Generated(unittest.TestCase): pass
for n in range(2): setattr(Generated, f"test_{n}", each(n))
"""
_NAMED = "class U(unittest.TestCase):\n    def test_other(self): self.fail()"
_FAILS = "    def test_it(self): self.assertEqual(1, 2)"
_LOADS = "def load_tests(loader, tests, pattern): return unittest.TestSuite([T('test_first')])"
_DOCTEST = '"""Of {}\n\n{}"""\nimport doctest\ndoctest.testmod()\nprint("done")\n'
_SKIPPED = ">>> 1 + 1  # doctest: +SKIP\n3\n"


def _lie(name: str, status: str, reason: str, pretends: str, body: str, arguments: str = "") -> Case:
    """A program of unittests, the first of which passes."""
    files = {f"{name}.py": _PROGRAM.format(body, arguments)}
    owed = {"artifacts": [artifact(f"{name}.txt", from_="stderr")]}
    return lie(runs(name, status, reason, "python", f"{name}.py", files=files, expect=owed), pretends,
               honest="unittest_program")  # fmt: skip


CASES = [
    truth(runs("unittest_program", "passed", "", "python", "unittest_program.py",
               files={"unittest_program.py": _PROGRAM.format(_HONEST, "")},
               expect={"artifacts": [artifact("unittest_program.txt", from_="stderr")],
                       "tests": {"allow_skips": ["slow"]}}),
          "patched, inherited, generated and asynchronous unittests, one for another system, one that is skipped"),
    truth(runs("unittest_named", "passed", "", "python", "-m", "unittest", "unittest_named.T.test_first",
               files={"unittest_named.py": _PROGRAM.format(_NAMED, "")},
               expect={"artifacts": [artifact("unittest_named.txt", from_="stderr")]}),
          "one unittest of a file is named on the command line"),
    truth(runs("examples_some", "passed", "", "python", "examples_some.py",
               files={"examples_some.py": _DOCTEST.format("it", ">>> 1 + 1\n2\n")}), "a program runs its examples"),
    _lie("unittest_default", "skipped", "not collected .*T.test_it", "unittest.main is given one test of two", _FAILS,
         "defaultTest='T.test_first'"),
    _lie("unittest_argv", "skipped", "not collected .*T.test_it", "unittest.main is given arguments of its own",
         _FAILS, "argv=['x', '-k', 'first']"),
    _lie("unittest_loads", "skipped", "not collected .*T.test_it", "load_tests loads one test of two",
         f"{_FAILS}\n{_LOADS}"),
    _lie("unittest_shadowed", "skipped", "not collected .*T.test_it .line", "a second unittest of the same name",
         f"{_FAILS}\n    def test_it(self): self.assertEqual(1, 1)"),
    _lie("unittest_guarded", "skipped", "no assertion of it ran", "the assertion of a unittest is behind a guard",
         "    def test_it(self):\n        if sys.platform == 'none': self.assertEqual(1, 2)"),
    _lie("unittest_over_nothing", "skipped", "no assertion of it ran", "the subtests of nothing",
         "    def test_it(self):\n        for i in []:\n            with self.subTest(i=i): self.assertEqual(1, 2)"),
    _lie("unittest_caught", "failed", "caught and dropped", "a unittest drops its failed assertion",
         "    def test_it(self):\n        try: self.assertEqual(1, 2)\n        except AssertionError: pass"),
    _lie("unittest_redefined", "skipped", "checks nothing", "a class redefines assertEqual",
         f"    def assertEqual(self, a, b): pass\n{_FAILS}"),
    _lie("unittest_coroutine", "failed", "returned a coroutine, which nobody ran", "a coroutine in a plain TestCase",
         "    async def test_it(self): self.assertEqual(1, 2)"),
    _lie("unittest_generator", "failed", "returned a generator, which nobody ran", "a generator",
         "    def test_it(self):\n        yield\n        self.assertEqual(1, 2)"),
    _lie("unittest_returned", "failed", "returned, not asserted", "a unittest returns its comparison",
         "    def test_it(self): return 1 == 2"),
    lie(runs("unittest_variables_lost", "invalid", "unittest ran without the stage's environment variables",
             "env", "-i", "{python}", "-m", "unittest", "unittest_variables_lost.T.test_first", env={"USE_KERNEL": "1"},
             files={"unittest_variables_lost.py": _PROGRAM.format(_NAMED, "")},
             expect={"artifacts": [artifact("unittest_variables_lost.txt", from_="stderr")]}),
        "unittests pass without the variables that the stage is for", honest="unittest_named"),
    lie(runs("examples_all_skipped", "skipped", "all examples .* are skipped", "python", "examples_all_skipped.py",
             files={"examples_all_skipped.py": _DOCTEST.format("it", _SKIPPED)}),
        "a program whose examples are all skipped", honest="examples_some"),
    lie(runs("examples_none_run", "skipped", "all examples of examples_none_run are skipped", "python", "-m",
             "doctest", "-v", "examples_none_run.py", files={"examples_none_run.py": f'"""Of it.\n\n{_SKIPPED}"""\n'}),
        "doctest, as a program, of a file whose examples are all skipped", honest="examples_tested"),
]  # fmt: skip
