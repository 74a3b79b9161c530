"""`cancel` without a run ends one of one's own, not whatever holds a pod that others use too."""

from __future__ import annotations

from dataclasses import replace

from tests.support.gated_run import commit, finish, validate, wait_until_waiting
from tests.support.project import Project


def test_without_a_run_one_of_a_stranger_is_left_alone(project: Project) -> None:
    commit(project)
    others = replace(project, root=project.root.parent / "others", home=project.root.parent / "stranger")
    others.root.mkdir()
    others.git("init", "-q", "-b", "main")
    others.commit({"a.txt": "a\n"})
    running = validate(project)
    run_id = wait_until_waiting(project)
    refused = others.here("cancel", "--pod", "local", "--json")
    assert refused.exit_code == 4
    assert f"none of this laptop's, nor of the repository {others.root}" in refused.json["error"]
    assert f"nsa-pod cancel --pod local {run_id}" in refused.json["error"]
    assert others.here("cancel", "--pod", "local", "--json", "--repo", "none").exit_code == 2
    named = others.here("cancel", "--pod", "local", "--json", "--repo", str(project.root))
    assert named.json == {"cancelled": run_id}
    assert finish(running).json["verdict"] == "incomplete"


def test_a_run_of_this_laptop_needs_no_name_anywhere(project: Project) -> None:
    commit(project)
    running = validate(project)
    run_id = wait_until_waiting(project)
    nowhere = replace(project, root=project.root.parent)
    stranger = replace(nowhere, home=project.root.parent / "stranger")
    refused = stranger.here("cancel", "--pod", "local", "--json")
    assert (refused.exit_code, "none of this laptop's" in refused.json["error"]) == (4, True)
    assert nowhere.here("cancel", "--pod", "local", "--json").json == {"cancelled": run_id}
    assert finish(running).json["verdict"] == "incomplete"
