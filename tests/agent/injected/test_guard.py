"""What the guard does to modules that it waits for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.agent.injected import guard

pytestmark = pytest.mark.unit


class InOrOut:
    """As coverage's: of each file, why it is not measured."""

    def check_include_omit_etc(self, filename: str, frame: object) -> str | None:
        return "is installed" if "site-packages" in filename else None


def test_coverage_measures_no_code_of_the_agent() -> None:
    guard._leave_out_of_coverage(SimpleNamespace(InOrOut=InOrOut))
    own = Path(guard.__file__).resolve()
    why = {name: InOrOut().check_include_omit_etc(name, None) for name in (str(own), "/a/b.py", "/site-packages/c.py")}
    assert why == {str(own): "is the agent's", "/a/b.py": None, "/site-packages/c.py": "is installed"}
