"""The run as a whole: ended from outside, nothing owed, another plan, another run, another machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.honesty.case import Case, Stage, first, lie, truth, twice
from tests.support.project import Outcome, Project, with_pod
from tests.support.stage_cases import ONE_SKIPPED, TWO, artifact, makes, runs, tests

AT_SIGTERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("SUCCESS", flush=True), sys.exit(0)))
print("working", flush=True)
time.sleep({})
"""
FORGES_JOURNAL = "import os; open(os.environ['NSA_POD_ARTIFACTS'] + '/../journal.jsonl', 'a').write('{}\\n'); print(1)"
RELAXES_PLAN = """
import json
path = here + "/../plan.json"
plan = json.load(open(path))
for stage in plan["stages"]:
    if "tests" in stage["expect"]:
        stage["expect"]["tests"]["allow_skips"] = [".*"]
json.dump(plan, open(path, "w"))
"""
ONCE = """
import os, pathlib
done = pathlib.Path(os.environ["TRITON_CACHE_DIR"], "once")
if not done.exists():
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()
    pathlib.Path(here, "once.txt").write_text("measured")
"""
SMI = """\
#!/bin/sh
case "$*" in
    *--query-gpu=*) echo "0, GPU-{1}, NVIDIA {0}, 550.90.07, 24564, 1, 0, 8.9" ;;
    *) echo "| NVIDIA-SMI 550.90.07   Driver Version: 550.90.07   CUDA Version: 12.4 |" ;;
esac
"""
KILLS_AGENT_ONCE = """
import pathlib, signal, time
done = pathlib.Path(os.environ["TRITON_CACHE_DIR"], "killed")
if not done.exists():
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
"""
TIMES_ON_GPU = "import torch\ntorch.cuda.used = {}\nprint('1.5 ms')\n"
PYTEST = ["python", "-m", "pytest", "-q", "t/test_it.py"]
SKIPS = ["python", "-m", "pytest", "-q", "skips/test_it.py"]
OUT = {"artifacts": [{"path": "out.txt", "from": "stdout"}]}


# What is done to a run at home --------------------------------------------------------------------------------------


def edits(file: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    """Change the content of a JSON file of the run."""

    def tamper(directory: Path) -> None:
        content = json.loads((directory / file).read_text())
        change(content)
        (directory / file).write_text(json.dumps(content))

    return tamper


def call_passed(result: dict[str, Any]) -> None:
    result["verdict"] = "passed"
    for stage in result["stages"]:
        stage.update(status="passed", reason="")


def name_another_commit(plan: dict[str, Any]) -> None:
    plan["commit"] = "0" * 40


def ask_for_less(plan: dict[str, Any]) -> None:
    plan["stages"] = plan["stages"][:1]


def improve_figure(directory: Path) -> None:
    (directory / "artifacts" / "figures.csv").write_text("ms\n0.5\n")


def change_exit_codes(directory: Path) -> None:
    file = directory / "journal.jsonl"
    file.write_text(file.read_text().replace('"exit_code":1', '"exit_code":0'))


def nothing(directory: Path) -> None:
    """Leave the run as it is."""


# What is done with a repository -------------------------------------------------------------------------------------


def fetched_by_a_colleague(project: Project) -> Outcome:
    """Validate; then fetch the run as someone who has no plan of it."""
    project.validate("--runbook", "r")
    colleague = str(project.root.parent / "colleague")
    return project.run("fetch", "--pod", "local", "--json", "--artifacts", colleague, NSA_POD_HOME=colleague)


def fetched_again(project: Project) -> Outcome:
    """Validate, and fetch the same run."""
    assert project.validate("--runbook", "r").exit_code == 0
    return project.run("fetch", "--pod", "local", "--json")


def launched_in_vain(project: Project) -> Outcome:
    """Validate; launch again, but so that the pod never hears of it; fetch."""
    green = project.validate("--runbook", "r")
    assert green.exit_code == 0
    launches = project.home / "runs"
    launch = json.loads((launches / f"{green.json['run_id']}.json").read_text())
    # What a laptop leaves that died between its note and the launch.
    launch["run_id"] = f"29990101-000000-{launch['commit'][:7]}-00000000"
    (launches / f"{launch['run_id']}.json").write_text(json.dumps(launch))
    return project.run("fetch", "--pod", "local", "--json")


def on_gpu(found: str) -> Callable[[Project], Outcome]:
    """Validate on a pod that promises an RTX 4090, and whose driver shows `found`."""

    def play(project: Project) -> Outcome:
        with_pod(project, gpu="RTX 4090")
        return project.validate("--runbook", "r", PATH=path_with(project, found, "1"))

    return play


def resumed_on(serial: str) -> Callable[[Project], Outcome]:
    """Validate on the GPU with the serial 1 until the agent dies; resume on the GPU `serial`."""

    def play(project: Project) -> Outcome:
        first_try = project.validate("--runbook", "r", PATH=path_with(project, "GeForce RTX 4090", "1"))
        assert (first_try.exit_code, first_try.json["state"]) == (4, "lost"), first_try
        return project.validate("--runbook", "r", "--resume", PATH=path_with(project, "GeForce RTX 4090", serial))

    return play


def path_with(project: Project, model: str, serial: str) -> str:
    """A PATH on which nvidia-smi shows this GPU."""
    programs = project.root.parent / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "nvidia-smi").write_text(SMI.format(model, serial))
    (programs / "nvidia-smi").chmod(0o755)
    return f"{programs}:{os.environ['PATH']}"


def bench(used: bool, **more: Any) -> Stage:
    """A stage that wants the GPU for itself, and uses it or not."""
    run = ["python", "-c", TIMES_ON_GPU.format(used)]
    return {"name": "s", "when": ["cuda"], "exclusive": "gpu", "run": run, "expect": OUT, **more}


def refused(name: str, pretends: str, reason: str, honest: str, *stages: Stage) -> Case:
    """A runbook that is refused before any pod is contacted."""
    return Case(name, pretends, None, reason, honest, stage=stages[-1], before=stages[:-1], exit_code=2)


def alone(name: str, pretends: str, reason: str, honest: str, stage: Mapping[str, Any], **more: Any) -> Case:
    """A run of one stage that ends in an error."""
    return Case(name, pretends, None, reason, honest, stage={"name": "s", **stage}, **more)


def rejudged(name: str, pretends: str, reason: str, tamper: Callable[[Path], None], **more: Any) -> Case:
    """A run at home that is refused when it is judged again."""
    return Case(name, pretends, None, reason, "judged_again", tamper=tamper, exit_code=2, **more)


HONEST = [
    truth(runs("in_time", "passed", "", "python", "-c", AT_SIGTERM.format(0)), "it ends by itself, within its limits"),
    truth(
        tests("required", "passed", "", TWO, files={"skips/test_it.py": ONE_SKIPPED}),
        "an optional stage skips, a required one passes",
        before=[{"name": "required.optional", "required": False, "run": SKIPS}],
    ),
    truth(
        tests("needs_a_pass", "passed", "", TWO, needs=["needs_a_pass.first"]),
        "it needs a stage, which passes",
        before=first("needs_a_pass", "pass"),
    ),
    truth(
        tests("left_out_and_said", "passed", "", TWO),
        "a CUDA stage is left out on a pod without a GPU, and is counted",
        before=[{"name": "cuda_stage", "when": ["cuda"], "run": ["true"], "expect": OUT}],
    ),
    truth(
        makes("judged_again", "passed", "", "put('again.csv', 'ms\\n1.5\\n')", artifact("again.csv", kind="csv")),
        "a run is judged again from its files as they were fetched",
        tamper=nothing,
    ),
    truth(tests("fetched", "passed", "", TWO), "the newest run is fetched again", play=fetched_again),
    truth(
        makes("measures_again", "passed", "", ONCE.replace("if not done.exists():", "if True:"), artifact("once.txt")),
        "each run measures anew",
        play=twice,
    ),
    truth(
        tests("promised_gpu", "passed", "", TWO),
        "the pod has the GPU that was promised",
        play=on_gpu("GeForce RTX 4090"),
    ),
    Case(
        "uses_its_gpu",
        "a bench uses the GPU that it wants for itself",
        "passed",
        stage=bench(True, name="uses_its_gpu", env={"CUDA_VISIBLE_DEVICES": "0"}),
        play=on_gpu("GeForce RTX 4090"),
    ),
    truth(
        tests("resumed", "passed", "", TWO),
        "a run whose agent died is resumed on the same GPU",
        before=first("resumed", KILLS_AGENT_ONCE),
        play=resumed_on("1"),
    ),
]

LIES = [
    lie(
        runs(
            "at_sigterm", "timed_out", "its limit of 1 s", "python", "-c", AT_SIGTERM.format(60), limits={"wall": 1.0}
        ),
        "ended at its limit, it says SUCCESS and exits 0",
        honest="in_time",
    ),
    lie(
        runs("hung", "stalled", "no output for 1 s", "python", "-c", AT_SIGTERM.format(60), limits={"silence": 1.0}),
        "it hangs in silence, and exits 0 when it is ended",
        honest="in_time",
    ),
    lie(
        runs(
            "segfault",
            "crashed",
            "SIGSEGV",
            "python",
            "-c",
            "import os; print('done', flush=True); os.kill(os.getpid(), 11)",
        ),
        "it says done and dies of a signal",
        honest="in_time",
    ),
    lie(
        runs("behind_a_shell", "failed", "exit code 139", "sh", "-c", "echo done; exit 139"),
        "it died of a signal behind a shell",
        honest="in_time",
    ),
    lie(
        tests("all_optional", "passed", "", TWO, required=False),
        "every stage of the runbook is optional",
        honest="required",
        verdict="incomplete",
    ),
    alone(
        "nothing_applied",
        "no stage of the runbook applies to the pod",
        "",
        "left_out_and_said",
        {"when": ["cuda"], "run": ["true"], "expect": OUT},
        verdict="incomplete",
    ),
    lie(
        tests("cuda_required", "blocked", "requires cuda", TWO),
        "a GPU's runbook runs on a pod without one",
        honest="left_out_and_said",
        runbook={"requires": ["cuda"]},
    ),
    lie(
        tests(
            "needs_a_skip",
            "blocked",
            "needs needs_a_skip.first, which is skipped",
            TWO,
            needs=["needs_a_skip.first"],
            files={"skips/test_it.py": ONE_SKIPPED},
        ),
        "it runs on although what it needs has skipped",
        honest="needs_a_pass",
        before=[{"name": "needs_a_skip.first", "run": SKIPS}],
    ),
    lie(
        makes("once", "invalid", "once.txt is missing", ONCE, artifact("once.txt")),
        "the artifact is of an earlier run of this tree: today's finds it done and does nothing",
        honest="measures_again",
        play=twice,
    ),
    lie(
        tests("plan_relaxed", "skipped", "no GPU", ONE_SKIPPED),
        "a stage relaxes plan.json on the pod for the next one",
        honest="needs_a_pass",
        before=first("plan_relaxed", RELAXES_PLAN),
    ),
    alone(
        "plan_relaxed_and_fetched",
        "a colleague fetches a run whose plan.json was relaxed on the pod",
        "was launched with",
        "fetched",
        {"run": PYTEST},
        before=first("x", RELAXES_PLAN),
        play=fetched_by_a_colleague,
        files={"t/test_it.py": ONE_SKIPPED},
    ),
    alone(
        "journal_edited",
        "a stage writes to the agent's journal",
        "journal",
        "in_time",
        {"run": ["python", "-c", FORGES_JOURNAL], "expect": OUT},
    ),
    lie(
        tests("verdict_edited", "failed", "test_a failed", "def test_a(): assert 0\n"),
        "the stored verdict is edited to passed",
        honest="judged_again",
        tamper=edits("result.json", call_passed),
        untampered="failed",
    ),
    lie(
        makes(
            "figure_improved",
            "invalid",
            "is not what the pod recorded",
            "put('figures.csv', 'ms\\n1.5\\n')",
            artifact("figures.csv", kind="csv", columns=["ms"]),
        ),
        "a figure is improved after the run",
        honest="judged_again",
        tamper=improve_figure,
    ),
    alone(
        "resumed_elsewhere",
        "a run that began on one GPU is resumed on another",
        "it began on GPU GPU-1, and the pod has GPU GPU-2 now",
        "resumed",
        {"run": PYTEST},
        files={"t/test_it.py": TWO},
        before=first("x", KILLS_AGENT_ONCE),
        play=resumed_on("2"),
    ),
    rejudged(
        "journal_rewritten",
        "the journal at home is edited, so that exit codes are 0",
        "journal line",
        change_exit_codes,
        untampered="failed",
    ),
    rejudged(
        "relabelled",
        "the plan at home names another commit than its tree's",
        "was launched with",
        edits("plan.json", name_another_commit),
    ),
    rejudged(
        "relaxed_at_home",
        "the plan at home asks for less than was asked",
        "was launched with",
        edits("plan.json", ask_for_less),
    ),
    alone(
        "yesterdays_green",
        "yesterday's green is fetched after a failed launch",
        "does not know it",
        "fetched",
        {"run": PYTEST},
        files={"t/test_it.py": TWO},
        play=launched_in_vain,
    ),
    alone(
        "another_gpu",
        "the pod's GPU is another model than the one promised",
        "promises RTX 4090 and has NVIDIA GeForce RTX 3090",
        "promised_gpu",
        {"run": PYTEST},
        files={"t/test_it.py": TWO},
        play=on_gpu("GeForce RTX 3090"),
    ),
    Case(
        "gpu_unused",
        "a bench wants the GPU for itself, and measures on the CPU",
        "invalid",
        "launched no kernel on the GPU",
        "uses_its_gpu",
        stage=bench(False, name="gpu_unused"),
        play=on_gpu("GeForce RTX 4090"),
    ),
    Case(
        "gpu_hidden",
        "the pod's GPU is hidden from the stage that needs it",
        "blocked",
        "CUDA_VISIBLE_DEVICES hides all of them",
        "uses_its_gpu",
        stage=bench(True, name="gpu_hidden", env={"CUDA_VISIBLE_DEVICES": ""}),
        play=on_gpu("GeForce RTX 4090"),
    ),
    refused(
        "artifacts_elsewhere",
        "a stage's env names another folder for artifacts, which nobody would look at",
        "expected another name than NSA_POD_ARTIFACTS",
        "bench_table",
        {"name": "s", "run": ["true"], "env": {"NSA_POD_ARTIFACTS": "/tmp/mine"}},
    ),
    refused(
        "rows_not_owed",
        "min_rows: 0 asks for no row",
        "min_rows",
        "bench_table",
        {"name": "s", "run": ["true"], "expect": {"artifacts": [{"path": "t.jsonl", "kind": "jsonl", "min_rows": 0}]}},
    ),
    refused(
        "rows_of_a_text",
        "min_rows of an artifact whose rows nothing counts, for it is text",
        "expected kind csv, json, jsonl.* beside min_rows",
        "bench_table",
        {"name": "s", "run": ["true"], "expect": {"artifacts": [{"path": "t.csv", "min_rows": 40}]}},
    ),
    refused(
        "nothing_owed",
        "min_passed: 0 asks for nothing",
        "min_passed",
        "required",
        {"name": "s", "run": PYTEST, "expect": {"tests": {"min_passed": 0}}},
    ),
    refused(
        "tests_behind_a_shell",
        "tests are owed by a stage that hides them behind a shell",
        "only of a stage that runs pytest",
        "pipeline",
        {"name": "s", "run": ["sh", "-c", "pytest | tee out"], "expect": {"tests": {"min_passed": 1}}},
    ),
    refused(
        "two_owners",
        "two stages claim the same artifact",
        "expected one owner",
        "required",
        *({"name": name, "run": ["echo", "1"], "expect": OUT} for name in ("a", "s")),
    ),
]

CASES: list[Case] = [*HONEST, *LIES]
