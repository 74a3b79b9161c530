"""Which files are programs, and which of these check something although pytest collects nothing of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.config.pytest_files import is_called_tests, is_test_file, writes_tests
from orchestrator.config.read import parsed

_CHECK = re.compile(r"(?:.*_)?(?:tests?|asserts?|checks?|verify|parity)(?:_.*)?")
_CUDA = re.compile(r"\bcuda\b|\btriton\b", re.IGNORECASE)
# The device is asked for: by an option, or by whether there is one.
_CHOICE = re.compile(r"--[\w-]*(?:cuda|gpu|device)|cuda\.is_available\(\) else")
_COMPARISONS = frozenset({"allclose", "array_equal", "equal", "isclose"})


@dataclass(frozen=True)
class Check:
    """A program that compares by itself; `cuda`: only with a GPU."""

    path: str
    cuda: bool


def check(path: PurePosixPath, text: str) -> Check | None:
    """The check that a file is, which is called like one: it asserts when it is run, or prints what it compares."""
    if not _CHECK.fullmatch(path.stem) or (writes_tests(text) and (is_test_file(path) or is_called_tests(path))):
        return None
    body = parsed(text)
    everything = [node for statement in body for node in ast.walk(statement)] if runs(text) else [*_at_the_top(body)]
    if not any(_asserts(node) or _shows(node) for node in everything):
        return None
    return Check(str(path), bool(_CUDA.search(text) and not _CHOICE.search(text)))


def runs(text: str) -> bool:
    """Whether it is a program, and not only to be imported: it asks for `__main__`, reads its arguments, or calls a
    function of its own.
    """
    body = parsed(text)
    own = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return any(_begins(node, own) for node in _at_the_top(body))


def prints(text: str) -> bool:
    """Whether it says something when it is run, without a function of its own around that."""
    return any(_called(node) == "print" for node in _at_the_top(parsed(text)))


def wants(text: str) -> list[str]:
    """The arguments that it does not run without, by argparse or click: `--out`, `size`."""
    calls = (node for statement in parsed(text) for node in ast.walk(statement) if isinstance(node, ast.Call))
    return list(dict.fromkeys(name for call in calls if (name := _wanted(call))))


def _wanted(call: ast.Call) -> str | None:
    names = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if _called(call) not in ("add_argument", "argument", "option") or not names:
        return None
    given = {word.arg: word.value for word in call.keywords}
    options = [name for name in names if name.startswith("-")]
    required = ast.unparse(given["required"]) == "True" if "required" in given else not options
    takes_none = "default" in given or ("nargs" in given and ast.unparse(given["nargs"]) in ("'?'", "'*'", "-1"))
    return max(options or names, key=len) if required and not takes_none else None


def _begins(node: ast.AST, own: Iterable[str]) -> bool:
    if isinstance(node, ast.Compare):
        return isinstance(node.left, ast.Name) and node.left.id == "__name__"
    if isinstance(node, ast.Attribute):
        return node.attr == "parse_args" or ast.unparse(node) == "sys.argv"
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in own


def _asserts(node: ast.AST) -> bool:
    """An assertion, or a call of what is called so: `torch.testing.assert_close`."""
    return isinstance(node, ast.Assert) or _called(node).startswith("assert")


def _shows(node: ast.AST) -> bool:
    """`print("same:", torch.allclose(a, b))`: where that is false, the stage fails for it."""
    return _called(node) == "print" and any(_called(inner) in _COMPARISONS for inner in ast.walk(node))


def _called(node: ast.AST) -> str:
    """The last name of the function that is called; blank where nothing is."""
    called = node.func if isinstance(node, ast.Call) else None
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _at_the_top(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """What runs when the module does, whatever is around it."""
    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
