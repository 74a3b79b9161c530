"""How much a test compared, and how closely, by whatever it was compared."""

from __future__ import annotations

import ast
import builtins
import textwrap
import unittest.case
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import _pytest.approx
import numpy as np
import numpy.testing
import pytest

from orchestrator.agent.injected.checks.compared import Compared
from orchestrator.agent.injected.checks.comparisons import Comparisons
from orchestrator.agent.injected.checks.records import Checks
from orchestrator.agent.injected.marks import assertions
from orchestrator.agent.injected.marks import nodes as mark_nodes
from orchestrator.agent.injected.stage import Config, Notes

pytestmark = pytest.mark.unit

FILE = "/tree/test_it.py"
HEAD = """
import math
import unittest
import numpy as np
import pytest
TOL = 1e-3
MOST = 9
def one(): return np.ones((4, 8))
def two(): return np.ones((4, 8)) + 1e-7
def worst(a, b): return abs(a - b).max()
class T(unittest.TestCase): pass
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """What is told of a test with this body."""
    checks = Checks(Config("tree=/tree\n"), Notes(str(tmp_path / "observed.jsonl")))
    for name in (mark_nodes.ISINSTANCE, mark_nodes.SEEN):
        monkeypatch.setattr(builtins, name, None, raising=False)
    approx = _pytest.approx
    kinds = [getattr(approx, name) for name in ("ApproxScalar", "ApproxNumpy", "ApproxSequenceLike", "ApproxMapping")]
    for kind in kinds:
        monkeypatch.setattr(kind, "__eq__", kind.__eq__)
    for name in ("assertAlmostEqual", "assertTrue"):
        monkeypatch.setattr(unittest.case.TestCase, name, getattr(unittest.case.TestCase, name))
    names = ("assert_allclose", "assert_array_equal", "assert_array_almost_equal", "assert_equal")
    for name in (*names, "assert_almost_equal", "assert_array_less"):
        monkeypatch.setattr(numpy.testing, name, getattr(numpy.testing, name))
    checks.start()
    seen = Comparisons(checks).after_import
    for module in (numpy.testing, unittest.case, approx):
        seen[module.__name__](module)

    def run(body: str) -> dict[str, Any]:
        text = f"{HEAD}def test(n=0.5):\n{textwrap.indent(body, '    ')}\n"
        module = ast.parse(text)
        checks.facts[FILE] = assertions.mark(module, text.encode(), FILE)
        names: dict[str, Any] = {"__name__": "test_it"}
        exec(compile(module, FILE, "exec"), names)
        checks.begin("t")
        names["test"]()
        return checks.now.compared.told()

    return run


@pytest.mark.parametrize(
    ("body", "compared"),
    [
        ("np.testing.assert_allclose(one(), two(), rtol=1e-3)", [[1e-3, 32]]),
        ("np.testing.assert_allclose(actual=one(), desired=two(), rtol=1e-3)", [[1e-3, 32]]),
        ("np.testing.assert_allclose(one().mean(), two().mean(), 1e-3)", [[1e-3, 1]]),
        ("np.testing.assert_allclose(one(), 1, 1e-3)", [[1e-3, 32]]),
        ("for a, b in zip(one(), two()): np.testing.assert_allclose(a, b, 0, 1e-3)", [[1e-3, 32]]),
        ("np.testing.assert_array_equal(one(), one())", [[0, 32]]),
        ("np.testing.assert_array_almost_equal(one(), two(), 3)", [[1e-3, 32]]),
        ("assert np.allclose(one(), two())", [[1e-5, 32]]),
        ("a, b = one(), two()\nassert np.allclose(a, b, 1e-3)", [[1e-3, 32]]),
        ("assert np.array_equal(one(), one())", [[0, 32]]),
        ("same = np.allclose(one(), two(), rtol=1e-3)\nassert same", [[1e-3, 32]]),
        ("if not np.allclose(one(), two(), rtol=1e-3): raise AssertionError", [[1e-3, 32]]),
        ("assert abs(one() - two()).max() < 1e-3", [[1e-3, 32]]),
        ("assert not abs(one() - two()).max() > 1e-3", [[1e-3, 32]]),
        ("if abs(one() - two()).max() > 1e-3: pytest.fail('no')", [[1e-3, 32]]),
        ("assert (abs(one() - two()) < 1e-3).all()", [[1e-3, 32]]),
        ("assert abs(one() - two()).mean() < 1e-3", [[1e-3, 1]]),
        ("a, b = one(), two()\nassert np.abs(a - b).max() < TOL", [[1e-3, 32]]),
        ("a, b = one(), two()\nerr = np.abs(a - b).max().item()\nassert err < TOL", [[1e-3, 32]]),
        ("a, b = one(), two()\nerr = np.abs(a - b).mean()\nassert err < TOL", [[1e-3, 1]]),
        ("err = np.abs(one() - two()).max()\nassert err < TOL", [[1e-3, 32]]),
        ("assert abs(one() - two()).max() < TOL * 2", [[2e-3, 32]]),
        ("scale = one().max()\nassert abs(one() - two()).max() < TOL * scale", [[None, 32]]),
        ("assert len(one()) < MOST", []),
        ("assert worst(one(), two()) < TOL", [[1e-3, None]]),
        ("assert worst(one(), two()) < n", [[0.5, None]]),
        ("assert all(abs(x - y) < 1e-3 for x, y in zip([1.0], [1.0]))", [[1e-3, None]]),
        ("assert all(abs(x - 1) < T for x, T in zip([1.0], [1e-3]))", [[None, None]]),
        ("assert one().tolist() == one().tolist()", [[0, None]]),
        ("assert np.allclose(one(), two()) and one().any()", [[None, None]]),
        ("assert math.isclose(1.0, 1.0000001, rel_tol=1e-3)", [[1e-3, 1]]),
        ("assert 1.0 == pytest.approx(1.0, rel=1e-3)", [[1e-3, 1]]),
        ("assert one() == pytest.approx(two(), abs=1e-3)", [[1e-3, 32]]),
        ("assert [1.0, 2.0] == pytest.approx([1.0, 2.0], rel=1e-3)", [[1e-3, 2]]),
        ("T().assertAlmostEqual(1.0, 1.00001, places=3)", [[1e-3, 1]]),
        ("T().assertAlmostEqual(1.0, 1.1, delta=0.5)", [[0.5, 1]]),
        # What compares no values, or is no limit.
        ("assert one().shape == two().shape", []),
        ("assert len(one()) == 4", []),
        ("assert one().max() > 0.5", []),
        ("before, after = one().max(), 0.5\nassert after < before", []),
        ("assert one().any()", []),
    ],
)
def test_it_is_told(told: Callable[[str], dict[str, Any]], body: str, compared: list[list[float]]) -> None:
    found = told(body).get("compared", [])
    assert [elements for _, elements in found] == [elements for _, elements in compared]
    tolerances = ([-1 if tolerance is None else tolerance for tolerance, _ in pairs] for pairs in (found, compared))
    assert next(tolerances) == pytest.approx(next(tolerances), rel=0.02)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 1.6e-2), ("float32", 1.3e-6), ("int64", 0.0)])
def test_torch_allows_by_type_what_nobody_has_said(dtype: str, tolerance: float) -> None:
    compared, tensor = Compared(), SimpleNamespace(dtype=f"torch.{dtype}", shape=(2, 3))
    compared.call("assert_close", {"out": tensor}, {"out": tensor})
    dtypes = {"dtypes": [dtype]} if "float" in dtype else {}
    assert compared.told() == {"compared": [[tolerance, 6.0]], **dtypes}


def test_a_test_of_many_tolerances_tells_of_a_few() -> None:
    compared = Compared()
    for n in range(1000):
        compared.add(1 / (n + 1), 2.0, "")
    pairs: Any = compared.told()["compared"]
    assert len(pairs) == 8 and sum(elements for _, elements in pairs) == 2000


def test_what_cannot_be_measured_is_not_known() -> None:
    compared = Compared()
    compared.call("allclose", np.ones(3))
    assert compared.told() == {"compared": [[None, None]]}
