"""How a fuzz test is run: a few examples always, many in the slow suite; and what may come out of one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from orchestrator.cli import main
from orchestrator.errors import NsaPodError

_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
# No example may take longer, on however busy a machine.
_NO_HANG = timedelta(seconds=20)


def amounts(few: int, many: int) -> Any:
    """Parametrizes a test by its number of examples."""
    return pytest.mark.parametrize(
        "amount", [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.slow)]
    )


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


@dataclass(frozen=True)
class Said:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def command(*arguments: str) -> Said:
    """The command line in this process; it ends by one of the documented codes, never by another exception."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    code = ended.value.code
    assert code in (0, 1, 2, 3, 4), (code, texts)
    if "error:" in texts[1]:
        for line in texts[1].strip().split("\n"):
            _check_sentence(line)
    return Said(int(code), *texts)


def _check_sentence(text: str) -> None:
    assert text.strip() and "Traceback (most" not in text
    assert text.isprintable(), ascii(text)
    assert len(text) < 3000, ascii(text[:200])
