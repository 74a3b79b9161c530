"""Secrets planted wherever a value can enter, looked for wherever one could come out."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import proc
from tests.support.agent_pod import Pod, artifact, script, stage
from tests.support.project import Project
from tests.support.two_stages import journal_lines
from tests.support.waiting import wait_for

# Each a value that no other text holds; the laptop's environment has the last two.
TOKEN = "hf_PLANTEDtokenPLANTED"
PROXY_PASSWORD = "PLANTEDproxyPASSWORD"
INVENTORY_SECRET = 'PLANTED "quoted" \\ & <x>'
FROM_ENV = "PLANTED-from-the-laptop"
KEY = "-----BEGIN KEY-----\nPLANTEDMIIEvQIBADANBgkq\nPLANTEDhkiG9w0BAQEFAASC\n-----END KEY-----"
PLANTED = ("PLANTED", "UExBTlRFR", "PLANTED%20")  # as it is, in base64, in a URL: part of each form of each value
ON_LAPTOP = {"MY_SECRET": FROM_ENV, "HF_TOKEN": TOKEN, "DEPLOY_KEY": KEY}

SAY = """\
import base64, json, os, pathlib, subprocess, sys, time, urllib.parse
names = ["HF_TOKEN", "PROXY", "QUOTED", "TAKEN", "DEPLOY"]
values = [os.environ[name] for name in names]
assert all("PLAN" "TED" in value for value in values)
for value in values:
    print(value, json.dumps(value), repr(value), urllib.parse.quote(value), base64.b64encode(value.encode()).decode())
    sys.stderr.write("E   " + value.replace("\\n", "\\nE   ") + "\\n")
    for byte in value.encode():
        sys.stdout.buffer.write(bytes([byte]))
        sys.stdout.buffer.flush()
def command(process):
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
print("in arguments:", sum(values[0].encode() in command(p) for p in pathlib.Path("/proc").glob("[0-9]*")))
print("ends with", values[0])
"""
LEAK = """\
import os, pathlib, subprocess, sys
out = pathlib.Path(os.environ["NSA_POD_ARTIFACTS"])
(out / "clean.txt").write_text("nothing here")
(out / "leak.txt").write_text("x" * 100000 + os.environ["HF_TOKEN"])
(out / "more").mkdir()
(out / "more" / os.environ["TAKEN"]).write_text("named after a secret")
pathlib.Path("stray.txt").write_text(os.environ["HF_TOKEN"])
pathlib.Path("made.txt").write_text(os.environ["HF_TOKEN"])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", os.environ["HF_TOKEN"]])
"""
TEST = """\
import os, pytest

@pytest.mark.parametrize("value", [os.environ["HF_TOKEN"]])
def test_named(value): print(os.environ["QUOTED"])

def test_property(record_property): record_property("token", os.environ["HF_TOKEN"])
def test_fails(): assert os.environ["QUOTED"] + os.environ["HF_TOKEN"] == ""
def test_skips(): pytest.skip("without " + os.environ["HF_TOKEN"])
"""
RUNBOOK = """\
name: r
environment: {python: system}
env: {HF_TOKEN: {from_env: HF_TOKEN}}
stages:
  - name: say
    run: [python, say.py]
    env: {TAKEN: {from_env: MY_SECRET}}
    expect: {artifacts: [{path: said.txt, from: stdout}]}
  - name: tests
    run: [python, -m, pytest, tests/test_it.py]
    required: false
  - name: leak
    run: [python, leak.py]
    required: false
    env: {TAKEN: {from_env: MY_SECRET}}
    expect: {artifacts: [{path: clean.txt}, {path: leak.txt}, {path: made.txt, from: "tree:made.txt"}]}
"""
FILES = {"runbooks/r.yaml": RUNBOOK, "say.py": SAY, "leak.py": LEAK, "tests/test_it.py": TEST}


def plant(project: Project) -> None:
    """Secrets in the inventory; `local` and ssh pods alike have nothing else in common."""
    pods = json.loads(project.inventory.read_text())["pods"]
    pods["p"]["env"] = {
        "PROXY": f"http://user:{PROXY_PASSWORD}@proxy.example:1",
        "QUOTED": {"secret": INVENTORY_SECRET},
        "DEPLOY": {"from_env": "DEPLOY_KEY"},
    }
    project.inventory.write_text(json.dumps({"pods": pods}))


def holders(*folders: Path) -> list[str]:
    """Files below the folders that hold something planted, or are named after it."""
    return [str(path) for folder in folders for path in files(folder) if is_planted(path)]


def files(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.rglob("*") if path.is_file())


def is_planted(path: Path) -> bool:
    content = path.read_bytes()
    return "PLANTED" in path.name or any(form.encode() in content for form in PLANTED)


def test_no_secret_is_written_down_anywhere(any_project: Project) -> None:
    any_project.commit(FILES)
    plant(any_project)
    own = {**ON_LAPTOP, "HF_TOKEN": f"{TOKEN}{any_project.root.parent.name}"}  # in no other test's command lines
    outcome = any_project.run("validate", "--pod", "p", "--runbook", "r", "--json", "-v", **own)
    assert outcome.exit_code == 0, outcome.stderr
    result = outcome.json
    directory = any_project.root / result["path"]
    said = (directory / "artifacts" / "said.txt").read_text()
    assert "in arguments: 0" in said and said.endswith("ends with ***HF_TOKEN***\n")
    for name in ("HF_TOKEN", "PROXY", "QUOTED", "TAKEN", "DEPLOY"):
        assert f"***{name}***" in said
    assert "E   ***DEPLOY***" in (directory / "stages/say/stderr").read_text()

    report = any_project.here("report", "--markdown")
    shown = any_project.here("report")
    for text in (outcome.stdout, outcome.stderr, report.stdout, shown.stdout, shown.stderr):
        assert not any(form in text for form in PLANTED)
    key = Path(json.loads(any_project.inventory.read_text())["pods"]["p"].get("identity_file", "/no/such_key")).name
    assert not any(key.encode() in path.read_bytes() for path in files(any_project.root / "artifacts"))
    assert key not in outcome.stdout + outcome.stderr + report.stdout
    workdir = any_project.root.parent / "workdir"
    assert holders(any_project.root / "artifacts", any_project.home, workdir / "runs", workdir / "envs") == []

    plan = json.loads((directory / "plan.json").read_text())
    assert plan["stages"][0]["secrets"] == ["DEPLOY", "HF_TOKEN", "PROXY", "QUOTED", "TAKEN"]
    say, tests, leak = result["stages"]
    assert (say["status"], tests["status"], leak["status"]) == ("passed", "failed", "invalid")
    assert tests["tests"]["passed"] == 2 and "***QUOTED***...***HF_TOKEN***" in tests["reason"]
    assert leak["reason"] == "artifact leak.txt holds the value of HF_TOKEN: it was removed"
    assert any("secret values were replaced in its stdout" in note for note in say["notes"])
    notes = "\n".join(leak["notes"])
    for file in ("artifacts/leak.txt", "artifacts/made.txt"):
        assert f"{file} was left out: holds the value of HF_TOKEN" in notes
    assert "***TAKEN*** was left out: has a secret value in its name" in notes
    assert "time.sleep(60) ***HF_TOKEN***" in notes
    assert (directory / "artifacts" / "clean.txt").read_text() == "nothing here"


@pytest.mark.slow
@pytest.mark.parametrize("any_project", ["ssh"], indirect=True)
def test_the_launch_needs_nobody_and_the_values_are_in_memory_only(any_project: Project) -> None:
    """The laptop is killed; the stage still gets its secret, and no file on the pod held it meanwhile."""
    tool = "import os, time\ntime.sleep(3)\nprint(len(os.environ['HF_TOKEN']))\n"
    any_project.commit({"runbooks/r.yaml": RUNBOOK.split("  - name: tests")[0], "say.py": tool})
    process = any_project.popen("validate", "--pod", "p", "--runbook", "r", **ON_LAPTOP)
    try:
        wait_for(lambda: any("stage_started" in line for line in journal_lines(any_project)))
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    workdir = any_project.root.parent / "workdir"
    assert holders(workdir, any_project.home) == []
    outcome = any_project.here("fetch", "--pod", "p", "--json")  # without the secrets: they are not needed any more
    assert outcome.exit_code == 0, outcome.stderr
    assert (any_project.root / outcome.json["path"] / "artifacts/said.txt").read_text() == f"{len(TOKEN)}\n"


@pytest.mark.parametrize(
    ("runbook", "sentence"),
    [
        (RUNBOOK, "the variable HF_TOKEN is not set here"),
        (RUNBOOK.replace("{from_env: HF_TOKEN}", "hf_PLANTED").replace("say.py]", "say.py, hf_PLANTED]", 1),
         "the secret HF_TOKEN also stands in another part of the plan"),
        (RUNBOOK.replace("{from_env: HF_TOKEN}", "{secret: [hf_PLANTED]}"), "got a list"),
        (RUNBOOK.replace("{from_env: HF_TOKEN}", "{sekret: hf_PLANTED}"), "did you mean secret"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_a_pod_is_contacted_and_without_the_value(
    project: Project, runbook: str, sentence: str
) -> None:
    project.commit({**FILES, "runbooks/r.yaml": runbook})
    outcome = project.validate("--runbook", "r", MY_SECRET=FROM_ENV)
    assert (outcome.exit_code, outcome.json["verdict"]) == (2, "error")
    assert sentence in outcome.json["error"], outcome.json
    assert "PLANTED" not in outcome.stdout + outcome.stderr
    assert not (project.root.parent / "workdir").exists()


def test_a_secret_in_the_commit_is_said(project: Project) -> None:
    runbook = RUNBOOK.split("  - name: tests")[0].replace("{from_env: HF_TOKEN}", TOKEN)
    project.commit({**FILES, "runbooks/r.yaml": runbook, "say.py": "print(1)\n"})
    outcome = project.validate("--runbook", "r", MY_SECRET=FROM_ENV)
    assert outcome.exit_code == 0, outcome.stderr
    assert "the commit holds the secret HF_TOKEN in runbooks/r.yaml" in outcome.stderr
    assert TOKEN not in outcome.stderr + outcome.stdout
    assert holders(project.root / "artifacts") == []


def test_a_launch_without_its_values_is_refused(pod: Pod) -> None:
    run = pod.prepare({}, [stage("s", script("print(1)"), secrets=["HF_TOKEN"])])
    refused = pod.call("launch", str(run.path), check=False)
    assert "stage s needs the secret HF_TOKEN" in json.loads(refused.stdout)["error"]
    wrong = pod.call("launch", str(run.path), input=b'{"s": {"HF_TOKEN": ["hf_PLANTED"]}}', check=False)
    assert wrong.returncode == 1 and b"PLANTED" not in wrong.stdout + wrong.stderr
    assert run.events == []
    expect = {"artifacts": [artifact("out.txt", from_="stdout")]}
    again = pod.prepare({}, [stage("s", script("import os; print(os.environ['T'])"), secrets=["T"], expect=expect)])
    pod.call("launch", str(again.path), input=b'{"s": {"T": "hf_PLANTED"}}')
    assert again.wait().judge()["s"].status == "passed"
    assert again.text("artifacts/out.txt") == "***T***\n" and holders(again.path) == []


def test_a_flood_of_output_is_redacted_in_bounded_memory(pod: Pod) -> None:
    """64 MiB with a value in every line, on a log of 1 MiB: none of it is there, and the agent stays small."""
    code = "import os\nlines = ('x' * 90 + os.environ['T'] + '\\n') * 655\nfor _ in range(1024): print(lines, end='')"
    run = pod.prepare({}, [stage("s", script(code), secrets=["T"])])
    pid = json.loads(pod.call("launch", str(run.path), input=b'{"s": {"T": "PLANTED_12"}}').stdout)["pid"]
    most = 0
    while run.ending is None:
        most = max(most, proc.peak_kib(pid))
    assert run.records["s"]["truncated"]["stdout"] > 60 << 20 and holders(run.path) == []
    assert 0 < most < 100 * 1024  # KiB


def test_a_build_of_an_environment_says_no_secret(pod: Pod, uv: Path) -> None:
    """The builder fails on an index that cannot be reached, and complains with all that it was given."""
    bad = {"name": "x", "version": "1", "url": "https://u:PLANTEDpassword@127.0.0.1:9/x-1-py3-none-any.whl"}
    request = {
        "format": 1, "requirements": [], "indexes": [], "pins": {}, "cuda": None, "profile": "p", "disk_bytes": 0,
        "python": {"version": ".".join(map(str, sys.version_info[:2])), "path": pod.python},
        "wheels": [{**bad, "required": True, "source": None}], "secrets": ["INDEX"],
        "variables": {"INDEX": "https://u:PLANTEDpassword@127.0.0.1:9", "PATH": f"{uv.parent}:/usr/bin:/bin"},
    }  # fmt: skip
    place = ["--workdir", str(pod.workdir)]
    job = json.loads(pod.call("env", "build", *place, input=json.dumps(request).encode()).stdout)["job"]
    told = {"state": "running"}
    while told["state"] == "running":
        told = pod.ask("env", "wait", *place, job, "--wait", "30")
    assert told["state"] == "failed", told
    assert "PLANTED" not in json.dumps(told)
    assert holders(pod.workdir) == []
