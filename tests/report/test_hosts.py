"""Reports to be shared: planted hosts, addresses, users, ports and homes are in no form of them."""

from __future__ import annotations

import json
import socket

import pytest

from orchestrator.report.hosts import Hosts
from orchestrator.tasks.report import FORMS
from tests.support.project import Project

HOSTS = Hosts({"pod_7.example.org": "[host]", "pod_7": "[host]", "alice": "[user]", "10645": "[port]", "/srv/a": "~"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ssh root@203.0.113.10:10645 as alice", "ssh [user]@[host]:[port] as [user]"),
        ("cannot reach 203.0.113.10:22, port 2222", "cannot reach [ip]:[port], port [port]"),
        ("pod_7.example.org:80 and pod\\_7", "[host]:[port] and [host]"),
        ("fe80::1 and 2001:db8:0:0:0:0:0:7 and ::1", "[ip] and [ip] and [ip]"),
        ("/home/bob/.ssh/id, /Users/bob/x, /root/x, /srv/a/x", "~/.ssh/id, ~/x, ~/x, ~/x"),
        ("GPU-de4a9f89-a597-d22f-6f63-6a49ca264c6f", "[id]"),
        # what is none of it
        ("route.selected: triton@cuda:sm_90, fa2@cpu", "route.selected: triton@cuda:sm_90, fa2@cpu"),
        ("test_it.py::test_a at 05:17:48, torch 2.4.0+cu121", "test_it.py::test_a at 05:17:48, torch 2.4.0+cu121"),
        ("malice, alice2, /rooted, tests/root", "malice, alice2, /rooted, tests/root"),
        ("median 1755 MHz, 106450 rows, 1.10645", "median 1755 MHz, 106450 rows, 1.10645"),
    ],
)  # fmt: skip
def test_what_is_taken_out_and_what_stays(text: str, shown: str) -> None:
    assert HOSTS.text(text) == shown


RUNBOOK = """\
name: r
environment: {python: system}
stages:
  - name: s
    run: [python, -m, pytest, tests/test_it.py]
    expect: {artifacts: [{path: rows.csv, from: 'tree:rows.csv', kind: csv}]}
"""
TEST = """\
import pathlib, pytest, socket

def test_it():
    host = socket.gethostname()
    pathlib.Path("rows.csv").write_text(f"host,ms\\n{host},1.5\\nroot@203.0.113.77:10645,2.5\\n")

def test_skips():
    pytest.skip(f"no GPU on {socket.gethostname()} at 203.0.113.77, port 10645, see /home/alice/.ssh for planteduser")
"""


@pytest.mark.slow
def test_no_form_of_a_shared_report_tells_whose_machine_it_was(project: Project) -> None:
    project.commit({"runbooks/r.yaml": RUNBOOK, "tests/test_it.py": TEST})
    pods = json.loads(project.inventory.read_text())["pods"]
    pods["rented"] = {"host": "planted-host.example", "user": "planteduser", "port": 10645}
    project.inventory.write_text(json.dumps({"pods": pods}))
    assert project.validate("--runbook", "r").stage("s")["status"] == "skipped"
    planted = (socket.gethostname(), "203.0.113.77", "10645", "/home/alice", "planteduser", "planted-host")
    assert all(word in project.here("report", "--markdown").stdout for word in ("203.0.113.77", "planteduser", "10645"))
    for form in ([], ["--json"], ["--markdown"], *(["--format", name] for name in FORMS)):
        shared = project.here("report", *form, "--redact-hosts")
        assert shared.exit_code == 3, shared.stderr
        if form == ["--json"]:
            assert shared.json["stages"][0]["tests"]["passed"] == 1
        assert not [word for word in planted if word in shared.stdout], shared.stdout
        assert "no GPU on" in shared.stdout
