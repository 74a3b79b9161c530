"""Why a stage did not pass, by rule: exceptions that were printed, exit codes in words, causes in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.shared import stage_record
from orchestrator.verdict.failures import failures, grouped, key, summary, wants_gpu
from orchestrator.verdict.raised import Raised, printed, sentence
from orchestrator.verdict.rules import Judgement
from tests.support.agent_pod import pytest_stage, stage
from tests.support.judging import events, judge, phases

RUN = "20260101-000000-aaaaaaa-bbbbbbbb"
TREE = f"/pod/runs/{RUN}/tree"
TRACEBACK = f"""\
starting
Traceback (most recent call last):
  File "{TREE}/bench.py", line 7, in <module>
    run(3)
  File "{TREE}/core/b.py", line 2, in run
    library.call()
  File "/env/lib/python3.11/site-packages/library/x.py", line 99, in call
    raise ValueError("bad shape")
ValueError: bad shape
with a second line

"""
SYNTAX = f'  File "{TREE}/core/x.py", line 178\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'
FATAL = f"""\
Fatal Python error: Segmentation fault

Current thread 0x1 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{TREE}/crash.py", line 4 in boom
  File "{TREE}/crash.py", line 5 in <module>
"""
LAUNCHER = """\
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 10, in <module>
    sys.exit(main())
  File "/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
train.py FAILED
"""
CONFTEST = f"""\
ImportError while loading conftest '{TREE}/tests/conftest.py'.
tests/conftest.py:3: in <module>
    import gone
E   ModuleNotFoundError: No module named 'gone'
"""
PLUGIN = """\
Error while loading plugin "pytest11".
../../envs/1/lib/python3.11/site-packages/pytest_cases/common_pytest.py:644: in <module>
    _idval = IdMaker([], [])._idval
             ^^^^^^^^^^^^^^^
E   TypeError: IdMaker.__init__() takes 7 positional arguments but 8 were given
"""
TWO_CONFTESTS = f"""\
ImportError while loading conftest '{TREE}/b/tests/conftest.py'.
_pytest.pathlib.ImportPathMismatchError: ('tests.conftest', '{TREE}/a/tests/conftest.py')
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACEBACK, "ValueError: bad shape (core/b.py line 2)"),
        (TRACEBACK + "\nDuring handling of the above exception, another exception occurred:\n\n"
         f'Traceback (most recent call last):\n  File "{TREE}/a.py", line 1, in f\nKeyError: \'k\'\n',
         "KeyError: 'k' (a.py line 1)"),
        ("".join(f"[rank0]: {line}\n" for line in TRACEBACK.splitlines()), "ValueError: bad shape (core/b.py line 2)"),
        (SYNTAX, "SyntaxError: invalid syntax (core/x.py line 178)"),
        ("Traceback (most recent call last):\n" + SYNTAX, "SyntaxError: invalid syntax (core/x.py line 178)"),
        (f'Traceback (most recent call last):\n  File "{TREE}/a.py", line 9, in f\n    x = literal_eval(text)\n'
         '  File "<unknown>", line 1\n    /x\n    ^\nSyntaxError: invalid syntax\n',
         "SyntaxError: invalid syntax (a.py line 9)"),
        (FATAL, "Fatal Python error: Segmentation fault (crash.py line 4)"),
        (CONFTEST.replace("E   ModuleNotFoundError: No", "E   ImportError: \nE       No") + "E       Install it.\n",
         "ImportError: No module named 'gone' (tests/conftest.py line 3)"),
        (PLUGIN, "TypeError: IdMaker.__init__() takes 7 positional arguments but 8 were given "
         "(pytest_cases/common_pytest.py line 644)"),
        (CONFTEST, "ModuleNotFoundError: No module named 'gone' (tests/conftest.py line 3)"),
        (TWO_CONFTESTS, TWO_CONFTESTS.splitlines()[1] + " (b/tests/conftest.py line 1)"),
        ('Traceback (most recent call last):\n  File "/e/lib/python3.11/site-packages/l/x.py", line 9, in c\nOSError\n',
         "OSError (l/x.py line 9)"),
        ("Traceback (most recent call last):\n", "it was not said why"),
        ("".join(f"[rank1]: {line}\n" for line in TRACEBACK.splitlines()) + LAUNCHER,
         "ValueError: bad shape (core/b.py line 2)"),
        (SYNTAX + LAUNCHER, "SyntaxError: invalid syntax (core/x.py line 178)"),
        ("/venv/bin/python: can't open file '/x/train.py': [Errno 2] No such file or directory\n" + LAUNCHER,
         "can't open file '/x/train.py': [Errno 2] No such file or directory"),
        ("/venv/bin/python3: No module named train\n", "No module named train"),
        ("python: Error while finding module specification for 'x.__main__' (E: e)\n",
         "Error while finding module specification for 'x.__main__' (E: e)"),
        (LAUNCHER, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED "
         "(torch/distributed/launcher/api.py line 383)"),
    ],
)  # fmt: skip
def test_the_last_exception_that_was_printed(text: str, said: str) -> None:
    found = printed(text, RUN)
    assert found is not None and sentence(found) == said


def test_what_was_printed_keeps_lines_and_source() -> None:
    found = printed(TRACEBACK, RUN)
    assert found is not None
    assert (found["error"], found["line"]) == (["ValueError: bad shape", "with a second line"], "library.call()")


@pytest.mark.parametrize("text", ["", "all is well\n", "SyntaxError: that I expected\n", "Traceback\n"])
def test_where_none_was_printed(text: str) -> None:
    assert printed(text, RUN) is None


def judged(folder: Path, planned: dict[str, Any], facts: dict[str, Any], **streams: str) -> Judgement:
    """Of a stage that left these files."""
    run = folder / RUN
    home = run / "stages" / planned["name"]
    home.mkdir(parents=True)
    record = {**stage_record.blank([]), "started": True, **facts}
    for name, text in streams.items():
        file = home / {"events": "pytest.jsonl"}.get(name, name)
        file.write_text(text)
        entry = {"path": f"stages/{planned['name']}/{file.name}", "bytes": len(text), "sha256": "0" * 64}
        record["files"] = [*record["files"], entry]
    return judge(planned, record, run)


@pytest.mark.parametrize(
    ("code", "stderr", "reason"),
    [
        (1, "", "exit code 1"),
        (1, TRACEBACK, "exit code 1: ValueError: bad shape (core/b.py line 2)"),
        (127, "bash: line 2: frobnicate: command not found\n", "exit code 127: command not found: frobnicate"),
        (127, "sh: 1: frobnicate: not found\n", "exit code 127: command not found: frobnicate"),
        (127, "bash: ./x.sh: No such file or directory\n", "exit code 127: command not found: ./x.sh"),
        (127, "", "exit code 127: command not found"),
        (126, "bash: line 1: ./x.sh: Permission denied\n", "exit code 126: not executable: ./x.sh"),
        (139, "", "exit code 139: a program of it was ended by SIGSEGV (segmentation fault)"),
        (137, "Killed\n", "exit code 137: a program of it was ended by SIGKILL "
         "(by a person, or by the kernel where memory has run out)"),
        (255, "", "exit code 255"),
    ],
)  # fmt: skip
def test_exit_codes_in_words(tmp_path: Path, code: int, stderr: str, reason: str) -> None:
    found = judged(tmp_path, stage("s", ["x"]), {"exit_code": code}, stderr=stderr)
    assert (found.status, found.reason) == ("failed", reason)


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (4, "ERROR: usage: python -m pytest [options] [file_or_dir]\npython -m pytest: error: unrecognized arguments: "
         "--cov-branch\n  inifile: /x/setup.cfg\n  rootdir: /x\n", ": unrecognized arguments: --cov-branch"),
        (4, "ERROR: Unknown config option: asyncio_mode\n\n", ": Unknown config option: asyncio_mode"),
        (4, "ERROR: usage: pytest [options]\n", ""),
        (4, "a plugin's own words\n", ""),
    ],
)  # fmt: skip
def test_why_pytest_could_not_begin(tmp_path: Path, code: int, stderr: str, words: str) -> None:
    found = judged(tmp_path, pytest_stage("s", "t.py"), {"exit_code": code}, stderr=stderr)
    assert (found.status, found.reason) == ("failed", f"exit code 4: pytest could not begin{words}")


def test_what_broke_a_session_is_its_reason(tmp_path: Path) -> None:
    """Also where pytest writes a JUnit file of one failure, called `internal`."""
    text = "".join(f"INTERNALERROR> {line}\n" for line in TRACEBACK.splitlines())
    session = json.dumps({"event": "start"}) + "\n"
    found = judged(tmp_path, pytest_stage("s", "t.py"), {"exit_code": 3}, events=session, stdout=text)
    assert found.reason == "exit code 3: ValueError: bad shape (core/b.py line 2)"


def test_a_signal_names_the_test_that_it_ended(tmp_path: Path) -> None:
    lines = [{"event": "start"}, *phases("t.py::test_a", ("setup", "passed"))]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    planned = pytest_stage("s", "t.py")
    found = judged(tmp_path, planned, {"signal": "SIGSEGV"}, events=text, stderr=FATAL)
    assert found.reason == "ended by SIGSEGV in t.py::test_a at crash.py line 4"
    assert found.tails["stderr"][2:] == [
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at',
        '  File "crash.py", line 4 in boom',
        '  File "crash.py", line 5 in <module>',
    ]
    assert judged(tmp_path / "slow", planned, {"ended_by": "wall"}, events=text).reason.endswith("60 s in t.py::test_a")


def test_the_tail_is_bounded_and_harmless(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(100)) + "\x1b[31m" + "x" * 10_000 + "\x00\n   \n"
    tail = judged(tmp_path, stage("s", ["x"]), {"exit_code": 1}, stderr=text).tails["stderr"]
    assert len(tail) == 20 and tail[0] == "line 81" and tail[-1] == "x" * 297 + "..."


def why(error: str, place: str | None) -> dict[str, Any]:
    return {"error": [error], "place": place, "line": "source"}


def test_failures_with_one_cause_are_one() -> None:
    syntax = why("SyntaxError: invalid syntax", "core/x.py:178")
    missing = [why("ModuleNotFoundError: No module named 'gone'", f"m{n}.py:2") for n in range(3)]
    session = events(
        *({"event": "collect_error", "id": f"b{n}.py", "reason": "r", "why": syntax} for n in range(8)),
        *({"event": "collect_error", "id": f"m{n}.py", "reason": "r", "why": w} for n, w in enumerate(missing)),
    )
    said = summary(session)
    assert said == "b0.py could not be collected: SyntaxError: invalid syntax (core/x.py line 178) (and 10 more)"
    found = grouped_of(session)
    assert [(sentence(cause), cause["count"]) for cause in found] == [
        ("SyntaxError: invalid syntax (core/x.py line 178)", 8),
        ("ModuleNotFoundError: No module named 'gone'", 3),
    ]
    assert found[1]["of"] == ["m0.py", "m1.py", "m2.py"]


def test_assertions_of_a_helper_are_causes_of_their_own() -> None:
    helper = why("AssertionError: they differ", "helper.py:2")
    failed = {"event": "phase", "when": "call", "outcome": "failed", "reason": "r", "why": helper}
    session = events(*({**failed, "id": f"t.py::test_{n}"} for n in range(3)))
    assert [cause["count"] for cause in grouped_of(session)] == [1, 1, 1]
    assert str(summary(session)).endswith("(and 2 more)")


def test_an_assertion_beside_the_tests_keeps_all_files_from_being_collected() -> None:
    library = {**why("AssertionError: Torch not compiled with CUDA enabled", "utils.py:24"), "called_from": "t.py:7"}
    session = events(
        *({"event": "collect_error", "id": f"t{n}.py", "reason": "r", "why": library} for n in range(3)),
        *(
            {"event": "collect_error", "id": f"u{n}.py", "reason": "r", "why": why("assert 1 == 2", "u.py:1")}
            for n in (1, 2)
        ),
    )
    assert [cause["count"] for cause in grouped_of(session)] == [3, 1, 1]


def test_the_want_of_a_gpu_is_one_cause_wherever_it_is_used() -> None:
    said = ["AssertionError: Torch not compiled with CUDA enabled", "RuntimeError: No CUDA GPUs are available"]
    told = [why(error, f"t.py:{n}") for n, error in enumerate([said[0], said[0], said[1], "AssertionError: no GPU"])]
    failed = {"event": "phase", "when": "call", "outcome": "failed", "reason": "r"}
    session = events(*({**failed, "why": each, "id": f"t.py::test_{n}"} for n, each in enumerate(told)))
    assert [cause["count"] for cause in grouped_of(session)] == [2, 1, 1]
    assert [wants_gpu(cause) for cause in grouped_of(session)] == [True, True, False]


def grouped_of(session: Any) -> Any:
    return grouped(failures(session))


def test_failures_that_an_earlier_version_told_have_nothing_in_common() -> None:
    assert key(Raised(error=["ValueError: x"], place=None, line="")) is None


@pytest.mark.parametrize("told", [None, 5, [], {"error": 5, "place": 1, "line": 2}, {"error": ["x"]}])
def test_a_cause_that_the_plugin_did_not_write_is_refused(tmp_path: Path, told: Any) -> None:
    line = json.dumps({"event": "collect_error", "id": "a", "reason": "r", "why": told}) + "\n"
    found = judged(tmp_path, pytest_stage("s", "t.py"), {"exit_code": 0}, events=line)
    assert (found.status, found.reason) == (
        "invalid", "the report of the agent's pytest plugin has a line 1 that the plugin did not write"
    )  # fmt: skip
