"""Returns before an assertion that are the check: `if greatest_error <= 1e-6: return`, `assert mean_error < 0.01`."""

from __future__ import annotations

import ast

from ..source.statements import limited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

    from .callees import Callees


class WaysOut:
    """Of one function: what it returns for, which is that one measure of two things is small enough, before it asserts
    another measure of the same two.
    """

    def __init__(self, callees: Callees) -> None:
        self._callees = callees
        self._found: list[tuple[ast.If, frozenset[str]]] = []

    def note(self, node: ast.If, is_limit: Callable[[ast.expr], bool]) -> None:
        """Where it is one; `is_limit` says of what stands for a limit whether it may be none but a small one."""
        is_return = len(node.body) == 1 and isinstance(node.body[0], ast.Return) and not node.orelse
        asked = limited(node.test) if is_return else None
        names = self._names(node.test) if asked is not None and is_limit(asked[1]) else frozenset()
        if len(names) > 1:  # one alone may be anything: how many cards there are
            self._found.append((node, names))

    def before(self, test: ast.expr) -> Iterator[ast.If]:
        """Those before the assertion of `test`."""
        names = self._names(test) if self._found else frozenset()
        return (node for node, of in self._found if of == names)

    def _names(self, test: ast.expr) -> frozenset[str]:
        """Of the things that are measured where a measure of them must be small."""
        asked = limited(test)
        return self._callees.measured_names(asked[0]) if asked is not None else frozenset()
