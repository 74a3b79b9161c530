"""Comparisons of a library that fail in a program are told, with where they were called; the error goes on its way."""

from __future__ import annotations

from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from orchestrator.agent.injected.checks.comparisons import Comparisons, why_vacuous
from orchestrator.agent.injected.checks.records import Checks
from orchestrator.agent.injected.processes.ends import End
from orchestrator.agent.injected.processes.inner import Inner
from orchestrator.agent.injected.stage import Config, Notes

pytestmark = pytest.mark.unit


class Dropping:
    """What `Children` says of a frame: all are the tree's."""

    def __init__(self, *, drops: bool) -> None:
        self._drops = drops

    def drops(self, frame: FrameType, kind: type) -> bool:
        return self._drops and issubclass(AssertionError, kind)


def assert_array_less(left: float, right: float) -> None:
    assert left < right, "not less"


@pytest.mark.parametrize("drops", [True, False])
def test_one_that_fails_is_told_where_nothing_depends_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drops: bool
) -> None:
    notes = Notes(str(tmp_path / "notes"))
    config = Config(f"tree={tmp_path}\nreport={tmp_path}/notes\n")
    checks = Checks(config, notes)
    children: Any = Dropping(drops=drops)
    checks.comparing = Inner(str(tmp_path), notes, children, End(config, notes)).comparison_fails
    monkeypatch.setattr("orchestrator.agent.injected.processes.inner.runs_pytest", lambda: False)
    monkeypatch.setattr("orchestrator.agent.injected.processes.inner.is_in_test", lambda frame: False)
    module: Any = SimpleNamespace(__name__="numpy.testing", assert_array_less=assert_array_less)
    Comparisons(checks).after_import["numpy.testing"](module)
    module.assert_array_less(1, 2)
    with pytest.raises(AssertionError, match="not less"):
        module.assert_array_less(2, 1)
    said = (tmp_path / "notes").read_text()
    assert ('"child": "assert_array_less()"' in said) is drops
    assert not drops or (f'"file": "{__file__}"' in said and said.count("\n") == 1)


@pytest.mark.parametrize(
    ("operands", "is_vacuous"),
    [
        (([None, None], [None, None]), True),
        (({}, {}), True),
        (([1.0, None], [1.0, None]), False),
        ((0, 0), False),
        (((), [[]]), True),
    ],
)
def test_what_holds_nothing_is_no_comparison(tmp_path: Path, operands: tuple[Any, ...], is_vacuous: bool) -> None:
    checks = Checks(Config(f"tree={tmp_path}\nreport={tmp_path}/notes\n"), Notes(str(tmp_path / "notes")))
    module: Any = SimpleNamespace(__name__="torch.testing", assert_close=lambda *sides, **options: None)
    Comparisons(checks).after_import["torch.testing"](module)
    module.assert_close(*operands)
    module.assert_close(actual=1.0, expected=1.0)
    assert bool(checks.now.vacuous) is is_vacuous


_SINGLE = np.linspace(1, 2, 9, dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "is_vacuous"),
    [
        ("assert_array_max_ulp(x * 1.5, x, 2**31)", True),
        ("assert_array_max_ulp(x.copy(), x, maxulp=4)", False),
        ("assert_array_max_ulp(x.copy(), x)", False),
        ("assert_array_almost_equal_nulp(x * 1.5, x, nulp=2**24)", True),
        ("assert_array_almost_equal_nulp(x.copy(), x, 4)", False),
        ("assert_approx_equal(6.0, 5.0, significant=0)", True),
        ("assert_approx_equal(actual=1.001, desired=1.0, significant=1)", False),
        ("assert_approx_equal(0.0, 0.0)", False),
    ],
)
def test_a_tolerance_in_another_form(tmp_path: Path, call: str, is_vacuous: bool) -> None:
    checks = Checks(Config(f"tree={tmp_path}\nreport={tmp_path}/notes\n"), Notes(str(tmp_path / "notes")))
    module: Any = SimpleNamespace(**vars(np.testing))
    Comparisons(checks).after_import["numpy.testing"](module)
    exec(f"module.{call}", {"module": module, "x": _SINGLE})
    assert bool(checks.now.vacuous) is is_vacuous


def test_what_is_on_no_device_has_no_values() -> None:
    made = [SimpleNamespace(shape=(3,), is_meta=True) for _ in range(2)]
    assert "hold no values" in str(why_vacuous(*made))
