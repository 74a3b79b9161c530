"""Expressions that cannot be false, whatever the program does: an assertion of one checks nothing.

Told from the source alone, by what each kind of expression can be at all; what is not known here may be false.
"""

from __future__ import annotations

import ast
import operator

from ..source.statements import measured
from ..source.syntax import called, walked
from .kinds import COMPARISONS, NOTHING, TEXTS, Kinds, is_dimension

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from .kinds import Bound

LIST_OF_TRUTHS = "a list of truths is asserted, which is true whatever they are"
_DISPLAYS = (ast.Tuple, ast.List, ast.Set)
_FRESH = (ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.Lambda, ast.GeneratorExp)
# Functions whose results equal each other for the same arguments, and those that return something true.
_PURE = (
    "len", "sorted", "set", "frozenset", "list", "tuple", "dict", "type", "abs", "str", "repr", "float", "int", "bool",
    "sum", "min", "max", "id", "hash", "round",
)  # fmt: skip
_TRUE = ("repr", "type", "id", "object", "iter", "enumerate", "zip", "map", "filter", "reversed", "super")
_FORMATS_OF_NUMBERS = tuple("bcdeEfFgGnoxX%")
_SAME_OBJECT = ("type", "id")
_ELEMENTWISE = ("isclose", "eq", "ne", "lt", "le", "gt", "ge", "equal", "isfinite")
_REFLEXIVE = (ast.Eq, ast.Is, ast.LtE, ast.GtE)
_IRREFLEXIVE = (ast.NotEq, ast.IsNot, ast.Lt, ast.Gt)
_OPPOSITES = {
    ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn, ast.Lt: ast.GtE, ast.Gt: ast.LtE,
}  # fmt: skip
_OPPOSITES.update({b: a for a, b in list(_OPPOSITES.items())})
_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_FLIPPED = {ast.GtE: ast.LtE, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.Lt: ast.Gt}
# What the methods of unittest assert of their first arguments.
_COMPARES: dict[str, type[ast.cmpop]] = {
    "assertEqual": ast.Eq, "assertEquals": ast.Eq, "assertAlmostEqual": ast.Eq, "assertIs": ast.Is,
    "assertListEqual": ast.Eq, "assertDictEqual": ast.Eq, "assertSequenceEqual": ast.Eq, "assertCountEqual": ast.Eq,
    "assertNotEqual": ast.NotEq, "assertIsNot": ast.IsNot, "assertIn": ast.In, "assertNotIn": ast.NotIn,
    "assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE, "assertLess": ast.Lt, "assertLessEqual": ast.LtE,
}  # fmt: skip


def why_true(test: ast.expr, bound: Bound) -> str | None:
    """Why an asserted expression cannot be false, as a clause."""
    return _Truth(bound).why(test)


def why_method_holds(name: str, arguments: Sequence[ast.expr], bound: Bound) -> str | None:
    """The same of a method of unittest, by what it asserts."""
    if name == "assertTrue" and len(arguments) > 1 and _is_number(arguments[1]):
        return "assertTrue takes the second value for its message, and compares nothing"
    asserted = _asserted(name, arguments)
    return None if asserted is None else why_true(asserted, bound)


def why_message(test: ast.expr, message: ast.expr | None) -> str | None:
    """The same of an assertion whose message is what it was to be compared with: `assert out.shape, ref.shape`."""
    if message is None:
        return None
    if _is_number(message) or (_form(test) and _form(test) == _form(message) and not _same(test, message)):
        return "assert takes what follows the comma for its message, and compares nothing"
    return None


def _form(node: ast.expr) -> str:
    """What is asked of something: an attribute, a method without arguments, or a function of no literal."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    if not isinstance(node, ast.Call) or node.keywords or any(isinstance(a, ast.Constant) for a in node.args):
        return ""
    is_method = isinstance(node.func, ast.Attribute) and not node.args
    return f"{_form(node.func)}()" if is_method else ast.dump(node.func)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)) and node.elts:
        return all(map(_is_number, node.elts))
    return isinstance(node, ast.Constant) and not isinstance(node.value, (str, type(None)))


def _asserted(name: str, arguments: Sequence[ast.expr]) -> ast.expr | None:
    if not arguments or any(isinstance(a, ast.Starred) for a in arguments):
        return None
    first, none = arguments[0], ast.Constant(None)
    if name in ("assertTrue", "assert_"):
        return first
    if name == "assertFalse":
        return ast.UnaryOp(ast.Not(), first)
    if name in ("assertIsNone", "assertIsNotNone"):
        return ast.Compare(first, [ast.Is() if name == "assertIsNone" else ast.IsNot()], [none])
    if len(arguments) < 2:
        return None
    if name == "assertIsInstance":
        return ast.Call(ast.Name("isinstance", ast.Load()), [first, arguments[1]], [])
    return ast.Compare(first, [_COMPARES[name]()], [arguments[1]]) if name in _COMPARES else None


class _Truth:
    def __init__(self, bound: Bound) -> None:
        self._kinds = Kinds(bound)

    def why(self, test: ast.expr) -> str | None:
        if self.of(test) is not True:
            return None
        if self._kinds.literal(test) is not NOTHING:
            return "a constant is asserted"
        if isinstance(test, ast.ListComp):
            return LIST_OF_TRUTHS
        if isinstance(test, ast.Compare) and any(_same(test.left, right) for right in test.comparators):
            return "one thing is compared with itself"
        return "what is asserted cannot be false"

    def of(self, node: ast.expr) -> bool | None:
        """Whether an expression is true or false in any case."""
        literal = self._kinds.literal(node)
        if literal is not NOTHING:
            return bool(literal)
        find: Callable[[Any], bool | None] | None = getattr(self, f"_of_{type(node).__name__}", None)
        return find(node) if find is not None else isinstance(node, (ast.Lambda, ast.GeneratorExp)) or None

    # --- kinds of expressions ---

    def _of_Attribute(self, node: ast.Attribute) -> bool | None:
        """`(a == b).all`, a method that is not called."""
        compared = isinstance(node.value, ast.Call) and called(node.value) in _ELEMENTWISE
        return (node.attr in ("all", "any") and (compared or isinstance(node.value, ast.Compare))) or None

    def _of_display(self, node: Any) -> bool | None:
        if any(isinstance(e, ast.Starred) for e in node.elts):
            return True if any(not isinstance(e, ast.Starred) for e in node.elts) else None
        return bool(node.elts)

    _of_Tuple = _of_List = _of_Set = _of_display

    def _of_ListComp(self, node: ast.ListComp) -> bool | None:
        """`[a == b for ...]`, where `all` of it was meant."""
        return isinstance(node.elt, ast.Compare) or called(node.elt) in COMPARISONS or None

    def _of_Dict(self, node: ast.Dict) -> bool | None:
        return None if node.keys and all(key is None for key in node.keys) else bool(node.keys)

    def _of_JoinedStr(self, node: ast.JoinedStr) -> bool | None:
        return any(map(self._is_some_text, node.values)) or None

    def _is_some_text(self, part: ast.expr) -> bool:
        """Whether what an f-string joins is never blank: of a number, say, or written as one."""
        if not isinstance(part, ast.FormattedValue):
            return self.of(part) is True
        spec = part.format_spec.values[-1:] if isinstance(part.format_spec, ast.JoinedStr) else []
        as_number = any(str(getattr(end, "value", ""))[-1:] in _FORMATS_OF_NUMBERS for end in spec)
        return as_number or part.conversion in (ord("r"), ord("a")) or self._is_no_text(part.value)

    def _is_no_text(self, node: ast.expr) -> bool:
        return self._kinds.of(node) not in (None, *TEXTS)

    def _of_NamedExpr(self, node: Any) -> bool | None:
        return self.of(node.value)

    def _of_Name(self, node: ast.Name) -> bool | None:
        chosen = self._kinds.choices(node)
        return all(chosen) if len({*map(bool, chosen)}) == 1 else None

    def _of_UnaryOp(self, node: ast.UnaryOp) -> bool | None:
        if isinstance(node.op, ast.Invert):  # `~True` is -2, and `~False` -1
            return self._kinds.of(node.operand) is bool or None
        inner = self.of(node.operand) if isinstance(node.op, ast.Not) else None
        return None if inner is None else not inner

    def _of_BoolOp(self, node: ast.BoolOp) -> bool | None:
        decides = isinstance(node.op, ast.Or)
        found = [self.of(value) for value in node.values]
        if decides in found:
            return decides
        if all(value is (not decides) for value in found):
            return not decides
        pairs = ((a, b) for a in node.values for b in node.values if a is not b)
        return decides if any(_is_opposite(a, b) for a, b in pairs) else None

    def _of_IfExp(self, node: ast.IfExp) -> bool | None:
        chosen = self.of(node.test)
        if chosen is not None:
            return self.of(node.body if chosen else node.orelse)
        found = {self.of(node.body), self.of(node.orelse)}
        return found.pop() if len(found) == 1 else None

    def _of_Call(self, node: ast.Call) -> bool | None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if isinstance(node.func, ast.Attribute):
            return self._of_method(node.func, node.args)
        if name in _TRUE:
            return True
        if name == "bool" and len(node.args) == 1:
            return self.of(node.args[0])
        if name == "isinstance" and len(node.args) == 2:
            kinds = node.args[1].elts if isinstance(node.args[1], _DISPLAYS) else [node.args[1]]
            of = node.args[0]
            return any(_is_type_of(of, kind) or self._kinds.is_a(of, kind) for kind in kinds) or None
        if name in ("str", "format") and node.args:
            return self._is_no_text(node.args[0]) or None
        if name == "hasattr" and len(node.args) == 2:
            return (isinstance(node.args[1], ast.Constant) and str(node.args[1].value) in dir(object)) or None
        if name == "all" and len(node.args) == 1 and isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp)):
            return True if self.of(node.args[0].elt) else None
        if name in ("any", "all") and len(node.args) == 1 and isinstance(node.args[0], _DISPLAYS):
            found = [self.of(e) for e in node.args[0].elts]
            decides = name == "any"
            return decides if decides in found else (not decides if None not in found else None)
        return None

    def _of_method(self, method: ast.Attribute, arguments: Sequence[ast.expr]) -> bool | None:
        if method.attr == "all" and isinstance(method.value, ast.Compare):
            return True if self.of(method.value) else None
        is_text = method.attr in ("startswith", "endswith") and len(arguments) == 1
        return True if is_text and isinstance(arguments[0], ast.Constant) and arguments[0].value == "" else None

    def _of_Compare(self, node: ast.Compare) -> bool | None:
        operands = [node.left, *node.comparators]
        found = {self._compared(a, op, b) for a, op, b in zip(operands, node.ops, operands[1:])}
        return False if False in found else None if None in found else True

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self._identical(left, right, same=isinstance(op, ast.Is))
        if isinstance(op, (ast.In, ast.NotIn)):
            inside = self._is_inside(left, right)
            return None if inside is None else inside is isinstance(op, ast.In)
        left, right = self._kinds.named(left), self._kinds.named(right)
        if _same(left, right) or (isinstance(op, ast.Eq) and _same(_exact(left), _exact(right))):
            return True if isinstance(op, _REFLEXIVE) else False if isinstance(op, _IRREFLEXIVE) else None
        if isinstance(op, ast.NotEq) and any(_is_fresh_object(side) for side in (left, right)):
            return True
        a, b = self._kinds.literal(left), self._kinds.literal(right)
        if a is not NOTHING and b is not NOTHING:
            return _evaluated(a, op, b)
        if self._is_within(left, op, right) or self._is_within(right, _FLIPPED.get(type(op), ast.Eq)(), left):
            return True
        return self._bounded(left, op, right)

    def _is_within(self, small: ast.expr, op: ast.cmpop, large: ast.expr) -> bool:
        """`x <= max(x, y)`, `min(x, y) <= x`, and `x <= limit` where that was `x + 1e-6`, or `max(1e-3, 2 * x)`."""
        if not isinstance(op, (ast.Lt, ast.LtE)):
            return False
        value, limit, strictly = self._kinds.value(small), self._kinds.value(large), isinstance(op, ast.Lt)
        if any(self._is_more(limit, than, strictly) for than in (small, value)):
            return True
        return not strictly and any(_same(large, other) for other in _arguments(value, "min"))

    def _is_more(self, limit: ast.expr, than: ast.expr, strictly: bool) -> bool:
        """Whether a limit is made of what it is to limit; of a size, also some times that."""
        if _arguments(limit, "max"):
            return any(self._is_more(each, than, strictly) for each in _arguments(limit, "max"))
        if not isinstance(limit, ast.BinOp) or not isinstance(limit.op, (ast.Add, ast.Mult)):
            return not strictly and _same(limit, than)
        least = 0 if isinstance(limit.op, ast.Add) else 1 if self._kinds.least(than) == 0 else float("inf")
        pairs = ((limit.left, limit.right), (limit.right, limit.left))
        return any(
            isinstance(number, (int, float)) and number > least and self._is_more(part, than, strictly=False)
            for part, number in ((part, self._kinds.literal(other)) for part, other in pairs)
        )

    def _identical(self, left: ast.expr, right: ast.expr, *, same: bool) -> bool | None:
        a, b = self._kinds.literal(left), self._kinds.literal(right)
        if a is None and b is None:
            return same
        if (a is None and self._kinds.never_none(right)) or (b is None and self._kinds.never_none(left)):
            return not same
        if any(isinstance(side, (*_FRESH, ast.Tuple)) or _is_fresh_object(side) for side in (left, right)):
            return not same
        is_one = _same(left, right) and not any(isinstance(n, ast.Call) and not _gives_one(n) for n in walked(left))
        return same if is_one else None

    def _is_inside(self, left: ast.expr, right: ast.expr) -> bool | None:
        if isinstance(left, ast.Constant) and left.value in ("", b""):
            return True  # of any text
        if not isinstance(right, _DISPLAYS):
            return None
        if not right.elts:
            return False
        values = {self._kinds.literal(e) for e in right.elts if isinstance(e, ast.Constant)}
        is_bool = isinstance(left, ast.Compare) or self._kinds.of(left) is bool
        chosen = {True, False} if is_bool else {*self._kinds.choices(left)}
        return any(_same(left, e) for e in right.elts) or (bool(chosen) and values >= chosen) or None

    def _within_infinity(self, of: ast.expr, kind: type[ast.cmpop], limit: float) -> bool | None:
        """NaN apart. That something is less than infinite says that it is finite: nothing of whole numbers, nor of a
        difference, which was to be small.
        """
        within, beyond = ((ast.LtE, ast.Lt), ast.Gt) if limit > 0 else ((ast.GtE, ast.Gt), ast.Lt)
        value = self._kinds.value(of)
        is_difference = isinstance(measured(value), ast.BinOp) and measured(value) is not value
        if kind is within[0] or (kind is within[1] and (is_difference or self._kinds.of(of) in (int, bool))):
            return True
        return False if kind is beyond else None

    def _bounded(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
        """By the least and the most that one side can be, where the other is a number."""
        limit, kind = self._kinds.literal(right), type(op)
        if limit is NOTHING:
            left, limit, kind = right, self._kinds.literal(left), _FLIPPED.get(kind, kind)
        if isinstance(limit, bool) or not isinstance(limit, (int, float)):
            return None
        if _is_infinite(limit):
            return self._within_infinity(left, kind, limit)
        least, most = self._kinds.least(left), self._kinds.most(left)
        if limit == -1 and kind is ast.NotEq and is_dimension(left):
            return None
        is_above, is_below = least is not None and least > limit, most is not None and most < limit
        if is_above or is_below:
            return {ast.NotEq: True, ast.Gt: is_above, ast.GtE: is_above, ast.Lt: is_below, ast.LtE: is_below}.get(kind)
        if least == limit:
            return {ast.GtE: True, ast.Lt: False}.get(kind)
        return {ast.LtE: True, ast.Gt: False}.get(kind) if most == limit else None


def _is_infinite(limit: Any) -> bool:
    return isinstance(limit, float) and abs(limit) == float("inf")


def _evaluated(a: Any, op: ast.cmpop, b: Any) -> bool | None:
    compare = _OPERATORS.get(type(op))
    try:
        return None if compare is None else bool(compare(a, b))
    except TypeError:
        return None


def _same(left: ast.expr, right: ast.expr) -> bool:
    """Whether both sides are written alike, and nothing in them may give something else the second time."""
    return type(left) is type(right) and ast.dump(left) == ast.dump(right) and all(map(_is_pure, walked(left)))


def _arguments(node: ast.expr, name: str) -> Sequence[ast.expr]:
    """Of a call of a function by its bare name."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    return node.args if is_call else ()  # type: ignore[attr-defined]


def _is_type_of(node: ast.expr, kind: ast.expr) -> bool:
    """`type(x)` and `x.__class__`, of x."""
    if isinstance(kind, ast.Attribute) and kind.attr == "__class__":
        return _same(node, kind.value)
    return any(_same(node, of) for of in _arguments(kind, "type")[:1])


def _exact(node: ast.expr) -> ast.expr:
    """What pytest's `approx` stands for."""
    return node.args[0] if isinstance(node, ast.Call) and called(node) == "approx" and node.args else node


def _is_pure(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _PURE
    return not isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom))


def _gives_one(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in _SAME_OBJECT


def _is_fresh_object(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "object"


def _is_opposite(a: ast.expr, b: ast.expr) -> bool:
    """Whether one holds where the other does not."""
    if isinstance(b, ast.UnaryOp) and isinstance(b.op, ast.Not):
        return _same(a, b.operand)
    if not (isinstance(a, ast.Compare) and isinstance(b, ast.Compare) and len(a.ops) == len(b.ops) == 1):
        return False
    sides = _same(a.left, b.left) and _same(a.comparators[0], b.comparators[0])
    return sides and _OPPOSITES.get(type(a.ops[0])) is type(b.ops[0])
