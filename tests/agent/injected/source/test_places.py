"""Where an instruction stands in the text: in all of Python's versions the same."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from orchestrator.agent.injected.source import places

pytestmark = pytest.mark.unit

TEXTS = [
    "x = here()",
    "x = a.b(1).c(here(), 2)",
    "a.b(1); here(); a.b(2)",
    "while not here(): pass",
    "if a.b(1) and here() and a.b(2): pass",
    "f = lambda: here(); g = lambda: a.b(3)\nf()",
    "x = [a.b(n) + here() for n in (1, 2) if n]",
    "class C:\n    @a.b\n    def f(self): return here()\nC().f()",
    "try:\n    a.b(1)\nfinally:\n    here()",
    "def f():\n    for n in (1, 2):\n        if n: continue\n        return\n    return here()\nf()",
    "x = (a\n  .b(1)\n  .c(2, here(), 3))",
    "assert here() or a, f'{a.b(1)}'",
    "def f(n=here()): pass",
    "with a as b: x = {**here()}",
]


class _Any:
    """Gives itself whatever is asked of it."""

    def __getattr__(self, name: str) -> _Any:
        return self

    def __call__(self, *args: object) -> _Any:
        return args[0] if args and callable(args[0]) else self  # type: ignore[return-value]

    def __add__(self, other: object) -> _Any:
        return self

    def __enter__(self) -> _Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def keys(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_the_call_is_found(text: str, marked: bool, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(text)
    module = ast.parse(text)
    expected = next(n for n in ast.walk(module) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "here")
    if marked:  # as by what looks on
        module.body.insert(0, ast.copy_location(ast.parse("a.b(0)").body[0], module.body[0]))
        ast.fix_missing_locations(module)
    found: list[places.Place | None] = []

    def here() -> _Any:
        found.append(places.place_of(sys._getframe(1)))
        return _Any()

    code = places.compiled(module, str(file)) if marked else compile(text, str(file), "exec", dont_inherit=True)
    exec(code, {"here": here, "a": _Any(), "__name__": "m"})
    place = (expected.lineno, expected.col_offset, expected.end_lineno, expected.end_col_offset)
    assert set(found) == {place}
