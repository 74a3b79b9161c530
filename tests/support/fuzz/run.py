"""How a fuzz test is run: a few examples always, many in the slow suite; and what may come out of one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from orchestrator.errors import NsaPodError
from tests.support import in_process
from tests.support.in_process import Said

_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
# No example may take longer, on however busy a machine.
_NO_HANG = timedelta(seconds=20)


def amounts(few: int, many: int) -> Any:
    """Parametrizes a test by its number of examples. Of many each has `fuzz`'s deadline; all together take long."""
    marks = (pytest.mark.slow, pytest.mark.timeout(3600))
    return pytest.mark.parametrize("amount", [pytest.param(few, id="few"), pytest.param(many, id="many", marks=marks)])


def fuzz(amount: int, body: Callable[[Any], None], strategy: st.SearchStrategy[Any]) -> None:
    """Run `body` on `amount` examples: the same ones each time if they are few, new ones if they are many."""
    configured = settings(
        max_examples=amount,
        deadline=_NO_HANG,
        derandomize=amount < 1000,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=_CHECKS,
    )
    configured(given(strategy)(lambda example: body(example)))()


def sentence_or(body: Callable[[], Any]) -> Any:
    """What `body` returns, or the sentence of the project's error that it raises; anything else escapes."""
    try:
        return body()
    except NsaPodError as e:
        _check_sentence(str(e))
        return e


def command(*arguments: str) -> Said:
    """A command ends by one of the documented codes, and says in sentences what failed."""
    said = in_process.command(*arguments)
    assert said.code in (0, 1, 2, 3, 4), said
    if "error:" in said.err:
        for line in said.err.strip().split("\n"):
            _check_sentence(line)
    return said


def _check_sentence(text: str) -> None:
    assert text.strip() and "Traceback (most" not in text
    assert text.isprintable(), ascii(text)
    assert len(text) < 3000, ascii(text[:200])
