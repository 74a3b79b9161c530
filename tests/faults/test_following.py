"""More than one command that follows the same run from the same laptop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from orchestrator.store.journal_copy import JournalCopy
from tests.support.faults import runs, world
from tests.support.project import Project


@pytest.mark.slow
def test_two_who_follow_the_same_run_from_one_laptop(project: Project, tmp_path: Path) -> None:
    """What a refused second validate is told to do, in another terminal."""
    project.commit(runs.first_and_long(2))
    workdir = tmp_path / "workdir"
    validate = runs.start(project)
    world.wait_for_event(workdir, "stage_started")
    others = [project.popen("follow", "--pod", "p", "--json") for _ in range(2)]
    for outcome in [runs.end(process) for process in (validate, *others)]:
        assert outcome.exit_code == 0, outcome.stderr
        runs.check(project, workdir, outcome, "passed", "passed", "passed")


def test_a_copy_of_the_journal_grows_by_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    copy, other = JournalCopy(file), JournalCopy(file)
    assert copy.extend(b"1\n2\n") == b"1\n2\n"
    assert other.extend(b"1\n") == b"1\n2\n", "what is there already, not what came later by another way"
    with file.open("ab") as f:
        f.write(b"half")
    assert copy.extend() == b"" and file.read_bytes() == b"1\n2\n"
    assert copy.extend(b"3\n") == other.extend() == b"3\n"


def test_copies_that_grow_at_once_hold_each_line_once(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    whole = b"".join(b"%d\n" % n for n in range(400))

    def follow() -> None:
        copy = JournalCopy(file)
        while copy.seen < len(whole):
            copy.extend(whole[copy.seen : whole.index(b"\n", copy.seen) + 1])

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert file.read_bytes() == whole


@pytest.mark.slow
def test_half_a_line_of_the_journal_is_fetched_again(project: Project, tmp_path: Path) -> None:
    """A laptop that died while it wrote leaves one."""
    project.commit(runs.files(runs.said("only", "print(1)")))
    done = runs.run(project, "validate", "--pod", "p", "--runbook", "r")
    journal = project.root / done.json["path"] / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[: len(whole) * 2 // 3])
    again = runs.run(project, "fetch", "--pod", "p", done.json["run_id"])
    runs.check(project, tmp_path / "workdir", again, "passed", "passed")
