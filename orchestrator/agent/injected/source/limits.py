"""Comparisons that are made by hand, the size of a difference with the limit that it is held to, as in
`err = np.abs(a - b).max(); print("PASS" if err < tol else "FAIL")`; and such as may fail, by hand or not.
"""

from __future__ import annotations

import ast

from .statements import compares, measured
from .syntax import LOOPS, SETS, called, ids_in, name_of, targets_of, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Mapping, Sequence

    from .uses import Program

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SIZES = ("abs", "absolute", "fabs", "norm")
_BELOW, _ABOVE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)


def held_to_limits(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.expr, bool]]:
    """Each such comparison, and `all` or `any` of one's elements, with what it comes to where the limit is exceeded."""
    made, goals = _made(nodes), set(map(id, _goals(nodes)))
    for node in nodes:
        compared = _of_elements(node) if isinstance(node, ast.Call) else node
        if isinstance(compared, ast.Compare) and isinstance(compared.ops[0], (*_BELOW, *_ABOVE)):
            left, right = (_is_difference(side, made, set()) for side in (compared.left, compared.comparators[0]))
            bad = isinstance(compared.ops[0], _ABOVE if left else _BELOW)
            is_whole = compared is node or called(node) == ("any" if bad else "all")
            if left != right and is_whole and len(compared.ops) == 1 and (bad or id(node) not in goals):
                yield node, bad  # type: ignore[misc]


def _of_elements(call: ast.Call) -> ast.expr | None:
    inside = call.args[0] if call.args else getattr(call.func, "value", None)
    return inside if called(call) in ("all", "any") else None


def only_told(program: Program, limits: Mapping[ast.expr, bool]) -> Iterator[tuple[ast.expr, bool]]:
    """Limits of which a program makes no more than words, and that it does not also test, wider or narrower."""
    told = [node for node in limits if program.only_says(node)]
    tested = _looked_at(node for node in limits if node not in told)
    yield from ((node, limits[node]) for node in told if tested.isdisjoint(_looked_at([node])))


def only_judges(function: Any) -> bool:
    """Whether a function returns how a comparison came out, by hand or not, and says it in no other way."""
    returned = [node.value for node in within(function.body) if isinstance(node, ast.Return)]
    judged = [value for value in returned if not isinstance(getattr(value, "value", None), bool)]
    if not judged or None in judged:
        return False
    by_hand = {id(node) for node, _ in held_to_limits(list(ast.walk(function)))}
    return all(compares(value) or id(value) in by_hand for value in map(_as_truth, judged))


def _as_truth(value: Any) -> Any:
    """What `bool` is called on."""
    return value.args[0] if called(value) == "bool" and len(value.args) == 1 else value


def meant_to_fail(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Comparisons that may come out false, and nothing is wrong."""
    yield from _in_sweeps(nodes)
    yield from _that_end_loops(nodes)
    yield from _in_lambdas(nodes)


def _looked_at(comparisons: Iterable[ast.expr]) -> set[str]:
    """The names that are compared."""
    found = (node for each in comparisons for node in ast.walk(each) if isinstance(node, ast.Compare))
    return {side.id for c in found for side in (c.left, *c.comparators) if isinstance(side, ast.Name)}


def _goals(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """What a loop is told of when it comes about, and nothing until then."""
    for loop in nodes:
        if isinstance(loop, LOOPS):
            yield from (node.test for node in ast.walk(loop) if isinstance(node, ast.If) and not node.orelse)


def _made(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """What names are made of, wherever they are set."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, SETS) and node.value is not None:
            for target in targets_of(node):
                found.setdefault(name_of(target), []).append(node.value)
    return found


def _is_difference(node: ast.expr, made: dict[str, list[ast.expr]], seen: set[str], *, sized: bool = False) -> bool:
    """Whether it is the size of a difference, relative or not; of a name, whether all that it is made of are."""
    while True:
        inner = measured(node)
        sized = sized or any(called(n) in _SIZES for n in ast.walk(node) if n is not inner)
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div):
            node = inner.left
        elif isinstance(inner, ast.Call) and called(inner) == "norm":
            node, sized = (inner.args or [getattr(inner.func, "value", inner)])[0], True
        else:
            break
        if node is inner:
            return False
    if isinstance(inner, ast.Name) and inner.id in made:
        if inner.id in seen:  # the largest of itself and what comes
            return True
        seen.add(inner.id)
        values = [value for value in made[inner.id] if not isinstance(value, ast.Constant)]  # with which it begins
        return bool(values) and all(_is_difference(value, made, seen, sized=sized) for value in values)
    if isinstance(inner, ast.Call) and called(inner) == "max" and len(inner.args) > 1:
        return all(_is_difference(each, made, seen, sized=sized) for each in inner.args)
    return sized and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub)


def _in_sweeps(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Comparisons that find out how near two things are: a loop is over their tolerances."""
    for loop in nodes:
        targets = [g.target for g in loop.generators] if isinstance(loop, _COMPREHENSIONS) else []
        targets += [loop.target] if isinstance(loop, ast.For) else []
        swept = ids_in(*targets)
        for node in ast.walk(loop) if swept else ():
            if compares(node) and not swept.isdisjoint(ids_in(*_tolerances(node))):
                yield node


def _tolerances(call: Any) -> list[ast.expr]:
    if isinstance(call, ast.Compare):
        return [call.left, *call.comparators]
    return [*call.args[2:], *(k.value for k in call.keywords if k.arg in ("atol", "rtol"))]


def _that_end_loops(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Comparisons that are false as long as a loop goes on: it is left where they hold, as what converges is, or what
    is searched.
    """
    for loop in nodes:
        if isinstance(loop, LOOPS):
            inside = list(ast.walk(loop))
            ends = [node.test for node in inside if isinstance(node, ast.If) and _leaves_where_true(node)]
            ends += [loop.test] if isinstance(loop, ast.While) else []
            names = ids_in(*ends)
            sets = [n.value for n in inside if isinstance(n, ast.Assign) and not names.isdisjoint(ids_in(*n.targets))]
            yield from (node for each in (*ends, *sets) for node in ast.walk(each) if _may_judge(node))


def _may_judge(node: ast.AST) -> bool:
    return compares(node) or isinstance(node, ast.Compare) or called(node) in ("all", "any")


def _leaves_where_true(node: ast.If) -> bool:
    is_negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
    return any(isinstance(s, (ast.Break, ast.Return)) for s in (node.orelse if is_negated else node.body))


def _in_lambdas(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Whoever calls them has their results."""
    for function in nodes:
        if isinstance(function, ast.Lambda):
            yield from filter(_may_judge, ast.walk(function))
