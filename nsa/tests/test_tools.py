"""The commands that make the one-shot's artifacts, as a stage runs them."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import nsa
from nsa import flags
from nsa.bench import __main__ as bench_command
from nsa.routing import RoutingError
from nsa.routing import __main__ as routing_command
from nsa.tools import check_env, fa2_probe, milestones, sanity, sel_ranges
from nsa.tools.check_env import judge_pairing, triton_requirement

# --- pairing ---

OLD = ["filelock", "triton (==2.2.0) ; platform_system == 'Linux'"]
NEW = ["filelock", 'triton==3.0.0; platform_system == "Linux" and python_version < "3.13"']


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        (OLD, "triton (==2.2.0)"),
        (NEW, "triton==3.0.0"),
        (["pytorch-triton==3.1.0+git"], "pytorch-triton==3.1.0+git"),
        (["pytorch-triton-rocm==3.1.0"], None),
        (["filelock", "tritonclient==2.0"], None),
    ],
)
def test_torchs_requirement_is_found(requirements: list[str], expected: str | None) -> None:
    assert triton_requirement(requirements) == expected


@pytest.mark.parametrize(
    ("torch", "triton", "requirement", "problem"),
    [
        ("2.4.0", "3.0.0", "triton==3.0.0", None),
        ("2.3.1", "2.3.1", "triton (==2.3.1)", None),
        ("2.3.1", "3.0.0", "triton==2.3.1", "torch 2.3.1 requires triton==2.3.1, and Triton 3.0.0 is installed"),
        ("2.4.0", None, "triton==3.0.0", "Triton is not installed"),
        ("2.13.0+cpu", "3.7.1", None, None),
        ("2.13.0+cpu", None, None, None),
        (None, "3.0.0", None, "torch is not installed"),
        ("2.9.0", "3.5.0", "triton>=3", "names no exact version"),
    ],
)
def test_pairing(torch: str | None, triton: str | None, requirement: str | None, problem: str | None) -> None:
    found = judge_pairing(torch, triton, requirement)
    assert found is None if problem is None else problem in (found or "")


def test_check_env_reports_this_environment(capsys: pytest.CaptureFixture[str]) -> None:
    code = check_env.main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["ok"] else 2)
    assert found["python"] == sys.version.split()[0]
    assert {"torch", "triton", "flash-attn", "torch_cuda", "driver", "problem"} <= found.keys()


def test_a_wrong_pair_is_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check_env, "requires", lambda name: ["triton==0.0.1"])
    assert check_env.main([]) == 2
    assert "requires triton==0.0.1" in capsys.readouterr().out


# --- producers ---


def test_sanity_covers_every_branch(capsys: pytest.CaptureFixture[str]) -> None:
    code = sanity.main([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [
        "compress", "compressed", "select", "selected", "window", "attention"
    ]  # fmt: skip
    assert (code, lines[-1]) == (0, "sanity: OK")


def test_sanity_notices_a_wrong_branch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    window = sanity.ops.sliding_window_attention
    monkeypatch.setattr(sanity.ops, "sliding_window_attention", lambda q, k, v, w: window(q, k, v, w + 1))
    assert sanity.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "sanity: WRONG (window)"


def test_routing_json_has_a_key_for_each_operation(capsys: pytest.CaptureFixture[str]) -> None:
    with flags.using(use_fa2=True):
        assert routing_command.main(["--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"compressed", "select", "selected", "window", "combine", "profile"} <= found.keys()
    assert found["window"]["requested"] == "fa2" and found["window"]["fallback"]


def test_selection_ranges_are_lawful(capsys: pytest.CaptureFixture[str]) -> None:
    assert sel_ranges.main(["--S", "700", "--rows", "4"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 8
    for line in lines:
        assert all(0 <= start < end <= line["t"] + 1 for start, end in line["ranges"])
        assert line["covered"] == sum(end - start for start, end in line["ranges"])


def test_fa2_probe_says_why_or_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert fa2_probe.main([]) == 0
    found = capsys.readouterr().out
    assert found.startswith(("provider: ", "no provider: "))
    assert "compressed bf16 dk=192 dv=128: " in found


@pytest.mark.parametrize(
    ("command", "argv", "sentence"),
    [
        (routing_command, ["--backend", "cuda13"], "unknown backend 'cuda13'"),
        (routing_command, ["--device", "foo"], "'foo' is no device"),
        (routing_command, ["--device", "cuda:99"], "this machine has no device cuda:99"),
        (routing_command, ["--groups", "3"], "heads=64 must be a multiple of kv_heads=3"),
        (sel_ranges, ["--rows", "0"], "need 1 <= rows"),
        (sel_ranges, ["--S", "3", "--rows", "4"], "need 1 <= rows <= S"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(
    command, argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(argv) == 2
    assert sentence in capsys.readouterr().err


def test_a_flag_that_sanity_cannot_follow_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with flags.using(backend="cuda13"):
        assert sanity.main([]) == 2
    assert capsys.readouterr().err.startswith("error: unknown backend 'cuda13'")


def test_a_route_that_a_bench_is_refused_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(argv: list[str]) -> None:
        raise RoutingError("selected would run on torch: no GPU")

    monkeypatch.setattr("nsa.bench.decode.main", refuse)
    assert bench_command.main(["decode"]) == 2
    assert capsys.readouterr().err == "error: selected would run on torch: no GPU\n"


def _commands() -> list[str]:
    """Every module of the library that `python -m` runs, so that none is forgotten."""
    root = Path(nsa.__file__).parent
    found = [path for path in root.rglob("*.py") if 'if __name__ == "__main__":' in path.read_text()]
    names = [
        ".".join(("nsa", *path.relative_to(root).with_suffix("").parts)) for path in found if "tests" not in path.parts
    ]
    return sorted(name.removesuffix(".__main__") for name in names)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--no-such-option", 2)])
@pytest.mark.parametrize("module", _commands())
def test_every_command_says_how_it_is_used_and_nothing_else(
    module: str, argument: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [module, argument])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    found = capsys.readouterr()
    assert ended.value.code == code
    assert (found.out if code == 0 else found.err).startswith(
        f"usage: python -m {module.replace('.bench.', '.bench ')}"
    )
    assert not (found.err if code == 0 else found.out)


@pytest.mark.parametrize("module", ["nsa.flags", "nsa.routing"])
def test_commands_run_without_a_warning(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, "--json"], capture_output=True, text=True, timeout=300, check=True
    )
    assert json.loads(done.stdout) and done.stderr == ""


# --- milestones ---


def test_milestones_run_and_what_did_not_run_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(milestones, "provider", lambda: "no provider here")
    assert milestones.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        ["M0", "branches", "ok"],
        ["M1", "flash", "not"],
        ["M2", "learning", "ok"],
        ["M3", "decoding", "ok"],
    ]


def test_some_milestones_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert milestones.main(["--only", "M3"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["M3", "milestones"]
    with pytest.raises(SystemExit):
        milestones.main(["--only", "M7"])
    assert "expected some of M0,M1,M2,M3" in capsys.readouterr().err


def test_a_wrong_milestone_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milestones, "MILESTONES", {"M3 decoding": milestones.decoding})
    monkeypatch.setattr(milestones.blocks, "reads_expected", lambda t, config: 1)
    assert milestones.main([]) == 1
