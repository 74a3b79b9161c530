"""What type an expression's value has, and how small or large a number it can be, whatever the program does.

By builtins, by functions of arrays, and by names that are bound once; what is not known here may be anything.
"""

from __future__ import annotations

import ast
import builtins

from ..source.statements import CONVERTS
from ..source.syntax import DEFINITIONS, called, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Hashable, Iterable, Mapping, Sequence

    Bound = Mapping[str, ast.expr]  # names that are bound once, with what they are bound to

COMPARISONS = ("allclose", "isclose", "array_equal", "array_equiv")
TEXTS = (str, bytes)
NOTHING: Any = object()
_BY_NODE: dict[type, type] = {
    ast.JoinedStr: str, ast.List: list, ast.ListComp: list, ast.Set: set, ast.SetComp: set, ast.Dict: dict,
    ast.DictComp: dict, ast.Tuple: tuple,
}  # fmt: skip
_BY_FUNCTION: dict[str, type] = {
    **dict.fromkeys(("bool", "isinstance", "issubclass", "hasattr", "callable", "all", "any"), bool),
    **dict.fromkeys(("len", "id", "hash", "ord", "int"), int),
    **dict.fromkeys(("str", "repr", "ascii", "chr", "format"), str),
    **{kind.__name__: kind for kind in (float, complex, bytes, list, tuple, set, frozenset, dict)},
    "sorted": list,
}  # fmt: skip
_BUILT = (
    "type", "abs", "sum", "min", "max", "round", "object", "iter", "enumerate", "zip", "map", "filter", "reversed",
    "super", *_BY_FUNCTION,
)  # fmt: skip
"""Builtins that give no None; `min` and `max` hardly do."""
_ONE_TRUTH = ("allclose", "array_equal", "array_equiv", "torch.equal", "math.isclose")
_OF_ARRAYS = ("torch", "np", "numpy", "jnp", "cupy", "math", "F")
_INFINITE = ("inf", "+inf", "infinity")
_MAKES_ARRAYS = frozenset((
    "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "logspace", "eye",
    "tensor", "as_tensor", "asarray", "array", "from_numpy", "zeros_like", "ones_like", "empty_like", "full_like",
    "rand_like", "randn_like", "cat", "concat", "concatenate", "stack", "einsum", "matmul", "softmax", "tril", "triu",
))  # fmt: skip
_NOT_NEGATIVE = (
    "abs", "absolute", "fabs", "norm", "sqrt", "square", "exp", "var", "std", "numel", "count_nonzero", "mse_loss",
    "l1_loss",
)  # fmt: skip
_OF_ANYTHING = ("abs", "square", "sqrt", "numel")
"""Those of them that as methods without arguments are an array's, and hardly another thing's."""
_KEEPING_BOTH = ("mean", "amax", "max", "min", "amin", "median", "nanmax", "item", "float", "round")
_KEEPING = ("sum", "fsum", *_KEEPING_BOTH)


def bound_once(function: ast.AST) -> dict[str, ast.expr]:
    """The names that a function binds once, by an assignment, and never again in any way; but that `ok |= equal` leaves
    true what was `True`, as `&=` what was `False`.
    """
    found: dict[str, ast.expr] = {}
    bound: dict[str, int] = {}
    kept: dict[str, set[type]] = {}
    for node in walked(function):
        for name in _bound_by(node):
            bound[name] = bound.get(name, 0) + 1
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            bound[node.target.id] = bound.get(node.target.id, 0) - 1  # which its name is counted for
            kept.setdefault(node.target.id, set()).add(type(node.op))
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(target, ast.Name):
            found[target.id] = node.value  # type: ignore[attr-defined]
    once = {name: value for name, value in found.items() if bound[name] == 1}
    return {name: value for name, value in once.items() if _stays(value, kept.get(name, set()))}


def _stays(value: ast.expr, operators: set[type]) -> bool:
    truth = getattr(value, "value", None)
    return not operators or (isinstance(truth, bool) and operators == {ast.BitOr if truth else ast.BitAnd})


def _bound_by(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return node.names
    if isinstance(node, DEFINITIONS):
        return [node.name]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).partition(".")[0]]
    name = getattr(node, "name", None)  # of a handler, or a pattern
    return [name] if isinstance(name, str) else []


class Kinds:
    def __init__(self, bound: Bound) -> None:
        self._bound = bound

    def literal(self, node: ast.expr) -> Any:
        """What it is, if that is written there; else NOTHING."""
        node = self.value(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.literal(node.operand)
            return -inner if isinstance(inner, (int, float)) else NOTHING
        return _infinity(node)

    def value(self, node: ast.expr) -> ast.expr:
        """What a name is bound to; anything else itself."""
        return self._bound.get(node.id, node) if isinstance(node, ast.Name) else node

    def choices(self, node: ast.expr) -> Sequence[Hashable]:
        """What it may be, where that is one of two that are written there: `"PASS" if equal else "FAIL"`."""
        node = self.value(node)
        either = (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()
        return [e.value for e in either if isinstance(e, ast.Constant)] if all(map(_is_constant, either)) else []

    def named(self, node: ast.expr) -> ast.expr:
        """The name that another one stands for: `ref = out`, where neither is bound again."""
        value = self.value(node)
        return value if isinstance(value, ast.Name) and value.id in self._bound else node

    def of(self, node: ast.expr) -> type | None:
        """The type of a value; None if it is not known."""
        if isinstance(node, ast.Name):
            return self._besides(node).of(self._bound[node.id]) if node.id in self._bound else None
        if isinstance(node, ast.Constant):
            return type(node.value)
        if isinstance(node, ast.Compare):  # others may give arrays
            is_truth = all(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in node.ops)
            return bool if is_truth else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return bool
        if isinstance(node, ast.IfExp):
            kinds = {self.of(node.body), self.of(node.orelse)}
            return kinds.pop() if len(kinds) == 1 else None
        if isinstance(node, ast.Call):
            return _of_call(node)
        return _BY_NODE.get(type(node))

    def is_a(self, node: ast.expr, kind: ast.expr) -> bool:
        """Whether a value is of a type for sure, by the type's name: `len(x)` an `int`, or anything an `object`."""
        named = getattr(builtins, kind.id, None) if isinstance(kind, ast.Name) else None
        own = self.of(node)
        return named is object or (isinstance(named, type) and own is not None and issubclass(own, named))

    def never_none(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name) and node.id in self._bound:
            return self._besides(node).never_none(self._bound[node.id])
        is_known = isinstance(node, (ast.Compare, ast.Lambda, ast.GeneratorExp, ast.BinOp)) or _makes_array(node)
        is_built = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILT
        return is_known or is_built or called(node) in COMPARISONS or self.of(node) not in (None, type(None))

    def _besides(self, name: ast.Name) -> Kinds:
        """For what a name is bound to, which may lead back to it."""
        return Kinds({other: value for other, value in self._bound.items() if other != name.id})

    def least(self, node: ast.expr) -> float | None:
        """The least that a number can be, NaN apart."""
        if isinstance(node, ast.Name):
            return self._besides(node).least(self._bound[node.id]) if node.id in self._bound else None
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self.least(node.elt)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            power = self.literal(node.right)
            return 0 if isinstance(power, int) and power % 2 == 0 else None
        if are_truths(node) or getattr(node, "attr", "") == "ndim":
            return 0
        if is_dimension(node):
            return 0
        return self._least_of_call(node) if isinstance(node, ast.Call) else None

    def most(self, node: ast.expr) -> float | None:
        """The most that a number can be: a part of all, as the mean of truths is."""
        if isinstance(node, ast.Name):
            return self._besides(node).most(self._bound[node.id]) if node.id in self._bound else None
        if are_truths(node):
            return 1
        inside = _measured_in(node) if called(node) in _KEEPING_BOTH else None
        return None if inside is None else self.most(inside)

    def _least_of_call(self, node: ast.Call) -> float | None:
        name, is_named = called(node), isinstance(node.func, ast.Name)
        is_method = isinstance(node.func, ast.Attribute) and not node.args
        if name == "max" and len(node.args) > 1:
            numbers = [self.literal(a) for a in node.args] if is_named else []
            return max((n for n in numbers if isinstance(n, (int, float))), default=None)
        if name in (("len", "abs") if is_named else _NOT_NEGATIVE if _root(node) in _OF_ARRAYS else ()):
            return 0
        if is_method and name in _OF_ANYTHING:
            return 0
        inside = _measured_in(node) if name in _KEEPING else None
        return None if inside is None else self.least(inside)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def is_dimension(node: ast.expr) -> bool:
    """Of a shape: no less than 0, but for -1, which stands for one that is not known yet (ONNX, TensorRT)."""
    return isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == "shape"


def are_truths(node: ast.expr) -> bool:
    """Whether it is a comparison, one truth or many, or what denies one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Invert, ast.Not)):
        return are_truths(node.operand)
    return isinstance(node, ast.Compare) or called(node) in COMPARISONS


def _measured_in(call: Any) -> ast.expr | None:
    """What a function of one argument, or a method without any, is of."""
    if isinstance(call.func, ast.Name) or _root(call) in _OF_ARRAYS:
        return call.args[0] if len(call.args) == 1 else None
    return None if call.args else call.func.value


def _infinity(node: ast.expr) -> Any:
    """What `math.inf` and `float("inf")` are; NOTHING for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float" and node.args:
        text = getattr(node.args[0], "value", None)
        return float(text) if isinstance(text, str) and text.strip().lower().lstrip("-") in _INFINITE else NOTHING
    is_named = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in _OF_ARRAYS
    return float("inf") if is_named and node.attr == "inf" else NOTHING  # type: ignore[attr-defined]


def _makes_array(node: ast.expr) -> bool:
    """Whether a function of arrays makes one, converted or not."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if _root(node) in _OF_ARRAYS:
        return node.func.attr in _MAKES_ARRAYS
    return node.func.attr in CONVERTS and _makes_array(node.func.value)


def _of_call(node: ast.Call) -> type | None:
    name = called(node)
    if isinstance(node.func, ast.Name) and name in _BY_FUNCTION:
        return _BY_FUNCTION[name]
    return bool if name in _ONE_TRUTH or f"{_root(node)}.{name}" in _ONE_TRUTH else None


def _root(node: ast.Call) -> str:
    """The name that a dotted one begins with: `torch` of `torch.linalg.norm`."""
    named: ast.expr = node.func
    while isinstance(named, ast.Attribute):
        named = named.value
    return named.id if isinstance(named, ast.Name) and isinstance(node.func, ast.Attribute) else ""
