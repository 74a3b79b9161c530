"""Functions that are named nearly as what a runner of tests calls, and that it never calls: `tset_x` for `test_x`,
`setup` for `setUp`. What stands in them has to tell whether they matter.
"""

from __future__ import annotations

import ast
import re

from ..source import syntax
from ..source.syntax import name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Container

# `tset_x`, `Test_x`, `x_test`, `off_test_x`, `check_x`: a test by what stands in it, if nothing else names it.
_NEARLY_TEST = re.compile(
    r"(tset|tets|tst|tes|etst|tesst|testt|Test|TEST|_+test)s?_\w+|(check|verify|validate)_\w+|(?!(set_?up|tear_?down|run|main|make|before|after)_)\w+_test(_\w+)?"
)
# Without blanks between their words, in small letters.
_NEARLY_HOOK = re.compile(r"(async)?(setup|teardown)((class|method)(e?s)?)?|(tearup|setdown)")
_NEARLY_HOOK_OF_MODULE = re.compile(r"(setup|teardown)(modul|function|functions|modules|module)")
_OF_CASES = frozenset(("setUp", "tearDown", "setUpClass", "tearDownClass", "asyncSetUp", "asyncTearDown"))
_OF_MODULES = frozenset(("setUpModule", "tearDownModule"))
_PYTESTS = frozenset(("setup_method", "teardown_method", "setup_class", "teardown_class"))
_PYTESTS_OF_MODULES = frozenset(("setup_module", "teardown_module", "setup_function", "teardown_function"))
_CASES = frozenset(("TestCase", "IsolatedAsyncioTestCase"))
_NOTHING = frozenset(("object", "ABC"))
_ALL_NAMES = ("globals", "vars", "locals", "__dict__")


def is_nearly_test(name: str) -> bool:
    return _NEARLY_TEST.fullmatch(name) is not None


def is_nearly_hook(name: str, around: ast.ClassDef | None, *, by_pytest: bool, others: Collection[str] = ()) -> bool:
    """Whether a function of a class, or of a module, is named nearly as what is called before and after tests, and is
    not; `others` are names that are called too. A class with bases of its own may have inherited who calls it.
    """
    flat = name.replace("_", "").lower()
    if around is None:
        called = (*_OF_MODULES, *(_PYTESTS_OF_MODULES if by_pytest else ()), *others)
        return name not in called and _NEARLY_HOOK_OF_MODULE.fullmatch(flat) is not None
    bases = set(map(name_of, around.bases))
    is_case = bool(bases & _CASES)
    if not bases <= _CASES | _NOTHING or not (is_case or by_pytest):
        return False
    called = (*(_OF_CASES if is_case else ()), *(_PYTESTS if by_pytest else ()), *others)
    return name not in called and _NEARLY_HOOK.fullmatch(flat) is not None


def names_in(module: ast.AST) -> set[str]:
    """What a file names, as itself or in text."""
    return {*syntax.names_in([module]), *(str(n.value) for n in ast.walk(module) if isinstance(n, ast.Constant))}


def is_named(name: str, named: Container[str]) -> bool:
    """Whether a file names it, or all names at once."""
    return any(known in named for known in (name, *_ALL_NAMES))
