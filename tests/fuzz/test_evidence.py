"""What comes from a pod, or lies in a run's directory: never a traceback, and never a pass that it does not prove."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import strategies as st

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import Runbook
from orchestrator.config.yamlfile import loads
from orchestrator.errors import NsaPodError
from orchestrator.launchers import launcher_of
from orchestrator.launchers.claim import held_by
from orchestrator.plan.plan import Capabilities, Place, Tree, Work, make_plan, read_plan
from orchestrator.pod import follower
from orchestrator.pod.client import Agent, install_agent
from orchestrator.pod.dialogue import Dialogue
from orchestrator.pod.download import Downloader
from orchestrator.pod.facts import PodFacts, broken_promises, probe
from orchestrator.results import Seen
from orchestrator.shared import frames
from orchestrator.shared import plan as plans
from orchestrator.shared.journal import GENESIS
from orchestrator.shared.plan import Plan, RunbookOrigin
from orchestrator.shared.stage_record import blank
from orchestrator.store.run_directory import RunDirectory, create
from orchestrator.tasks.doctor import from_facts
from orchestrator.transports.base import Completed, Transport
from orchestrator.ui import Progress
from orchestrator.verdict import junit, outcomes
from orchestrator.verdict.artifacts import asked as asking
from tests.support.agent_pod import stage
from tests.support.files import write_files
from tests.support.fuzz.mutate import as_json, damaged, documents, mutated, noise, values
from tests.support.fuzz.run import amounts, command, fuzz, sentence_or
from tests.support.judging import judge
from tests.support.plans import plan_of
from tests.support.saying import Saying

TREE = Tree("c" * 40, b"", "7" * 40, [], False, frozenset({"t.py"}))
RUNBOOK = """\
name: r
stages:
  - name: t
    run: [python, -m, pytest, t.py]
    expect: {tests: {allow_skips: [deselected]}, routes: {selected: triton}}
  - name: c
    run: [tool]
    expect: {artifacts: [{path: c.csv, kind: csv, columns: [S, ms], checks: [{finite: all}, {column: ms, max: 9}]},
                         {path: c.json, kind: json, keys: [a]}, {path: c.jsonl, kind: jsonl}]}
"""
FACTS = {
    "hostname": "h", "boot_id": "b", "arch": "x86_64", "cpu_model": "c", "cpus": 2, "driver": "550.1",
    "driver_cuda": "12.4", "host_key": "SHA256:x",
    "gpus": [{"index": 0, "name": "NVIDIA H100", "driver": "550.1", "compute_cap": "9.0", "uuid": "GPU-1",
              "memory_used_mib": 1, "memory_total_mib": 2, "utilization_percent": 0}],
}  # fmt: skip
SESSION = [
    {"event": "start"},
    {"event": "collected", "ids": ["t.py::a", "t.py::b"]},
    {"event": "selected", "ids": ["t.py::a"]},
    {"event": "deselected", "ids": ["t.py::b"]},
    {"event": "phase", "id": "t.py::a", "when": "setup", "outcome": "passed"},
    {"event": "phase", "id": "t.py::a", "when": "call", "outcome": "passed"},
    {"event": "phase", "id": "t.py::a", "when": "teardown", "outcome": "passed",
     "routes": [["route.selected", "triton@cuda:sm_90"]]},
    {"event": "end", "status": 0},
]  # fmt: skip
OBSERVED = [{"loaded": 7}, {"ran": {"cuda:0": {"fwd": 1}}, "test": "t.py::a"}, {"cuda": "used", "test": None}]
JUNIT = (
    '<?xml version="1.0"?><testsuites><testsuite name="pytest" tests="1"><testcase classname="t" name="a"><properties>'
    '<property name="route.selected" value="triton@cuda:sm_90" /></properties></testcase></testsuite></testsuites>'
)
TABLE = "S,ms\n1,2.5\n2,3.5\n"
ROWS = [{"a": 1, "b": [1.5]}, {"a": 2, "b": []}]


def text_lines(items: list[Any]) -> str:
    return "".join(f"{as_json(item)}\n" for item in items) if isinstance(items, list) else as_json(items)


FILES = {
    "stages/t/stdout": "out",
    "stages/t/pytest.jsonl": text_lines(SESSION),
    "stages/t/junit.xml": JUNIT,
    "stages/t/observed.jsonl": text_lines(OBSERVED),
    "artifacts/c.csv": TABLE,
    "artifacts/c.json": json.dumps(ROWS[0]),
    "artifacts/c.jsonl": text_lines(ROWS),
}


def record(name: str, files: list[str], artifacts: list[str]) -> dict[str, Any]:
    """What the agent writes when a stage has ended well."""
    listed = [
        {"path": path, "bytes": len(FILES[path]), "sha256": hashlib.sha256(FILES[path].encode()).hexdigest()}
        for path in files
    ]
    return {
        **blank([]), "event": "stage_ended", "stage": name, "started": True, "exit_code": 0, "seconds": 1.5,
        "executed": {"cuda:0": {"launches": 1, "kernels": ["fwd"]}}, "used_cuda": True, "files": listed,
        "artifacts": [{"path": path, "existed_before": False, "problem": None} for path in artifacts],
        "status": "passed", "reason": "",
    }  # fmt: skip


def events_of(plan: Plan) -> list[dict[str, Any]]:
    return [
        {"event": "run_started", "format": 2, "run_id": plan["run_id"], "gpus": [], "host": "h"},
        {"event": "tree_checked", "ok": True},
        {"event": "stage_started", "stage": "t", "argv": ["python"], "env": {}},
        {"event": "output", "stage": "t", "stream": "stdout", "elapsed": 1.5, "bytes": 3, "last_line": "x"},
        record("t", [path for path in FILES if path.startswith("stages/")], []),
        record("c", [path for path in FILES if path.startswith("artifacts/")], ["c.csv", "c.json", "c.jsonl"]),
        {"event": "run_ended", "reason": "completed"},
    ]


def chained(events: Any, path: Path) -> None:
    """The journal that an agent would have written with these events, whatever they are."""
    prev, lines = GENESIS, []
    for number, event in enumerate(events if isinstance(events, list) else [events]):
        fields = event if isinstance(event, dict) else {"event": "x", "x": event}
        lines.append(as_json({**fields, "seq": number, "prev": prev}).encode())
        prev = hashlib.sha256(lines[-1]).hexdigest()
    path.write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that passed, kept under tmp_path/artifacts."""
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    origin = RunbookOrigin(name="r", source="file", path="r.yaml", sha256="0" * 64, committed=False)
    pod = Pod(name="p", transport="local", cost_per_hour=2.0)
    have = Capabilities(sm=90, packages=frozenset())
    place = Place({"kind": "system", "packages": {"torch": "2"}}, have, FACTS, "/w")
    plan = make_plan(Work(loads(RUNBOOK, "r.yaml", Runbook), origin, pod, TREE), place)
    made = create(tmp_path / "artifacts", tmp_path, plan)
    restore(made)
    chained(events_of(plan), made.journal_file)
    assert made.settle(Seen("ended")).verdict == "passed"
    return made


def restore(run: RunDirectory) -> None:
    write_files(run.path, FILES)


def judged_again(run: RunDirectory) -> str:
    """The verdict of `report` in its three forms, and of `runs`; or "error"."""
    said = command("report", "--json", "--", str(run.path))
    result = json.loads(said.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    for form in ((), ("--markdown",)):
        shown = command("report", *form, "--", str(run.path))
        assert shown.code == said.code
        assert "\x1b" not in shown.out and not (form and "<script>" in shown.out)
    assert command("runs", "--json").code == 0
    assert command("runs").code == 0
    verdict = result.get("verdict")  # a command has none, and its own exit code
    assert verdict is None or (said.code == 0) == (verdict == "passed")
    return str(verdict)


STORED = ["plan.json", "manifest.json", "result.json", "environment.json"]


@amounts(80, 1200)
def test_stored_runs(run: RunDirectory, amount: int) -> None:
    """Any file of a run's directory, changed: what is recorded with a hash cannot be changed and pass."""
    kept = {name: (run.path / name).read_text() for name in [*STORED, "journal.jsonl", *FILES]}

    def one(given: tuple[str, bytes]) -> None:
        name, content = given
        (run.path / name).write_bytes(content)
        try:
            verdict = judged_again(run)
            assert verdict != "passed" or name not in FILES or content == FILES[name].encode()
        finally:
            (run.path / name).write_text(kept[name])

    stored = [documents(json.loads(kept[name])).map(lambda content, name=name: (name, content)) for name in STORED]
    others = [
        st.one_of(damaged(kept[name]), noise).map(lambda content, name=name: (name, content))
        for name in ("journal.jsonl", *FILES)
    ]
    fuzz(amount, one, st.one_of(*stored, *others))


@amounts(80, 1200)
def test_journals_of_a_hostile_pod(run: RunDirectory, amount: int) -> None:
    """Any events in a whole chain."""

    def one(events: Any) -> None:
        chained(events, run.journal_file)
        sentence_or(lambda: run.settle(Seen("ended")))
        judged_again(run)

    fuzz(amount, one, mutated(events_of(run.plan())))


@amounts(80, 1200)
def test_plans_of_a_hostile_pod(run: RunDirectory, amount: int) -> None:
    """A laptop that did not launch the run takes its plan from the pod: any content, with the hash that fits it."""
    plan = json.loads(run.plan_file.read_text())

    def one(changed: Any) -> None:
        if isinstance(changed, dict):
            changed["run_id"] = f"20261121-101500-ccccccc-{_hash(changed)}"
        text = as_json(changed)
        found = sentence_or(lambda: read_plan(text, "the plan on the pod"))
        if isinstance(found, dict):
            run.plan_file.write_text(text)
            chained(events_of(found), run.journal_file)
            sentence_or(lambda: run.settle(Seen("ended")))
            judged_again(run)

    fuzz(amount, one, mutated(plan))


def _hash(plan: dict[str, Any]) -> str:
    try:
        return plans.plan_hash(plan)[:8]
    except (TypeError, ValueError, RecursionError):
        return "0" * 8


@amounts(150, 3000)
def test_stages(tmp_path: Path, amount: int) -> None:
    """A stage's record and files of any shape have a status; none is `passed` that was not."""
    expected = {
        "tests": {"min_passed": 1, "allow_skips": ["deselected"]},
        "routes": {"selected": "triton"},
        "artifacts": [],
    }
    plan = stage("t", ["python", "-m", "pytest"], pytest=True, cuda=True, expect=expected)
    names = [path for path in FILES if path.startswith("stages/")]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)

    def one(given: tuple[Any, bytes, bytes, bytes]) -> None:
        facts, *contents = given
        for name, content in zip(names, (b"out", *contents), strict=True):
            (tmp_path / name).write_bytes(content)
        judgement = judge(plan, facts, tmp_path, {})
        assert judgement.reason.isprintable() and len(judgement.reason) <= 400
        json.dumps(judgement.tests, allow_nan=False)
        if judgement.status == "passed":
            assert judgement.tests["passed"] >= 1

    good = record("t", names, [])
    observed = text_lines(OBSERVED)
    fuzz(
        amount,
        one,
        st.tuples(
            st.one_of(st.just(good), mutated(good), values),
            st.one_of(st.just(FILES[names[1]].encode()), mutated(SESSION).map(text_lines).flatmap(damaged), noise),
            st.one_of(st.just(JUNIT.encode()), damaged(JUNIT), xml_of(JUNIT), noise),
            st.one_of(st.just(observed.encode()), mutated(OBSERVED).map(text_lines).flatmap(damaged), noise),
        ),
    )


def xml_of(text: str) -> st.SearchStrategy[bytes]:
    """XML with words exchanged, and what XML readers are attacked with."""
    words = st.sampled_from(["testcase", "testsuite", "property", "name", "route.selected", "triton", "t", "a", "1.0"])
    others = st.sampled_from(
        ["", "failure", "skipped", "&amp;", "&x;", "]]>", "x" * 1000, "\ud800", "é", "<a/>", "<!--", '"']
    )
    attacks = st.sampled_from(
        [
            '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><testsuites>&b;</testsuites>',
            '<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuites/>',
            "<testsuites>" + "<testsuite>" * 5000,
            '<testsuites><testcase classname="' + "x" * 100_000 + '"/></testsuites>',
        ]
    )
    swapped = st.tuples(words, others).map(lambda pair: text.replace(pair[0], pair[1]))
    return st.one_of(swapped, attacks).flatmap(damaged)


SPECS = [
    {"kind": "text"},
    {"kind": "csv", "columns": ["S"], "min_rows": 1, "checks": [{"finite": "all"}]},
    {"kind": "csv", "checks": [{"column": "ms", "min": 0, "max": 9}, {"sum": ["S", "ms"], "near": 3, "within": 9}]},
    {"kind": "csv", "checks": [{"equal": ["S", "ms"]}, {"finite": ["S"]}]},
    {"kind": "csv", "checks": [{"at_most": ["S", "ms"]}, {"values": {"S": [1, "nan"]}}], "allow": {"ms": ["nan", ""]}},
    {"kind": "jsonl", "checks": [{"column": "a", "matches": "^1", "impossible": True}], "allow": {"a": ["x"]}},
    {"kind": "json", "keys": ["a"], "checks": [{"finite": "all"}, {"column": "a", "max": 9}]},
    {"kind": "jsonl", "columns": ["a"], "checks": [{"equal": ["a", "b"]}, {"sum": ["a", "a"], "near": 2, "within": 0}]},
]  # fmt: skip
CELLS = st.sampled_from(
    ["", " ", *"1 -0.0 1e999 nan inf 1_0 0x1 ٣ \" ' \0 \ufeff".split(" "), "9" * 5000, "\r", '"a\nb"']
)
TABLES = st.lists(st.lists(CELLS, max_size=4).map(",".join), max_size=5).map(lambda rows: "S,ms\n" + "\n".join(rows))


@amounts(200, 4000)
def test_artifacts(amount: int, tmp_path: Path) -> None:
    file = tmp_path / "artifact"

    def one(given: tuple[dict[str, Any], bytes]) -> None:
        spec, content = given
        file.write_bytes(content)
        with file.open("rb") as f:
            sentences = [found.sentence for found in asking.findings({"path": "a", **spec}, f)]
        assert all(sentence.isprintable() and len(sentence) < 1000 for sentence in sentences), ascii(sentences)

    content = st.one_of(
        TABLES.flatmap(damaged), documents(ROWS[0]), documents(ROWS, text_lines), documents(ROWS), noise
    )
    fuzz(amount, one, st.tuples(st.sampled_from(SPECS), content))


@amounts(150, 2000)
def test_readers(amount: int) -> None:
    """The readers of JUnit files and of the plugin's lines know one way to refuse."""

    def one(content: bytes) -> None:
        for read, malformed in ((junit.parse, junit.Malformed), (outcomes.read, outcomes.Malformed)):
            try:
                read(io.BytesIO(content))
            except malformed as e:
                assert str(e).isprintable()

    fuzz(amount, one, st.one_of(xml_of(JUNIT), documents(SESSION, text_lines), noise))


# The connection --------------------------------------------------------------------------------------------------


class AnyAnswer:
    """Stands for a transport to a hostile pod: every command prints the same."""

    def __init__(self, pod: Pod, answer: bytes, code: int = 0) -> None:
        self.pod, self.answer, self.code = pod, answer, code

    naming = Transport.naming
    output = Transport.output
    put = Transport.put

    def run(self, *_: object, **__: object) -> Completed:
        return Completed(self.code, self.answer, self.answer)

    def converse(self, *_: object) -> Saying:
        return Saying(self.answer)

    @contextmanager
    def stream(self, *_: object, **__: object) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.answer)


ANSWERS = [
    {**FACTS, "os": "Linux", "libc": ["glibc", "2.36"], "holder": None, "pythons": [], "built": [], "newest_run": None,
     "gpu_complaint": None, "programs": {"git": "/g", "rsync": None, "uv": "/u"},
     "disk": {"path": "/w", "free_bytes": 1, "total_bytes": 2, "free_inodes": 3, "writable": True}},
    {"runs": [{"run_id": "r", "state": "running", "commit": "c", "runbook": "r", "bytes": 1}], "holder": None},
    {"state": "ended", "bytes": 0},
    {"holder": {"run_id": "r", "holder": "h", "since": "s", "dead": False}},
    {"pid": 1, "run_id": "r", "dead": {"run_id": "q", "holder": "h", "rebooted": True}},
    {"busy": {"run_id": "r", "holder": "h", "since": "s"}},
    {"error": "e"},
    {"signalled": True, "within": 1.0, "state": "running"},
    {"ended": True},
    {"tree": "t", "files": 3, "wrong": None},
]  # fmt: skip


@amounts(150, 3000)
def test_answers_of_a_hostile_agent(amount: int) -> None:
    pod = Pod(name="p", transport="local", gpu="RTX 4090", driver="1")

    def one(given: tuple[bytes, int]) -> None:
        agent = Agent(cast(Transport, AnyAnswer(pod, *given)), "python3", "/w")
        sentence_or(lambda: install_agent(agent.transport))
        sentence_or(agent.runs)
        launcher = launcher_of(agent)
        sentence_or(lambda: launcher.status("r"))
        sentence_or(lambda: launcher.cancel("r", "me"))
        sentence_or(lambda: launcher.end("r"))
        sentence_or(lambda: held_by(launcher.holder() or {"dead": True}))
        sentence_or(lambda: launcher.resume("r", "me", {}))
        sentence_or(lambda: launcher.start(plan_of(), {}))
        facts = sentence_or(lambda: probe(agent))
        if isinstance(facts, PodFacts):
            sentence_or(lambda: broken_promises(pod, facts, allow_different_gpu=True))
            sentence_or(lambda: (facts.gpu, facts.sm, facts.driver, facts.summary()))
            sentence_or(lambda: list(from_facts(pod, facts, allow_different_gpu=True)))
            sentence_or(lambda: (facts.raw["holder"] or {"dead": True})["dead"])

    answers = st.one_of(*(documents(answer) for answer in ANSWERS))
    fuzz(amount, one, st.tuples(answers, st.sampled_from([0, 0, 0, 1, 255])))


@amounts(150, 3000)
def test_frames_of_a_hostile_agent(amount: int) -> None:
    """Whatever comes over the one conversation that all commands share."""
    told = b"".join(frames.frame(kind, 1, b"0") for kind in (frames.OUT, frames.ERR, frames.END))

    def one(given: list[bytes]) -> None:
        sentence_or(lambda: Dialogue(Saying(*given), "p").run(["x"], b"", 0.0, "x"))

        def read() -> None:
            with Dialogue(Saying(*given), "p").stream(["x"], b"", 0.0, "x") as out:
                out.read(10)

        sentence_or(read)

    fuzz(amount, one, st.lists(st.one_of(st.just(told), st.binary(max_size=20).map(lambda x: told[: len(x)] + x))))


@amounts(100, 2000)
def test_files_from_a_hostile_agent(tmp_path: Path, amount: int) -> None:
    """Any record and any bytes: nothing lies outside the run's directory, nothing in it that is not as recorded."""
    inside = tmp_path / "outer" / "run"
    content = b"content\n"
    files = [
        {"path": p, "bytes": 8, "sha256": hashlib.sha256(content).hexdigest()} for p in ("stages/a/b", "artifacts/c")
    ]

    def one(given: tuple[Any, bytes]) -> None:
        events, answer = given
        shutil.rmtree(tmp_path / "outer", ignore_errors=True)
        inside.mkdir(parents=True)
        agent = Agent(cast(Transport, AnyAnswer(Pod(name="p", transport="local"), answer)), "python3", "/w")

        def take() -> None:
            intake = Downloader(inside)
            intake.note(event for event in events if isinstance(event, dict) and isinstance(event.get("event"), str))
            intake.take(agent, "/w/runs/r", everything=True)
            assert all(sentence.isprintable() for sentence in intake.refused)

        sentence_or(take)
        assert list((tmp_path / "outer").iterdir()) == [inside]
        assert all(path.read_bytes() == content for path in inside.rglob("*") if path.is_file())

    events = [{"event": "stage_files", "files": files[:1]}, {"event": "stage_ended", "files": files[1:]}]
    sent = st.lists(st.sampled_from([b"+\n", b"-no\n", b"+\n" + content, content, b"+", b"\0"]), max_size=4).map(
        b"".join
    )
    lists = mutated(events).filter(lambda found: isinstance(found, list))
    fuzz(amount, one, st.tuples(st.one_of(lists, st.just(events)), st.one_of(sent, noise)))


@amounts(100, 2000)
def test_live_events_of_a_hostile_agent(run: RunDirectory, amount: int) -> None:
    """What is shown while it happens."""

    def one(content: bytes) -> None:
        with Progress(1) as progress:
            progress.expect_stages(["t", "c"])
            found = sentence_or(lambda: list(follower._events(content)))
            for event in found if isinstance(found, list) else ():
                progress.event(event)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stderr", io.StringIO())
        fuzz(amount, one, documents(events_of(run.plan()), text_lines))


def test_the_error_is_the_projects() -> None:
    """What the fuzz tests take for a sentence is one."""
    assert str(NsaPodError("a\n\x1b[31mb\ud800")) == "a b"
