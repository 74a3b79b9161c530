"""What the wheel holds: the tool and the library, without benches, tools and tests."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.support import ROOT

TOOLS = tuple(f"nsa/{path.name}" for path in (ROOT / "nsa/tools").glob("[!_]*.py"))  # and the entry points of that name
LEFT_OUT = ("nsa/bench", "nsa/tests", "nsa/tools", *TOOLS)


@pytest.fixture(scope="module")
def shipped() -> list[str]:
    return [file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()]


def test_the_list_of_files(shipped: list[str]) -> None:
    folders = Counter("/".join(path.split("/")[:2]) for path in shipped if path.startswith("nsa/"))
    there = {path.name for path in (ROOT / "nsa").iterdir() if path.name != "__pycache__"}
    assert set(folders) == {f"nsa/{name}" for name in there} - set(LEFT_OUT)
    assert {path.split("/")[0] for path in shipped} == {"nsa", "orchestrator"}
    assert {"nsa/kernels/tuning/table.json", "nsa/providers/selected.cu"} < set(shipped)
    assert {path.name for path in (ROOT / "runbooks").glob("*.yaml")} < {
        path.removeprefix("orchestrator/examples/runbooks/") for path in shipped
    }


def test_nothing_in_it_imports_what_is_left_out(shipped: list[str]) -> None:
    names = "|".join(path.removesuffix(".py").replace("/", r"\.") for path in LEFT_OUT)
    absent = re.compile(rf"^\s*(from|import) ({names})\b", re.M)
    modules = [path for path in shipped if path.endswith(".py")]
    assert len(modules) > 300
    assert not [path for path in modules if absent.search((ROOT / path).read_text())]
