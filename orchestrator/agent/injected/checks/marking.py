"""Which files get marks, and when: tests as pytest rewrites them, their helpers as they are imported."""

from __future__ import annotations

import gc
import os
import sys

from ..files import read
from ..hooks import compile_by, replace
from ..stage import runs_pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable

    from ..marks.facts import Facts
    from ..stage import Config

_DEEPEST = 20_000  # frames, of which a level of the source takes four; what Python compiles has some 3,000 levels
# Folders and files of tests and of their helpers: what an assertion in them is about is the rest of the tree.
_HELPING = r"(^|.*[_-])(tests?|testing|testlib|test_?utils?|helpers?|conftest)([_-].*)?$"


class Marking:
    """Of this process; `facts` are those of each file that has marks."""

    def __init__(self, config: Config) -> None:
        self._tree = config.one("tree") + os.sep
        self._names = config.all("name")
        self._kept_in = config.all("marked")
        self._installed = config.all("installed")
        self._roots = config.all("root")
        self._helping: Any = None
        self.facts: dict[str, Facts] = {}
        self.after_import: dict[str, Callable[[Any], None]] = {"_pytest.assertion.rewrite": self._watch_rewriting}

    def start(self) -> None:
        """Mark the helpers that this process imports, and that pytest does not rewrite; never from Python's own cache.
        What is installed of the tree is the tree's, as it stands there. A loader that compiles in its own way
        (typeguard's, jaxtyping's) keeps to it.
        """
        from _frozen_importlib_external import SourceFileLoader  # without what `importlib` takes with it

        compiles = SourceFileLoader.source_to_code

        def marked(loader: Any, name: str) -> CodeType | None:
            path = self.place_in_tree(loader.path)
            helps = path and self.helps(path) and type(loader).source_to_code is compiles
            return self.marked(path) if helps else None

        compile_by(marked)

    def _is_ours(self, path: str) -> bool:
        return path.startswith(self._tree)

    def place_in_tree(self, path: str) -> str:
        """Where a file stands in the tree, if it does: also one that was installed from it, if it says the same."""
        if self._is_ours(path):
            return path
        for site in self._installed:
            if path.startswith(site + os.sep):
                written = (os.path.join(root, path[len(site) + 1 :]) for root in self._roots)
                return next((file for file in written if self.helps(file) and read(file) == read(path)), "")
        return ""

    def helps(self, path: str) -> bool:
        """Whether a file of the tree is named as one of tests, or of what helps them."""
        import re

        if self._helping is None:
            self._helping = re.compile(_HELPING)
        inside = path[len(self._tree) : -len(".py")]
        return any(map(self._helping.match, inside.split(os.sep)))

    def marked(self, path: str) -> CodeType | None:
        """The code of a file with marks; None if it does not compile."""
        source = read(path)
        return self._once(path, source, (), lambda: self._compiled(path, source))

    def _compiled(self, path: str, source: bytes) -> CodeType | None:
        from ..source.places import compiled
        from ..source.syntax import parsed

        module = parsed(path, source)
        if module is None:
            return None
        self.mark(module, source, path)
        return compiled(module, path)

    def _once(
        self, path: str, source: bytes, way: tuple[str, ...], make: Callable[[], CodeType | None]
    ) -> CodeType | None:
        """The code that is made of a file in this way, with marks: once for all sessions of pytest in the stage.
        What warns is made each time, for those who look at its warnings.
        """
        if _tells_failures() or not self._kept_in:
            return make()
        import warnings

        from .kept import Kept

        kept, key = Kept(self._kept_in[0]), "\0".join((path, *self._names, *way, str(sys.flags.optimize)))
        known = kept.get(key, source)
        if known is not None and not known:
            return make()
        if known is not None:
            from ..marks.facts import Facts

            self.facts[path] = Facts.of(path, known[1])
            return known[0]  # type: ignore[no-any-return]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            code = make()
        if code is not None and path in self.facts:
            kept.put(key, source, () if said else (code, self.facts[path].parts()))
        return make() if said else code

    def mark(self, module: Any, source: bytes, path: str) -> None:
        """Put the marks into the syntax tree of a file."""
        from ..marks.assertions import mark
        from ..source.syntax import asserts_in, parsed

        deepest = sys.getrecursionlimit()
        sys.setrecursionlimit(max(deepest, _DEEPEST))  # each `elif` is inside the one before
        try:
            facts = mark(module, source, path, self._names, tell_failures=_tells_failures())
            if source.count(b"assert ") > facts.asserts:  # which may stand in text, or a hook has taken it out
                written = parsed(path, source)
                if written is not None and asserts_in(written) > facts.asserts:
                    facts = mark(written, source, path, self._names)
            self.facts[path] = facts
        finally:
            sys.setrecursionlimit(deepest)

    def _watch_rewriting(self, rewrite: Any) -> None:
        """Mark what pytest rewrites of the tree, before it does; it must not keep that for others, nor take what has no
        marks. What it rewrites of the environment (plugins, and all that their packages hold) it keeps as ever.
        """
        replace(rewrite, "rewrite_asserts", self._marking)
        replace(rewrite, "_rewrite_test", lambda function: self._rewriting(rewrite, function))
        replace(
            rewrite,
            "_read_pyc",
            lambda read: lambda path, *more: None if self.place_in_tree(str(path)) else read(path, *more),
        )
        replace(
            rewrite,
            "_write_pyc",
            lambda write: (
                lambda state, code, *more: None if self._is_ours(code.co_filename) else write(state, code, *more)
            ),
        )

    def _marking(self, rewrite_asserts: Callable[..., None]) -> Callable[..., None]:
        def marked(mod: Any, source: bytes, module_path: str | None = None, config: Any = None) -> None:
            if module_path is not None and self._is_ours(module_path):
                self.mark(mod, source, module_path)
            rewrite_asserts(mod, source, module_path, config)

        return marked

    def _rewriting(self, rewrite: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        """From a file to its code, what pytest keeps it by beside it; of the tree nothing is kept there."""
        own = _made_by(rewrite)

        def rewritten(file: Any, config: Any) -> Any:
            path = self.place_in_tree(str(file))
            if not path or _made_by(rewrite) != own:
                return _without_collecting(function, file, config)
            way = (sys.modules["_pytest"].__version__, str(config.getini("enable_assertion_pass_hook")))
            there = type(file)(path)
            return None, self._once(path, read(path), way, lambda: _without_collecting(function, there, config)[1])

        return rewritten


def _made_by(rewrite: Any) -> tuple[Any, ...]:
    """By what pytest rewrites a file: what a plugin has changed of it makes code for its own sessions only."""
    return rewrite.rewrite_asserts, *vars(rewrite.AssertionRewriter).values()


def _tells_failures() -> bool:
    """Whether an assertion that fails says so itself, for no session of pytest does."""
    return not runs_pytest()


def _without_collecting(rewrite: Callable[..., Any], *args: Any) -> Any:
    """In a syntax tree is no garbage, and to look for some takes as long as to rewrite it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return rewrite(*args)
    finally:
        if collects:
            gc.enable()
