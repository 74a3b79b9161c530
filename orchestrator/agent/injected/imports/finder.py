"""Who looks at modules is told when one is imported."""

from __future__ import annotations

import sys
from sys import _getframe  # bound here, as in `hooks`

from ..frames import importing
from ..hooks import replace, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable, Collection, Mapping, Sequence

    After = Callable[[ModuleType], None]
    Ended = Callable[[ModuleType, "BaseException | None", FrameType], None]


class Finder:
    """A meta path finder that finds nothing: it only looks at what the others find.

    `sought` is told of each name that is looked up. Of modules in files of the `tree`, which provides the top-level
    `names`, all in `begun` are told before one runs, and all in `ended` how that ended, with the frame that runs it.
    """

    def __init__(self, tree: str, names: Collection[str], sought: Callable[[str], None]) -> None:
        self._tree = tree
        self._names = frozenset(names)
        self._sought = sought
        self._after: dict[str, list[After]] = {"_pytest.assertion.rewrite": [self._watch_rewriting]}
        self.begun: list[After] = []
        self.ended: list[Ended] = []

    def when_imported(self, hooks: Mapping[str, After]) -> None:
        """Have each hook told of the module of its name; several may look at the same one, one after another."""
        for name, hook in hooks.items():
            self._after.setdefault(name, []).append(hook)

    def start(self) -> None:
        """Also with what Python itself has loaded by now."""
        sys.meta_path.insert(0, self)
        for name in self._after.keys() & sys.modules.keys():
            self._has_imported(name, sys.modules[name])

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Look up `name` as the finders after this one will, if something is to be done after its import."""
        tell(self._sought, name)
        if name not in self._after and name.partition(".")[0] not in self._names:
            return None
        others = (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        found = next(filter(None, (f.find_spec(name, path, target) for f in others)), None)
        if found is None or not hasattr(found.loader, "exec_module"):  # a mere folder of that name
            return None
        if isinstance(found.loader, type):  # of frozen modules, all of which have this one
            found.loader = _Loader(found.loader)
        self._look_at(name, found.loader)
        return found

    def _look_at(self, name: str, loader: Any) -> None:
        from _frozen_importlib_external import SourceFileLoader  # without what `importlib` takes with it

        is_ours = isinstance(loader, SourceFileLoader) and loader.path.startswith(self._tree)
        ended = [*self.ended] if is_ours else []
        if name in self._after:
            ended.append(lambda module, error, frame: self._has_imported(name, module) if error is None else None)
        if ended:
            _look_on(loader, self.begun if is_ours else (), ended)

    def _watch_rewriting(self, rewrite: ModuleType) -> None:
        """pytest's importer of what it rewrites (plugins, among them those of a tree) goes before this finder."""

        def looked_at(run: Callable[..., None]) -> Callable[..., None]:
            def exec_module(hook: Any, module: ModuleType) -> None:
                run(hook, module)
                self._has_imported(module.__name__, module)

            return importing(exec_module)  # type: ignore[no-any-return]

        replace(rewrite.AssertionRewritingHook, "exec_module", looked_at)

    def _has_imported(self, name: str, module: ModuleType) -> None:
        for hook in self._after.pop(name, ()):
            tell(hook, module)  # of a version that looks otherwise goes unwatched, and works


def _look_on(loader: Any, begun: Sequence[After], ended: Sequence[Ended]) -> None:
    """While `loader`, which was made for one look-up, runs its module: not all look-ups import."""
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        for before in begun:
            tell(before, module)
        try:
            run(module)
        except BaseException as error:
            for after in ended:
                tell(after, module, error, _getframe(1))
            raise
        for after in ended:
            tell(after, module, None, _getframe(1))

    loader.exec_module = importing(exec_module)


class _Loader:
    """A loader of one module, which is loaded by `other`."""

    def __init__(self, other: Any) -> None:
        self._other = other
        self.create_module = other.create_module

    @importing
    def exec_module(self, module: Any) -> None:
        self._other.exec_module(module)
        module.__loader__ = module.__spec__.loader = self._other
