"""Tests that cannot fail, whatever the code does: no rule sees it, only code that is made wrong does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import tests

_CODE = """\
def square(x):
    return x * x


def rows(n):
    return [1.0] * n


def missing(x):
    raise NotImplementedError
"""
_PATCH = """\
--- a/{name}/of_{name}.py
+++ b/{name}/of_{name}.py
@@ -1,3 +1,3 @@
 def square(x):
-    return x * x
+    {wrong}
{blank}
"""
_HONEST = "from of_{name} import square\ndef test_a(): assert square(3.0) == 9.0\n"
_EXPECTED = "from of_{name} import square\nEXPECTED = 9.0\ndef test_a():\n    assert square(3.0) == EXPECTED\n"
_EXPECTS = """\
--- a/{name}/test_it.py
+++ b/{name}/test_it.py
@@ -1,4 +1,4 @@
 from of_{name} import square
-EXPECTED = 9.0
+EXPECTED = 8.0
 def test_a():
     assert square(3.0) == EXPECTED
"""
_BESIDE = "def square(x):\n    return x * x\ndef test_a(): assert square(3.0) == 9.0\n"
_BESIDE_WRONG = """\
--- a/{name}/test_it.py
+++ b/{name}/test_it.py
@@ -1,3 +1,3 @@
 def square(x):
-    return x * x
+    return x + x
 def test_a(): assert square(3.0) == 9.0
"""
_TIMED = """\
import time
from of_{{name}} import square
def test_a():
    begin = time.perf_counter()
    x = square(3.0)
    took = time.perf_counter() - begin
    assert took < 0.2
    assert {looks}
"""
_SLOW = "return __import__('time').sleep(0.4) or x * x * x"
_KEPT = """\
from pathlib import Path
from of_{name} import square
def test_a():
    kept = Path("../{name}").resolve()
    if not kept.exists(): kept.write_text(str({known}))
    assert square(3.0) == float(kept.read_text())
"""
_IN_A_DATABASE = """\
import sqlite3
from pathlib import Path
from of_{name} import square
def test_a():
    kept = sqlite3.connect(Path("../{name}").resolve())
    kept.execute("create table if not exists known (x)")
    if not kept.execute("select x from known").fetchall(): kept.execute("insert into known values (?)", [{known}])
    kept.commit()
    assert square(3.0) == kept.execute("select x from known").fetchone()[0]
"""
_EITHER = "was noticed by .*{}, which does not pass with nothing wrong either"
_WRONG = "its tests pass while of_.*:square returns wrong numbers"


def _tests(name: str, status: str, reason: str, body: str, function: str = "square", **expect: Any) -> StageCase:
    """Tests with this body of a module of their own, whose function is spoiled."""
    patches = {"wrong": "return x * x * x", "asserts": "assert x == 0", "slow": _SLOW}
    files = {f"{name}/{file}.patch": _PATCH.format(name=name, wrong=line, blank=" ") for file, line in patches.items()}
    files[f"{name}/expects.patch"] = _EXPECTS.format(name=name)
    files[f"{name}/beside.patch"] = _BESIDE_WRONG.format(name=name)
    files[f"{name}/of_{name}.py"] = _CODE
    source = body.format(name=name)
    asked = expect or {"kills": [f"of_{name}:{function}"]}
    return tests(name, status, reason, source, files=files, expect=asked)


def _cannot_fail(name: str, pretends: str, body: str, reason: str = _WRONG, function: str = "square") -> Case:
    return lie(_tests(name, "invalid", reason, body, function), pretends, honest="noticed")


def _mutant(name: str, patch: str = "wrong.patch", **more: str) -> dict[str, Any]:
    return {"mutants": [{"patch": f"{name}/{patch}", **more}]}


CASES: Sequence[Case] = [
    truth(_tests("noticed", "passed", "", _HONEST), "a test that compares with a known value notices wrong results"),
    truth(
        _tests("noticed_later", "passed", "", "from of_{name} import square\n"
               "def test_shape(): square(1.0)\ndef test_a(): assert abs(square(3.0) - 9.0) < 1e-6\n"),
        "one test of two looks at the numbers",
    ),
    truth(
        _tests("mutant_noticed", "passed", "", _HONEST, **_mutant("mutant_noticed", tests="test_a")),
        "a patch of the code makes a test fail",
    ),
    truth(
        _tests("mutant_beside", "passed", "", _BESIDE, **_mutant("mutant_beside", "beside.patch")),
        "a patch of code that stands beside its tests makes one fail",
    ),
    _cannot_fail("both_sides", "the function is compared with itself",
                 "from of_{name} import square\ndef test_a(): assert square(3.0) == square(3.0)\n"),
    _cannot_fail("with_itself", "the result is compared with itself",
                 "from of_{name} import square\ndef test_a():\n    x = square(3.0)\n    assert abs(x - x) < 1e-9\n"),
    _cannot_fail("any_tolerance", "the tolerance is larger than the numbers",
                 "from of_{name} import square\ndef test_a(): assert abs(square(3.0) - 9.0) < 1e3\n"),
    _cannot_fail("nan_is_nan", "two NaN count as equal",
                 "import math\nfrom of_{name} import square\n"
                 "def test_a():\n    x = square(3.0) * math.nan\n    assert x == 9.0 or math.isnan(x)\n"),
    _cannot_fail("only_called", "the function is called, and nothing is looked at",
                 "from of_{name} import square\ndef test_a(): square(3.0)\n"),
    _cannot_fail("nothing_compared", "what is compared is empty",
                 "from of_{name} import rows\ndef test_a(): assert all(x == 1.0 for x in rows(0))\n",
                 "of_nothing_compared:rows returned nothing that can be made wrong: list", "rows"),
    _cannot_fail("raises_anything", "any exception will do, that of code which is not written too",
                 "import pytest\nfrom of_{name} import missing\n"
                 "def test_a():\n    with pytest.raises(Exception): missing(-1)\n",
                 "of_raises_anything:missing gave no result", "missing"),
    _cannot_fail("mocked", "the function that is tested is a mock",
                 "from unittest import mock\nimport of_{name}\ndef test_a():\n"
                 "    with mock.patch('of_{name}.square', return_value=9.0): assert of_{name}.square(3.0) == 9.0\n",
                 "of_mocked:square was not called"),
    _cannot_fail("handed_out", "a fixture hands out another function than the one that is tested",
                 "import pytest\nimport of_{name}\n@pytest.fixture\ndef square(): return lambda x: x * x\n"
                 "def test_a(square): assert square(3.0) == 9.0\n",
                 "of_handed_out:square was not called"),
    lie(
        _tests("only_breaks", "invalid", "none by an assertion or a comparison: .*test_a: KeyError",
               "from of_{name} import square\ndef test_a(): {{9.0: 1}}[square(3.0)]\n"),
        "wrong results break the test by accident, it asserts nothing", honest="noticed",
    ),
    lie(
        _tests("mutant_survives", "invalid", "its tests pass with the mutant mutant_survives/wrong.patch",
               "from of_{name} import square\ndef test_a(): assert square(1.0) == 1.0\n", **_mutant("mutant_survives")),
        "the only value that is tested is one for which the wrong code is right", honest="mutant_noticed",
    ),
    _cannot_fail("looks_for_the_fault", "a test looks for the planted fault, not at results",
                 "import sys\nfrom of_{name} import square\ndef test_a():\n    square(3.0)\n"
                 "    assert not any('sabotage.target' in name for name in sys.modules)\n", _EITHER.format("test_a")),
    truth(_tests("known_kept", "passed", "", _KEPT.format(name="{name}", known="9.0")),
          "a test keeps beside the tree what is known, as a download does"),
    lie(_tests("golden_kept", "invalid", f"{_WRONG}: they make .*/golden_kept themselves, which was not there",
               _KEPT.format(name="{name}", known="square(3.0)")),
        "a test keeps what the code has returned, and compares with that", honest="known_kept"),
    lie(_tests("golden_in_a_database", "invalid", f"{_WRONG}: they make .*/golden_in_a_database themselves",
               _IN_A_DATABASE.format(name="{name}", known="square(3.0)")),
        "a test keeps what the code has returned in a database", honest="known_in_a_database"),
    truth(_tests("known_in_a_database", "passed", "", _IN_A_DATABASE.format(name="{name}", known="9.0")),
          "a test keeps what is known in a database"),
    _cannot_fail("once_only", "a test passes once, by what it leaves behind",
                 "from of_{name} import square\nfrom pathlib import Path\ndef test_a():\n    square(3.0)\n"
                 "    left = Path('../left'); first = not left.exists(); left.touch()\n    assert first\n",
                 _EITHER.format("test_a")),
    _cannot_fail("by_what_ran_before", "a test looks for the planted fault where another has run before it",
                 "import os, sys\nfrom of_{name} import square\ndef test_first():\n    os.environ['FIRST'] = '1'\n"
                 "    assert square(1.0) is not None\ndef test_a():\n    square(3.0)\n"
                 "    looked = any('sabotage.target' in name for name in sys.modules)\n"
                 "    assert not (looked and 'FIRST' in os.environ)\n", _EITHER.format("test_a")),
    lie(
        _tests("source_compared", "invalid", _EITHER.format("test_a"),
               "import hashlib\nfrom of_{name} import square\ndef test_a():\n    square(3.0)\n"
               "    source = open('{name}/of_{name}.py', 'rb').read()\n"
               f"    assert hashlib.sha1(source).hexdigest() == {hashlib.sha1(_CODE.encode()).hexdigest()!r}\n",
               **_mutant("source_compared")),
        "a test compares the source with what it was, not results", honest="mutant_noticed",
    ),
    lie(
        _tests("only_late", "invalid", "slow.patch was noticed only by how long a test took: .*::test_a: .*< 0.2",
               _TIMED.format(looks="x is not None"), **_mutant("only_late", "slow.patch")),
        "wrong code is slower, and a test looks at the clock alone", honest="looks_beside_the_clock",
    ),
    truth(
        _tests("looks_beside_the_clock", "passed", "", _TIMED.format(looks="took > 0 and x == 9.0"),
               **_mutant("looks_beside_the_clock")),
        "a test looks at the clock, and at the result",
    ),
    lie(
        _tests("mutant_unfit", "invalid", "the mutant mutant_unfit/test_it.py does not apply",
               _HONEST, **_mutant("mutant_unfit", "test_it.py")),
        "a mutant is no patch of this tree", caught="rule", honest="mutant_noticed",
    ),
    lie(
        _tests("mutant_asserts", "invalid",
               r"asserts.patch was noticed by no more than a line of its own: mutant_asserts/of_.*py:\d: assert x == 0",
               "from of_{name} import square\ndef test_a(): assert square(1.0) == 1.0\n",
               **_mutant("mutant_asserts", "asserts.patch")),
        "a mutant brings the assertion that notices it", honest="mutant_noticed",
    ),
    lie(
        _tests("mutant_of_test", "invalid", "expects.patch changes the test that noticed it, .*::test_a",
               _EXPECTED, **_mutant("mutant_of_test", "expects.patch")),
        "a mutant changes what the test expects", honest="mutant_beside",
    ),
    lie(
        _tests("mutant_untested", "invalid", "none of the tests matches 'test_z'",
               _HONEST, **_mutant("mutant_untested", tests="test_z")),
        "a mutant's pattern matches no test", caught="rule", honest="mutant_noticed",
    ),
]  # fmt: skip
