"""What a stage may do to look green, and the honest stage beside it: the real agent, the one right status."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.verdict.rules import Judgement
from tests.support.agent_pod import SYSTEM, Pod, Run, pytest_stage
from tests.support.stage_cases import CASES, ONE_SKIPPED, Case

HIDES = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    (yield).get_result().outcome = "passed"
"""

# Slow: what the catalogue of tests/honesty takes through the whole road, again for the agent alone.
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, agent: Path, environment: dict[str, Any]) -> Run:
    """One run of all the cases, none of which leaves anything in the tree."""
    pod = Pod(tmp_path_factory.mktemp("lies"), agent, environment)
    files = {path: text for case in CASES for path, text in case.files.items()}
    return pod.run(files, *(case.stage for case in CASES), promises={"cuda": True})


@pytest.fixture(scope="module")
def judged(run: Run) -> dict[str, Judgement]:
    return run.judge()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_status(judged: dict[str, Judgement], case: Case) -> None:
    judgement = judged[case.name]
    assert judgement.status == case.status, judgement
    assert re.search(case.reason, judgement.reason), judgement.reason
    assert bool(judgement.reason) == (case.status != "passed")


def test_allowed_shortfalls_are_counted_and_all_are_listed(judged: dict[str, Judgement]) -> None:
    tests = judged["allowed_skip"].tests
    assert (tests["passed"], tests["skipped"], tests["allowed_skips"]) == (1, 1, 1)
    (listed,) = tests["not_passed"]
    assert listed["reason"] == "no GPU" and listed["allowed"]


def test_routes_are_told(judged: dict[str, Judgement]) -> None:
    assert judged["route"].routes == {"selected": {"triton@cpu:interpreted": 1}}
    assert judged["typed_gpu"].routes == {}, "nobody saw it"


def test_undeclared_artifacts_are_kept_but_not_credited(run: Run, judged: dict[str, Judgement]) -> None:
    files = [file["path"] for file in run.records["leaves_for_later"]["files"]]
    assert "artifacts/b.txt" in files
    assert [a["path"] for a in judged["leaves_for_later"].artifacts] == ["a.txt"]


def test_what_is_no_regular_file_is_named(run: Run) -> None:
    assert {"path": "artifacts/pipe", "reason": "is not a regular file"} in run.records["pipe"]["refused"]


def test_every_file_is_recorded_with_its_hash(run: Run) -> None:
    for record in run.records.values():
        for file in record["files"]:
            content = (run.path / file["path"]).read_bytes()
            if record["stage"] not in ("leaves_for_later",):  # another stage overwrote one of its artifacts
                assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])


def test_pytest_under_xdist_is_judged_alike(pod: Pod) -> None:
    pytest.importorskip("xdist")
    honest = pytest_stage("honest", "-n2", "-k", "not test_a", "test_x.py", tests={"allow_skips": ["^deselected"]})
    lying = pytest_stage("lying", "-n2", "test_x.py")
    hidden = pytest_stage("hidden", "-n2", "hidden/test_y.py")
    files = {"test_x.py": ONE_SKIPPED, "hidden/test_y.py": "def test_a(): assert 0\n", "hidden/conftest.py": HIDES}
    judged = pod.run(files, honest, lying, hidden, environment=SYSTEM).judge()
    assert [j.status for j in judged.values()] == ["passed", "skipped", "invalid"], judged
    assert "test_a raised AssertionError, but was reported passed" in judged["hidden"].reason
