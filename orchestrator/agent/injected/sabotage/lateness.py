"""Whether a test failed by the time that it took: code that is made wrong may be slower too, and who looks at the clock
alone has not looked at results.
"""

from __future__ import annotations

import ast
from traceback import walk_tb

from ..source.syntax import DEFINITIONS, SETS, ids_in, parsed, targets_of, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from .times import Times

    Question = tuple[int, int, bool]  # its first and last line, and the answer with which the test fails


def is_late(error: BaseException, times: Times) -> bool:
    """Whether what failed, in the innermost frame of code of tests, is that a time was too long."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    file, line = next((place for place in reversed(frames) if place[0] in times.tests), ("", 0))
    answers = [(at, answer) for place, at, answer in times.too_long if place == file]
    module = parsed(file) if answers else None
    if module is None:
        return False
    asked = _asked(module, line)
    return any(begin <= at <= end and answer == fails for begin, end, fails in asked for at, answer in answers)


def _asked(module: ast.Module, line: int) -> Iterator[Question]:
    """What decides whether the test fails in this line: what is asserted, the branches around it, and what the names
    in these were set to.
    """
    around = [node for node in walked(module) if isinstance(node, ast.stmt) and _holds(node, line)]
    function = next((node for node in reversed(around) if isinstance(node, DEFINITIONS)), module)
    for node in around:
        fails = isinstance(node, ast.If) and any(_holds(inner, line) for inner in node.body)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and (fails or not _holds(node.test, line))):
            yield _question(node.test, fails=fails)
            names = ids_in(node.test)
            sets: list[Any] = [n for n in walked(function) if isinstance(n, SETS)]
            named = (n.value for n in sets if n.value and not names.isdisjoint(ids_in(*targets_of(n))))
            yield from (_question(value, fails=fails != _turns(node.test)) for value in named)
        elif isinstance(node, ast.Expr):  # a call of what compares: it may ask either way
            yield from (_question(node.value, fails=fails) for fails in (False, True))


def _question(test: ast.expr, *, fails: bool) -> Question:
    return test.lineno, test.end_lineno or test.lineno, fails != _turns(test)


def _turns(test: ast.expr) -> bool:
    return any(isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) for node in walked(test))


def _holds(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= (node.end_lineno or node.lineno))
