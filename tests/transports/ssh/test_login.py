"""`nsa-pod ssh`: the user's own OpenSSH client, by the pod's pin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.project import Project, new_project
from tests.support.sshd import Sshd


@pytest.mark.ssh
def test_a_person_logs_in_by_the_pin(tmp_path: Path, own_sshd: Sshd) -> None:
    entry = {key: value for key, value in own_sshd.entry().items() if key != "host_key"}
    project = new_project(tmp_path, {"p": entry})
    unknown = project.run("ssh", "p", "--", "true")
    assert unknown.exit_code == 4 and "is new and its host key" in unknown.stderr
    first = project.run("ssh", "p", "--accept-new-host-key", "--", "echo $HOME; exit 3")
    assert first.exit_code == 3 and first.stdout.strip(), first.stderr
    assert project.run("ssh", "p", "--", "exit 255").exit_code == 255
    assert project.run("ssh", "--pod", "p", "--", "-v", "echo", "again", NSA_POD_DEFAULT="q").stdout == "again\n"
    own_sshd.new_host_key()
    changed = project.run("ssh", "p", "--", "true")
    assert changed.exit_code == 4 and "REMOTE HOST IDENTIFICATION HAS CHANGED" in changed.stderr
    assert changed.stderr.splitlines()[-1].startswith("error: pod 'p' changed its host key"), changed.stderr


def test_this_machine_needs_no_ssh(project: Project) -> None:
    refused = project.run("ssh", "local")
    assert refused.exit_code == 2
    assert refused.stderr == "error: pod 'local' is this machine: expected a pod that is reached by SSH\n"
