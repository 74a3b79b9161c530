"""The plugin's hooks, in either style of pluggy's wrappers: pluggy has the new one from 1.2 on."""

from __future__ import annotations

import importlib.util
from types import ModuleType, SimpleNamespace
from typing import Any

import pluggy
import pytest
from _pytest import hookspec

from orchestrator.agent.injected import pytest_plugin


class _OldMarker(pluggy.HookimplMarker):
    """As it was before 1.2."""

    def __call__(self, function: Any = None, hookwrapper: bool = False, **order: bool) -> Any:  # type: ignore[override]
        return super().__call__(function, hookwrapper=hookwrapper, **order)


@pytest.mark.parametrize("marker", [pluggy.HookimplMarker, _OldMarker])
def test_a_report_goes_through_whatever_the_style(marker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest, "hookimpl", marker("pytest"))
    spec = importlib.util.spec_from_file_location(pytest_plugin.__name__ + "_again", pytest_plugin.__file__)
    assert spec is not None and spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    plugin._guard = SimpleNamespace(look_at_kernels=lambda test: None)  # type: ignore[attr-defined]
    looks_on, makes = ModuleType("looks_on"), ModuleType("makes")
    looks_on.pytest_runtest_makereport = plugin.pytest_runtest_makereport  # type: ignore[attr-defined]
    report = SimpleNamespace(passed=True, failed=False)
    makes.pytest_runtest_makereport = pytest.hookimpl(lambda item, call: report)  # type: ignore[attr-defined]
    manager = pluggy.PluginManager("pytest")
    manager.add_hookspecs(hookspec)
    for each in (looks_on, makes):
        manager.register(each)
    implementation = manager.hook.pytest_runtest_makereport.get_hookimpls()[-1]
    assert implementation.hookwrapper is (marker is _OldMarker)
    call = SimpleNamespace(excinfo=None, when="call")
    assert manager.hook.pytest_runtest_makereport(item=SimpleNamespace(), call=call) is report
    assert vars(report)["nsa_pod_called"] is True
