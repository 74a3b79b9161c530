"""What a file of tests calls, by the names in its source: which functions, from where, what checks look at them."""

from __future__ import annotations

import ast
from itertools import combinations

from ..source.statements import TELLS, averages, is_check, measured
from ..source.syntax import SETS, called, ids_in, name_of, targets_of, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Iterable, Iterator, Tuple

    Spec = Tuple[str, str, str]
    """Of what is called `a.b.c`: the name a, the attributes "b.c", and what the file has imported it as ("" if it has
    not): "pkg.a.b.c", relative with dots in front."""


_MOCKS = ("Mock", "MagicMock", "AsyncMock")
_COPY = "something is compared with a copy of itself"
_OF_DIFFERENCE = "the tolerance was made of the difference itself"


class Callees:
    """Of one file: what it has imported so far, and, of the function that is being read, what its names come from.

    `own` are the top-level names that the tree provides.
    """

    def __init__(self, own: Collection[str]) -> None:
        self._own = own
        self._imported: dict[str, str] = {}
        self._from: dict[str, frozenset[Spec]] = {}
        self._made: dict[str, Spec] = {}
        self._copies: dict[str, str] = {}
        self._results: dict[str, tuple[ast.expr, set[str]]] = {}  # by names, each with the names in it
        self._steady: set[str] = set()  # those since which nothing was called for what it does
        self.has_own = False

    def begin(self) -> None:
        """Another function begins."""
        self._from, self._made, self._copies, self._results, self._steady = {}, {}, {}, {}, set()

    def note_import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "" if isinstance(node, ast.Import) else "." * node.level + (node.module or "")
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            if isinstance(node, ast.Import):
                origin = alias.name if alias.asname else name
            else:
                origin = f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
            self._imported[name] = origin
            self.has_own = self.has_own or self._is_own(origin)

    def _is_own(self, origin: str) -> bool:
        return origin[:1] == "." or origin.partition(".")[0] in self._own

    def spec(self, callee: ast.expr) -> Spec | None:
        """Of a name with attributes; None for anything else."""
        path: list[str] = []
        while isinstance(callee, ast.Attribute):
            path.insert(0, callee.attr)
            callee = callee.value
        if not isinstance(callee, ast.Name):
            return None
        origin = self._imported.get(callee.id, "")
        return callee.id, ".".join(path), ".".join([origin, *path]) if origin else ""

    # --- what an expression is about ---

    def note_assigned(self, node: ast.Assign | ast.AnnAssign) -> frozenset[Spec]:
        """Remember what the names come from that a statement binds; the functions of the tree that it calls for it."""
        if node.value is None:
            return frozenset()
        targets = targets_of(node)
        names = ids_in(*targets)
        if isinstance(node.value, ast.Call) and len(names) == 1:
            made = self.spec(node.value.func)
            if made is not None and _is_class_name(made):
                self._made.update(dict.fromkeys(names, made))
        if not self.has_own:
            return frozenset()
        found = frozenset(self.about([node.value]))
        for name in names:
            self._from[name] = self._from.get(name, frozenset()) | found
        return found

    def about(self, expressions: Iterable[ast.expr]) -> Iterator[Spec]:
        """The functions of the tree whose results are looked at: called there, or where a name there was bound. What
        their own arguments come from is not.
        """
        for node in expressions if self.has_own else ():
            if isinstance(node, ast.Name):
                yield from self._from.get(node.id, ())
            elif isinstance(node, ast.Call):
                yield from self._about_call(node)
            elif not isinstance(node, ast.Lambda):
                yield from self.about(n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))

    def _about_call(self, node: ast.Call) -> Iterator[Spec]:
        spec = self.spec(node.func)
        if spec is not None and ((spec[2] and self._is_own(spec[2])) or self._is_of_mock(spec)):
            yield spec
        else:
            yield from self.about([node.func, *node.args, *(keyword.value for keyword in node.keywords)])

    def _is_of_mock(self, spec: Spec) -> bool:
        """Whether the function itself has made a mock, and calls that."""
        return spec[0] in self._made and ".".join(self._made[spec[0]]).rpartition(".")[2] in _MOCKS

    def equal_by_class(self, test: ast.expr) -> Iterator[Spec]:
        """What stands on a side of `==` and may have a way of its own to be equal."""
        if isinstance(test, ast.Compare) and any(isinstance(op, ast.Eq) for op in test.ops):
            for side in (test.left, *test.comparators):
                if isinstance(side, ast.Name) and side.id in self._made:
                    yield self._made[side.id]
                found = self.spec(side.func if isinstance(side, ast.Call) else side)
                if found is not None and (_is_class_name(found) if isinstance(side, ast.Call) else found[0].isupper()):
                    yield found

    # --- two functions that are given the same ---

    def note_result(self, node: ast.stmt) -> None:
        """Remember which call, or difference, has made what a name stands for, until the name or one of those in it is
        set anew.
        """
        if isinstance(node, ast.Expr) and not (called(node.value) in TELLS or is_check(called(node.value))):
            self._steady.clear()  # `step()`, say, may change what they are made of in its place
        if not isinstance(node, SETS):
            return
        targets = targets_of(node)
        if self._results:
            bound = ids_in(*targets)
            self._results = {n: made for n, made in self._results.items() if n not in bound and not bound & made[1]}
        if isinstance(node.value, (ast.Call, ast.BinOp)) and len(targets) == 1 and isinstance(targets[0], ast.Name):
            self._results[targets[0].id] = node.value, ids_in(node.value)
            self._steady.add(targets[0].id)

    def pair(self, test: ast.AST) -> tuple[Spec, Spec] | None:
        """The two functions whose results an expression is about, of which a test has chosen one, if they are given the
        same. Two of other places, as a function and its older name, are meant to be two.
        """
        found = (self._made_by(node) if isinstance(node, ast.Name) else node for node in walked(test))
        calls = [node for node in found if isinstance(node, ast.Call)]
        if len(calls) < 2:
            return None
        made = [(self.spec(call.func), call) for call in calls if call.args]
        for (one, a), (other, b) in combinations(made, 2):
            if one is None or other is None or one == other or len(a.args) != len(b.args):
                continue
            if (one[2] == other[2] or not one[2] or not other[2]) and _given(a) == _given(b):
                return one, other
        return None

    def difference(self, size: ast.expr) -> ast.BinOp | None:
        """The difference of which an expression, or what it names, is the size."""
        node = [*map(measured, self._steps(size))][-1]
        return node if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) else None

    def averages(self, size: ast.expr) -> bool:
        """The same of an average."""
        return any(map(averages, self._steps(size)))

    def measured_names(self, size: ast.expr) -> frozenset[str]:
        """The names of that of which an expression, or what it names, is the size, or was calculated by a call."""
        node = [*map(measured, self._steps(size))][-1]
        parts = [*node.args, *node.keywords] if isinstance(node, ast.Call) else [node]
        return frozenset(ids_in(*parts))

    def _steps(self, size: ast.expr) -> Iterator[ast.expr]:
        """An expression, and what has made the name that it is the size of."""
        yield size
        node = measured(size)
        while isinstance(node, ast.Name) and node.id in self._results:
            made = self._made_by(node)
            yield made
            node = measured(made)

    def why_compared(self, call: ast.Call) -> str | None:
        """Why two things that a function, or a method, compares cannot differ: they have the same content, or their own
        difference made the tolerance.
        """
        of = [call.func.value] if len(call.args) == 1 and isinstance(call.func, ast.Attribute) else []
        operands = [*of, *call.args]
        if len(operands) < 2:
            return None
        left, right, *options = operands
        if self._is_copy(left, right):
            return _COPY
        options += [keyword.value for keyword in call.keywords]
        return _OF_DIFFERENCE if any(self._is_of_difference(each, left, right) for each in options) else None

    def _is_of_difference(self, node: ast.expr, left: ast.expr, right: ast.expr) -> bool:
        """Whether an expression, or what it names, is made of the difference of two names."""
        if not (isinstance(left, ast.Name) and isinstance(right, ast.Name)):
            return False
        made = self._made_by(node) if isinstance(node, ast.Name) and node.id in self._steady else node
        apart = (n for n in walked(made) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub))
        sides = ({getattr(side, "id", "") for side in (n.left, n.right)} for n in apart)
        return {left.id, right.id} in sides

    def is_named(self, size: ast.expr) -> bool:
        """Whether an expression is the size of what a name stands for that was made before."""
        return isinstance(measured(size), ast.Name)

    def _made_by(self, name: ast.Name) -> ast.expr:
        return self._results[name.id][0] if name.id in self._results else name

    # --- copies ---

    def note_copy(self, node: ast.stmt) -> None:
        """Remember that a name is a copy of another, until either is named again."""
        if not self._copies and not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            return
        mentioned = ids_in(node)
        self._copies = {a: b for a, b in self._copies.items() if not mentioned & {a, b}}
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            original = uncopied(node.value)
            if original is not node.value and isinstance(original, ast.Name):
                self._copies[node.targets[0].id] = original.id

    def _is_copy(self, left: ast.expr, right: ast.expr) -> bool:
        """Whether one side is the other's copy, or a copy of the same, and nothing came between."""
        a, b = uncopied(left), uncopied(right)
        if isinstance(a, ast.Name) and isinstance(b, ast.Name):
            return self._copies.get(a.id, a.id) == self._copies.get(b.id, b.id)
        alike = isinstance(a, (ast.Attribute, ast.Subscript)) and ast.dump(a) == ast.dump(b)
        return alike and not any(isinstance(n, ast.Call) for n in walked(a))


# They give again what they are called on, or given: the content stays.
_COPIES = ("copy", "clone", "detach", "cpu", "numpy", "contiguous", "tolist", "deepcopy", "asarray", "array")
_CONTAINERS = ("list", "tuple")
_WIDENS = ("astype", "to")
_WIDEST = ("float64", "double")


def uncopied(node: ast.expr) -> ast.expr:
    """What an expression is a copy of, itself if of nothing."""
    while isinstance(node, ast.Call):
        name = called(node)
        if isinstance(node.func, ast.Attribute) and (_widens(node) if node.args else name in (*_COPIES, "double")):
            node = node.func.value
        elif name in (*_COPIES, *_CONTAINERS) and len(node.args) == 1 and not node.keywords:
            node = node.args[0]
        else:
            break
    return node


def _widens(call: ast.Call) -> bool:
    """Whether it is `x.astype(np.float64)`, `x.to(torch.double)`."""
    return called(call) in _WIDENS and name_of(call.args[0]) in _WIDEST


def _given(call: ast.Call) -> list[str]:
    """A call's arguments, as text to be compared."""
    return [ast.dump(argument) for argument in (*call.args, *call.keywords)]


def _is_class_name(spec: Spec) -> bool:
    name = (spec[1] or spec[0]).rpartition(".")[2]
    return name[:1].isupper() or name == "approx"
