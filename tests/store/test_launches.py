"""What this laptop remembers of its launches; one damaged record blocks no command that does not need it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import InputError
from orchestrator.store import launches
from orchestrator.store.launches import Launch
from tests.support.project import Project
from tests.support.two_stages import FILES


@pytest.mark.parametrize("text", ["", "{}", '{"run_id": 1}', "[" * 9_999, '"text"'])
def test_a_damaged_record_hides_no_other(laptop: Path, text: str) -> None:
    kept = Launch("20260101T000000Z-a", "p", "c", "/repo", "/d")
    launches.remember(kept)
    damaged = launches.file_of("20260102T000000Z-b")
    damaged.write_text(text)
    assert launches.launches() == launches.launches(Pod(name="p", host="h")) == [kept]
    assert launches.damaged() == [damaged.stem]
    assert launches.launch_of(kept.run_id) == launches.launch_of("20260101") == kept
    with pytest.raises(InputError, match=r"-b\.json is damaged: expected the record of a launch; delete it to go on"):
        launches.launch_of(damaged.stem)


def test_pods_of_one_name_in_two_inventories_have_launches_of_their_own(laptop: Path) -> None:
    old = Launch("20260101T000000Z-a", "gpu", "c", "/repo", "/d")
    one, other = (Launch(f"2026010{n}T000000Z-b", "gpu", "c", "/repo", "/d", "", f"/{n}/pods.yaml") for n in (2, 3))
    for launch in (old, one, other):
        launches.remember(launch)
    pods = [Pod(name="gpu", host="h", inventory=f"/{n}/pods.yaml") for n in (2, 3)]
    assert [launches.launches(pod) for pod in pods] == [[one, old], [other, old]]


@pytest.mark.parametrize("dates", [("29990101", "20260101"), ("20260101", "29990101"), ("20260102", "20260101")])
def test_the_last_launch_is_the_newest_whatever_clock_dated_it(laptop: Path, dates: tuple[str, str]) -> None:
    first, last = (Launch(f"{date}-000000-abcdef0-00000000", "p", "c", "/repo", "/d") for date in dates)
    launches.remember(first)
    launches.remember(last)
    assert launches.launches() == [last, first]


@pytest.mark.slow
def test_commands_go_on_beside_a_damaged_record_but_no_older_run_stands_in_for_it(project: Project) -> None:
    project.commit(FILES)
    launched = project.validate("--runbook", "r")
    damaged = project.home / "runs" / "99990101T000000Z-of-a-launch.json"
    damaged.write_text("{")
    again = project.validate("--runbook", "r")
    assert (launched.exit_code, again.exit_code) == (0, 0), again.stderr
    assert project.here("fetch", "--pod", "local", again.json["run_id"]).exit_code == 0
    newest = project.here("fetch", "--pod", "local")
    assert newest.exit_code == 2 and f"{damaged.name} is damaged" in newest.stderr
    damaged.rename(damaged.with_name("20000101T000000Z-of-an-old-one.json"))
    assert project.here("fetch", "--pod", "local", "--json").json["run_id"] == again.json["run_id"]


def test_launches_that_cannot_be_read_are_said_to_be_and_none_is_taken_for_none(laptop: Path) -> None:
    """As under sudo, which leaves HOME another user's: bad input, and known before any pod is asked."""
    assert launches.launches() == []
    folder = launches.file_of("x").parent
    folder.symlink_to(folder)
    with pytest.raises(InputError, match=r"runs: expected the runs that were launched .* cannot be read: "):
        launches.launches()
