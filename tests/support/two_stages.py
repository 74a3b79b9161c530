"""A repository with a runbook of two stages, pytest and a tool, and the journal that its run writes on the pod."""

from __future__ import annotations

from tests.support.project import Project

RUNBOOK = """\
name: r
environment: {python: system}
stages:
  - name: tests
    run: [python, -m, pytest, -q, tests/test_it.py]
    expect: {artifacts: [{path: tests.txt, from: stdout}]}
  - name: tool
    run: [python, tool.py, "{artifacts}", "{commit}"]
    expect:
      artifacts:
        - {path: t.csv, kind: csv, columns: [S, ms], min_rows: 2, checks: [{finite: all}]}
        - {path: commit.txt}
"""
TOOL = """\
import pathlib, subprocess, sys, time
out = pathlib.Path(sys.argv[1])
out.joinpath('t.csv').write_text('S,ms\\n1,2\\n3,4\\n')
head = subprocess.run(['git', 'rev-parse', 'HEAD'], capture_output=True, text=True, check=True).stdout.strip()
assert head == sys.argv[2]
out.joinpath('commit.txt').write_text(head)
"""
FILES = {"runbooks/r.yaml": RUNBOOK, "tests/test_it.py": "def test_it(): assert True\n", "tool.py": TOOL}


def journal_lines(project: Project) -> list[str]:
    """The lines of the laptop's copies of all journals."""
    journals = (project.root / "artifacts" / "runner").glob("*/*/journal.jsonl")
    return [
        line for journal in journals if not journal.parent.is_symlink() for line in journal.read_text().splitlines()
    ]
