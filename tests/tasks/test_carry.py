"""What a pod cannot fetch itself is carried there from the laptop, and counts when it arrived whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.errors import EnvironmentFailed, PodError
from orchestrator.files import Writer
from orchestrator.git.folder import Folder
from orchestrator.pod.facts import probe
from orchestrator.tasks.bootstrap import Options, bootstrap
from tests.support.local_agent import Told, agent_on
from tests.support.sshd import Sshd
from tests.support.wheels import make_uv_wheel, make_wheel

TOOL = EnvironmentSpec(extra=["tool<2"])
SAID = "the pod cannot get uv: carrying it there"


@pytest.fixture(
    params=[
        pytest.param("local", marks=[pytest.mark.process, pytest.mark.slow]),
        pytest.param("ssh", marks=pytest.mark.ssh),
    ]
)
def bare(request: pytest.FixtureRequest, tmp_path: Path, index: str) -> Pod:
    """A pod with an index of packages, but no uv: neither of its own nor in the index."""
    place = {"workdir": str(tmp_path / "w")}
    variables = {"PIP_INDEX_URL": index, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": ""}
    variables.update(PATH="/usr/bin:/bin", HOME=str(tmp_path))
    if request.param == "local":
        return Pod(name="here", transport="local", **place, env=variables)
    sshd: Sshd = request.getfixturevalue("sshd")
    return sshd.pod(**place, env=variables)


@pytest.fixture
def laptop_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where the laptop's pip gets packages from."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "laptop"))
    return tmp_path / "laptop"


def carried(pod: Pod) -> list[str]:
    return [path.name for path in Path(pod.workdir).glob("tools/carried/*/*.whl")]


def test_uv_is_carried_to_a_pod_that_cannot_get_it_and_stays_there(bare: Pod, uv: Path, laptop_has: Path) -> None:
    wheel = make_uv_wheel(laptop_has, uv)
    told = Told()
    with agent_on(bare) as agent:
        found = bootstrap(agent, probe(agent), TOOL, told)
        assert found["packages"] == {"part": "1.5", "tool": "1.0"} and found["installer"].startswith("uv ")
        assert told.lines.count(SAID) == 1 and carried(bare) == [wheel.name]
        wheel.unlink()
        again = Told()
        bootstrap(agent, probe(agent), EnvironmentSpec(extra=["part"]), again)
    assert SAID not in again.lines


def test_where_the_laptop_has_none_either_one_sentence_says_what_to_do(bare: Pod, laptop_has: Path) -> None:
    with agent_on(bare) as agent, pytest.raises(EnvironmentFailed) as failed:
        bootstrap(agent, probe(agent), TOOL, Told())
    sentence = str(failed.value)
    assert sentence.startswith(f"pod {bare.name!r}: environment: the pod has no uv 0.7 or newer, and cannot get it: ")
    assert "; and this machine cannot get uv for the pod: " in sentence
    assert sentence.endswith(": install uv on the pod (pip install uv)") and "\n" not in sentence


def test_it_is_carried_once_and_not_again_where_it_does_not_run(bare: Pod, tmp_path: Path, laptop_has: Path) -> None:
    make_uv_wheel(laptop_has, tmp_path / "not" / "there")
    told = Told()
    with agent_on(bare) as agent, pytest.raises(EnvironmentFailed, match="the fetched one does not run there"):
        bootstrap(agent, probe(agent), TOOL, told)
    assert told.lines.count(SAID) == 1


def test_what_changed_on_the_way_does_not_count(
    bare: Pod, tmp_path: Path, uv: Path, laptop_has: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_uv_wheel(laptop_has, uv)
    make_wheel(tmp_path / "house", "tool", "0.5")

    def damaged(self: Folder, blobs: Sequence[str], out: Writer, skip: int = 0) -> None:
        [blob] = blobs
        [size] = self.sizes(blobs)
        out.write(f"{blob} blob {size}\n".encode() + bytes(size) + b"\n")

    monkeypatch.setattr(Folder, "write_blobs", damaged)
    with agent_on(bare) as agent:
        with pytest.raises(PodError, match=r"uv-\S+\.whl did not arrive whole"):
            bootstrap(agent, probe(agent), TOOL, Told())
        with pytest.raises(PodError, match=r"tool-0.5-py3-none-any\.whl did not arrive whole"):
            bootstrap(agent, probe(agent), TOOL, Told(), Options(wheelhouse=tmp_path / "house"))
    assert carried(bare) == [] and list(Path(bare.workdir, "wheelhouses").iterdir()) == []
