"""Runbooks: what is read, what a stage names, and how each mistake is answered."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.commands import pytest_arguments, python_module
from orchestrator.config.runbook import Runbook, Stage, find_runbook, named_paths, own_runbooks
from orchestrator.config.yamlfile import loads
from orchestrator.errors import InputError
from tests.support import ROOT
from tests.support.whole_runbook import GOOD


def test_every_key_of_the_contract_is_read() -> None:
    runbook = loads(GOOD, "good.yaml", Runbook)
    stage = runbook.stages[1]
    limits = runbook.limits_of(stage)
    assert (limits.wall, limits.silence) == (300, 600)
    assert stage.expect["routes"] == {"selected": "triton"}
    assert [a.get("from") for a in stage.expect["artifacts"]] == ["stdout", None, None, None]
    assert runbook.environment.extra == ["pytest", "numpy<2.3"]


def test_numbers_of_commands_and_variables_are_what_is_written() -> None:
    """Those that YAML reads otherwise (1.10 is 1.1), and those that it took for other things before version 1.2."""
    env = "{A: 1.10, B: 12:30, C: {value: 0x1F, secret: false}, D: 2026-11-27, E: 2026-11-27 10:00:00}"
    stage = f"{{name: a, run: [tool, 4096, 1.50, 010, -1, 1e3, 1_000, 2026-11-27], env: {env}}}"
    runbook = loads(f"name: r\ninstall: [{{path: ., env: {{F: 1.0}}}}]\nstages: [{stage}]\n", "r.yaml", Runbook)
    (found,) = runbook.stages
    assert runbook.install[0].env == {"F": "1.0"}
    assert found.run == ["tool", "4096", "1.50", "010", "-1", "1e3", "1_000", "2026-11-27"]
    assert [found.env[name] for name in "ABDE"] == ["1.10", "12:30", "2026-11-27", "2026-11-27 10:00:00"]
    assert getattr(found.env["C"], "value", None) == "0x1F"


@pytest.mark.parametrize(
    ("text", "number"), [("010", 10), ("0x10", 16), ("0o10", 8), ("1e2", 100), ("2.5E+1", 25), (".5", 0.5), ("7.", 7)]
)
def test_numbers_are_those_of_yaml_1_2(text: str, number: float) -> None:
    assert (
        loads(f"name: r\nlimits: {{wall: {text}}}\nstages: [{{name: a, run: [a]}}]", "r", Runbook).limits.wall == number
    )
    expect = f"{{artifacts: [{{path: x, kind: csv, checks: [{{column: a, max: {text}}}]}}]}}"
    (stage,) = loads(f"name: r\nstages: [{{name: a, run: [a], expect: {expect}}}]", "r", Runbook).stages
    assert stage.expect["artifacts"][0]["checks"] == [{"column": "a", "max": number}]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "limits: {wall: 300}",
            "limits: {wall: 1:30}",
            "expected a duration such as 90m, 1h30m, 45s or 2700 (seconds)",
        ),
        ("limits: {wall: 300}", "limits: {wall: }", "45s or 2700 (seconds), got nothing"),
        ("paths: []", "paths: [' ']", "key 'stages.1.paths.0' (triton_fwd): expected text, got none"),
        ("environment: {", "environment: {lock: '', ", "key 'environment.lock': expected text, got none"),
        ("limits: {wall: 300}", "limits: !env WALL", "a tag (such as !env) that is not known here"),
        ("paths: []", "paths:", "key 'stages.1.paths' (triton_fwd): expected a list, got nothing"),
        ("min_passed: 1", "min_passed: 1_000", "expected a whole number"),
        ("run: [python, -m, nsa.sanity]", "run: [python, yes]", "expected text, got true, which is text in quotes"),
        ("min_passed: 1", "min_pass: 1", "unknown key: did you mean min_passed"),
        ("min_passed: 1", "min_passed: 0", "key 'stages.1.expect.tests.min_passed' (triton_fwd): expected"),
        (
            "needs: [sanity]",
            "needs: [sanitty]",
            "stage 'triton_fwd' needs 'sanitty': expected an earlier stage: did you",
        ),
        (
            "stages:\n",
            "stages:\n  - {name: a, run: [a], needs: [sanity]}\n",
            "stage 'a' needs 'sanity': expected an earlier stage, and that one comes later",
        ),
        ("name: sanity", "name: triton_fwd", "expected one stage of each name"),
        ("name: sanity", "name: Triton_Fwd", "differ in more than case, got 'Triton_Fwd' and 'triton_fwd'"),
        ("extra: [", "extra: ['pytest>>1', ", "bad.yaml:4: key 'environment.extra.0': expected a package with or"),
        ("name: sanity", "name: ../sanity", "key 'stages.0.name'"),
        ("path: routing.json", "path: ../routing.json", "expected a relative path without '..'"),
        ("path: routing.json", "path: /routing.json", "expected a relative path without '..'"),
        ("path: routing.json", "path: '{commt}.json'", "no other placeholder than {commit} and {commit7}, got {commt}"),
        ("path: routing.json", "path: sanity.out/a", "expected a file that is no folder of another, and there is 'san"),
        ("path: routing.json", 'path: "a\\nb.json"', "expected a path that can be shown"),
        ("path: routing.json", f"path: {'a/' * 32}routing.json", "expected at most 32 folders deep"),
        ("path: routing.json", "path: sanity.out", "artifact 'sanity.out': expected one owner"),
        (
            "kind: jsonl",
            "kind: jsonlines",
            "expected 'text', 'csv', 'json', 'jsonl', 'pytest-benchmark', 'nvbench' or 'asv'",
        ),
        ("{finite: all}", "{finit: all}", "unknown key: did you mean finite"),
        ("{finite: all}", "{finite: all, max: 3}", "expected {finite}, {column, min, max and/or matches}"),
        ("{equal: [reads_actual, reads_expected]}", "{equal: [a]}", "key 'stages.1.expect.artifacts.1.checks.3.equal'"),
        ("when: [cuda", "when: [cudda", "expected cuda, sm>=NN, sm==NN or has:PACKAGE"),
        ("wall: 300}", "wall: -1}", "key 'stages.1.limits.wall'"),
        ("wall: 300}", f"wall: {'9' * 400}}}", "key 'stages.1.limits.wall' (triton_fwd): expected a duration"),
        ("wall: 300}", f"log_bytes: {'9' * 400}K}}", "expected a number of bytes, or one with K, M, G or T"),
        ("paths: []", "builds: ['[z-a].so']", "expected a pattern of paths: bad character range z-a"),
        ("allow_skips: []", "allow_skips: ['(']", "expected a regular expression"),
        (
            "allow_skips: []",
            "allow_skips: ['']",
            "expected a regular expression, got none, which is found in everything",
        ),
        ("allow_skips: []", "allow_skips:", "key 'stages.1.expect.tests.allow_skips' (triton_fwd): expected a list"),
        ("selected: triton", "selected: ''", "expected a backend, got none"),
        ("expect: {artifacts", "expect: {kills: , artifacts", "key 'stages.0.expect.kills' (sanity): expected a list"),
        ("expect: {artifacts", "expect: {allow_exit_codes: {grep: [0]}, artifacts", "an exit code from 1 to 255"),
        ("kind: jsonl", "kind: ", "expected 'text', 'csv', 'json', 'jsonl'"),
        ("paths: []", "paths: ['']", "key 'stages.1.paths.0' (triton_fwd): expected text, got none"),
        ("run: [python, -m, nsa.sanity]", "run: ['', a]", "expected a program as its first word"),
        ("wall: 300}", "log_bytes: 64MB}", "expected a number of bytes, or one with K, M, G or T"),
        ('NSA_TEST_TRITON_SEL: "1"', "A: {from_env: ''}", "expected a variable's name"),
        ('NSA_TEST_TRITON_SEL: "1"', "NSA_POD_ARTIFACTS: out", "expected another name than NSA_POD_ARTIFACTS"),
        ("from: stdout}]}}", "from: stdin}]}}", "expected 'from' to be stdout, stderr or tree:FILE"),
        ("expect: {artifacts", "expect: {tests: {}, artifacts", "only of a stage that runs pytest"),
        ("run: [python, -m, nsa.sanity]", "run: []", "key 'stages.0.run'"),
        ("limits: {wall: 3600", "limits: {wal: 3600", "key 'limits.wal': unknown key: did you mean wall"),
    ],
)
def test_mistakes_name_file_line_key_and_expectation(old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        loads(GOOD.replace(old, new), "bad.yaml", Runbook)
    assert str(caught.value).startswith("bad.yaml:")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("run", "paths"),
    [
        (["python", "-m", "pytest", "-q", "a/test_x.py::test_y", "-k", "not_a_path", "b"], ["a/test_x.py", "b"]),
        (["pytest", "-n", "2", "t"], ["t"]),
        (["{python}", "-W", "error", "-m", "pytest", "t.py"], ["t.py"]),
        (["python", "-X", "dev", "tool.py", "x"], ["tool.py"]),
        (["python3.11", "-c", "print()", "x"], []),
        (["python", "-m", "nsa.bench", "decode"], []),
        (["bash", "run.sh"], ["run.sh"]),
        (["bash", "-c", "run.sh"], []),
        (["./build/bench", "x"], ["./build/bench"]),
        (["/opt/bench"], []),
    ],
)
def test_paths_that_a_command_names(run: list[str], paths: list[str]) -> None:
    assert named_paths(Stage(name="s", run=run)) == paths


def test_what_counts_as_pytest() -> None:
    assert pytest_arguments(["/env/bin/python3", "-m", "pytest", "-q"]) == ["-q"]
    assert pytest_arguments(["bash", "-c", "pytest"]) is None
    assert python_module(["python", "-m", "nsa.flags", "x"]) == "nsa.flags"


def artifacts_of(*stages: str) -> list[dict[str, Any]]:
    lines = "".join(f"  - {{name: s{n}, run: [x], expect: {{artifacts: [{a}]}}}}\n" for n, a in enumerate(stages))
    found = loads(f"name: r\nstages:\n{lines}", "r.yaml", Runbook)
    return [artifact for stage in found.stages for artifact in stage.expect["artifacts"]]


def test_artifacts_are_known_by_one_name_each() -> None:
    (found,) = artifacts_of("{path: ./out//a.txt, from: 'tree:./build/a.txt', reproducible: true}")
    assert (found["path"], found["from"]) == ("out/a.txt", "tree:build/a.txt")
    with pytest.raises(InputError, match=r"artifact 'a\.txt': expected one owner"):
        artifacts_of("{path: a.txt}", "{path: ./a.txt}")
    assert len(artifacts_of("{path: a.csv}, {path: a.csv, kind: csv}")) == 2
    with pytest.raises(InputError, match=r"artifact 'a\.txt': expected it once where it has a 'from'"):
        artifacts_of("{path: a.txt, from: stdout}, {path: ./a.txt, from: stderr}")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("{path: a, kind: csv, checks: [{at_most: [a]}]}", "expected two columns"),
        ("{path: a, kind: csv, checks: [{values: {}}]}", "expected a column with its values"),
        ("{path: a, kind: csv, checks: [{values: {S: []}}]}", "expected a column with its values"),
        ("{path: a, kind: csv, checks: [{column: S, matches: '('}]}", "expected a regular expression"),
        ("{path: a, kind: csv, checks: [{equal: [a, a]}]}", "expected two different columns"),
        ("{path: a, kind: csv, checks: [{sum: [a, a], near: 100, within: 2}]}", "expected each column once"),
        ("{path: a, kind: csv, checks: [{column: S, max: " + "9" * 400 + "}]}", "expected a finite number"),
        ("{path: a, kind: csv, checks: [{sum: [a], near: 1, within: " + "9" * 400 + "}]}", "expected a finite number"),
        ("{path: a, kind: csv, checks: [{values: {S: [.nan]}}]}", "expected a finite number"),
        ("{path: a, kind: csv, checks: [{column: S, min: 2, max: 1}]}", "expected at most max, which is 1"),
        ("{path: a, kind: csv, checks: [{column: S, matches: ''}]}", "expected a regular expression, got none"),
        ("{path: a, kind: csv, checks: [{column: S}]}", "{column, min, max and/or matches}"),
        ("{path: a, kind: csv, checks: [{finite: all, impossible: maybe}]}", "expected true or false"),
        ("{path: a, kind: csv, allow: {S: OOM}}", "expected a list"),
        ("{path: a, allow: {S: [OOM]}}", "expected kind csv, json or jsonl beside"),
        (r'{path: "a\nb.txt", from: stdout}', "expected a path that can be shown"),
        (r'{path: a.txt, from: "tree:a\tb.txt"}', "expected a path that can be shown"),
        ("{path: a, reproducible: 1}", "expected true or false"),
    ],
)
def test_what_cannot_be_asked_of_an_artifact(asked: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        artifacts_of(asked)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("path", sorted(ROOT.glob("runbooks/*.yaml")), ids=lambda path: path.stem)
def test_this_projects_own_are_read(path: Path) -> None:
    assert find_runbook(str(path), ROOT).runbook.name == path.stem


def test_a_runbook_is_found_by_either_ending_and_none_that_is_hidden(tmp_path: Path) -> None:
    folder = tmp_path / "runbooks"
    folder.mkdir()
    for name in ("a.yaml", "b.yml", "c.yaml", "c.yml", "._a.yaml", ".b.yml.swp", "d.yaml~", "e.txt"):
        (folder / name).write_text("name: r\nstages: [{name: s, run: [a]}]\n")
    (folder / "f.yaml").mkdir()
    assert own_runbooks(tmp_path) == ["a", "b", "c"]
    assert [find_runbook(name, tmp_path).path.name for name in "abc"] == ["a.yaml", "b.yml", "c.yaml"]


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("{tests: {min_passed: -1}}", "expected a whole number above 0, got -1"),
        ("{device: gpu}", "expected cuda or any, got 'gpu'"),
        ("{kills: ['a:b:c']}", "got 'a:b:c'"),
        ("{artifacts: [{path: ../x}]}", "expected a relative path without '..', got '../x'"),
    ],
)
def test_what_is_expected_stands_beside_what_is_there(expect: str, said: str) -> None:
    text = f"name: r\nstages:\n  - {{name: a, run: [pytest], expect: {expect}}}\n"
    with pytest.raises(InputError, match=re.escape(said) + "$"):
        loads(text, "r.yaml", Runbook)


def test_a_file_of_any_name_is_a_runbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.txt").write_text("name: m\nstages:\n  - {name: a, run: [pytest]}\n")
    assert find_runbook("matrix.txt", tmp_path).source == "file"
    with pytest.raises(InputError, match="unknown runbook 'matrix'"):
        find_runbook("matrix", tmp_path)


def test_names_are_found_in_the_repository_then_in_the_package(tmp_path: Path) -> None:
    assert find_runbook("cpu-smoke", tmp_path).source == "packaged"
    (tmp_path / "runbooks").mkdir()
    own = tmp_path / "runbooks" / "cpu-smoke.yaml"
    own.write_text("name: cpu-smoke\nstages: [{name: a, run: [pytest]}]\n")
    assert find_runbook("cpu-smoke", tmp_path).source == "repository"
    assert find_runbook(str(own), tmp_path).source == "file"
    (own.parent / "other.yaml").write_text(own.read_text())
    found = find_runbook("runbooks/other.yaml", tmp_path)  # whatever the current directory
    assert (found.source, found.path) == ("file", own.parent / "other.yaml")
    (own.parent / "other.yaml").unlink()
    with pytest.raises(InputError, match=r"unknown runbook 'nsa': known are cpu-smoke$"):
        find_runbook("nsa", tmp_path)
    with pytest.raises(InputError, match="unknown runbook 'cpu-smok': did you mean cpu-smoke"):
        find_runbook("cpu-smok", tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        find_runbook("./none.yaml", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ("-q a.py b.py::test_b", ["a.py", "b.py"]),
        ("--reruns 2 --count 3 --numprocesses 2 --durations-min 0.1 --cov-report html a.py", ["a.py"]),
        ("-q @args.txt a.py", ["args.txt", "a.py"]),
        ("a.py --reruns 2", ["a.py"]),
        ("--reruns=2 a.py -x b.py --lf c.py", ["a.py", "b.py", "c.py"]),
        ("-k name -n 4 a.py -n4 b.py -qk name c.py -rA d.py", ["a.py", "b.py", "c.py", "d.py"]),
        ("--pyargs a.py -- -b.py", ["a.py", "-b.py"]),
        ("--pyargs toy toy.tests::test_a tests/a.py", ["tests/a.py"]),
    ],
)
def test_an_options_value_is_no_path(arguments: str, paths: list[str]) -> None:
    stage = Stage.model_validate({"name": "s", "run": ["pytest", *arguments.split()]})
    assert named_paths(stage) == paths


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        ("pytest -q t/test_a.py::test_b | tee log", ["t/test_a.py"]),
        ("PYTHONPATH=. python tool.py --n 3 && python -m pytest tests", ["tool.py", "tests"]),
        ("pytest -q t.py 2>&1 | tee log", ["t.py"]),
        ("set -x\npython a.py > out.txt  # why\npython \\\n  b.py", ["a.py", "b.py"]),
        ("echo begin; pytest a | tee log\npython a.py; python a.py", ["a", "a.py"]),
        ("python gen.py > b.py\npython b.py\npython c.py", ["gen.py", "c.py"]),
        ("python -m zipapp src -o b.pyz && python b.pyz", []),
        ("python gen.py --out=b.py $MORE b.py\npython b.py", ["gen.py"]),
        ("tar xf b.tar\npython b/a.py", []),
        ("./configure\npython made.py", []),
        ("if [ -f a.py ]; then python a.py; fi\npython b.py", []),
        ("cd sub\npython a.py", []),
        ("python a.py || python b.py", ["a.py"]),
        ("python - <<X\nprint()\nX\npython b.py", []),
        ("python $SCRIPT\npytest tests/*.py", []),
        ("echo 'begin\nend'; python a.py", []),
    ],
)
def test_paths_that_lines_name(lines: str, paths: list[str]) -> None:
    assert named_paths(Stage(name="s", shell=lines)) == paths


def test_lines_are_run_by_a_strict_bash() -> None:
    assert Stage(name="s", shell="a\nb\n").argv == ["bash", "-euo", "pipefail", "-c", "a\nb\n"]


@pytest.mark.parametrize("given", [{}, {"run": ["a"], "shell": "a"}])
def test_a_stage_has_either_a_command_or_lines(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected either 'run' .* or 'shell'"):
        Stage(name="s", **given)


def test_tests_may_be_owed_by_lines() -> None:
    stage = Stage(name="s", shell="pytest | tee log", expect={"tests": {"min_passed": 1}})
    assert not stage.is_pytest


@pytest.mark.parametrize(
    ("run", "fits"),
    [
        (["bash", "ci.sh"], True),
        (["sh", "-eu", "ci.sh", "-x"], True),
        (["./ci.sh"], True),
        (["make", "-j2"], True),
        (["sh", "-c", "pytest | tee log"], False),
        (["bash", "-euc", "pytest"], False),
        (["bash"], False),
    ],
)
def test_tests_may_be_owed_by_a_script(run: list[str], fits: bool) -> None:
    with nullcontext() if fits else pytest.raises(ValueError, match="lines go under 'shell'"):
        Stage(name="s", run=run, expect={"tests": {"min_passed": 1}})
