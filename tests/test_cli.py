"""The command line's end, however it comes."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator import cli
from orchestrator.commands import VERBS, load
from orchestrator.config.inventory import Pod
from orchestrator.errors import InputError
from orchestrator.home import home, who
from orchestrator.transports.ssh.endpoint import endpoint_of

# An interrupt between the opening and the closing of an archive's member: the archive's own end then raises ValueError.
INTERRUPTED = """
import io, zipfile
from orchestrator import cli
from orchestrator.pod import bundle

def build():
    with zipfile.ZipFile(io.BytesIO(), "w") as archive:
        member = archive.open("x", "w")
        raise KeyboardInterrupt

bundle.build = build
cli.main(["doctor", "--pod", "local"{more}])
"""

INTERRUPTED_BEFORE = """
import os, signal, sys

# Whoever began the tests may ignore it, as nohup does, and it would be passed on.
signal.signal({signum}, signal.default_int_handler if {signum} == signal.SIGINT else signal.SIG_DFL)

class Interrupted:
    def find_spec(self, name, *more):
        if name == "click":
            os.kill(os.getpid(), {signum})
            signal.pause()

sys.meta_path.insert(0, Interrupted())
from orchestrator.__main__ import main
main()
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("more", "stdout"), [("", ""), (', "--json"', '{"verdict": "error", "error": "interrupted"}\n')]
)
def test_an_interrupt_in_an_awkward_moment_is_said_in_a_word(tmp_path: Path, more: str, stdout: str) -> None:
    tmp_path.joinpath("pods.yaml").write_text("pods: {local: {transport: local}}\n")
    code = INTERRUPTED.replace("{more}", more)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, stdout, "error: interrupted\n")


@pytest.mark.process
@pytest.mark.parametrize(
    ("signum", "given", "stdout"),
    [
        (signal.SIGINT, [], ""),
        (signal.SIGTERM, ["--json"], '{"verdict": "error", "error": "interrupted"}\n'),
        (signal.SIGHUP, [], ""),
    ],
)
def test_an_interrupt_while_modules_are_loaded_is_said_in_a_word(signum: int, given: list[str], stdout: str) -> None:
    code = INTERRUPTED_BEFORE.replace("{signum}", str(int(signum)))
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signum, stdout, "error: interrupted\n")


@pytest.mark.process
def test_what_was_begun_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    """Under nohup SIGHUP is ignored, and stays so."""
    code = "import os; from orchestrator import interrupts; interrupts.heed(); os.kill(os.getpid(), 1)"
    ignoring = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    assert subprocess.run([sys.executable, "-c", code], preexec_fn=ignoring).returncode == 0


def test_nobody_else_looks_into_what_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path / "of" / "home"))
    before = os.umask(0)
    try:
        assert home().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_the_help_names_every_verb_by_the_words_of_its_own() -> None:
    told = CliRunner().invoke(cli.cli, ["--help"], terminal_width=200).output
    for name, verb in VERBS.items():
        command = load(name)
        assert command.name == name and re.search(rf"^  {name} +{re.escape(verb.help)}$", told, re.M)
        assert (command.help or "").startswith(verb.help.rstrip(".")), name


@pytest.mark.parametrize("word", ["no-such", "_", "open_", "output"])
def test_what_is_no_verb_is_called_so(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([word])
    assert f"No such command '{word}'" in capsys.readouterr().err


def test_a_misspelt_verb_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["valdate"])
    assert "No such command 'valdate': did you mean validate?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["validate", "doctor"])
def test_a_pod_without_its_option_is_answered_with_it(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([verb, "pi-4090"])
    assert "unexpected extra argument (pi-4090): did you mean --pod pi-4090?" in capsys.readouterr().err


@pytest.mark.process
def test_the_module_of_the_command_line_is_the_command_line() -> None:
    """`python -m orchestrator.cli` that did nothing would end with 0, which is passed."""
    done = subprocess.run([sys.executable, "-m", "orchestrator.cli", "no-such"], capture_output=True, text=True)
    assert done.returncode == 2 and "No such command" in done.stderr


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any user id."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    assert who().startswith(f"{os.getuid()}@")
    with pytest.raises(InputError, match="user: expected a plain name or address, got ''"):
        endpoint_of(Pod(name="p", host="h"))


@pytest.mark.process
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_exit_code(tmp_path: Path, closed: str) -> None:
    tmp_path.joinpath("pods.yaml").write_text("pods: {here: {transport: local, cost_per_hour: x}}\n")
    line = f'{{ "$0" -m orchestrator check 3>&-; }} {closed}'
    done = subprocess.run(["bash", "-c", line, sys.executable], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert ("expected a number" in done.stderr) == ("2>" not in closed)


def test_a_current_directory_that_was_removed_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SystemExit) as ended:
        cli.main(["pods", "--json"])
    monkeypatch.undo()
    assert ended.value.code == 2
    assert "not there any more: change to one that is" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
@pytest.mark.parametrize(("line", "code"), [("pods --json", 4), ("pods", 4), ("pods --pod x --json", 2)])
def test_a_full_disk_behind_stdout_is_said_in_a_word(tmp_path: Path, line: str, code: int) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "orchestrator", *line.split()]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_mistake_of_its_own_is_an_error_and_no_failed_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code for it, 1, says that a required stage failed."""
    monkeypatch.setattr(cli.cli, "main", lambda *given, **how: {}["absent"])
    with pytest.raises(SystemExit, match="4"):
        cli.main(["validate", "--json"])
    said = capsys.readouterr()
    assert json.loads(said.out) == {"verdict": "error", "error": "a mistake of nsa-pod itself: KeyError: 'absent'"}
    assert "Traceback" in said.err and said.err.endswith("error: a mistake of nsa-pod itself: KeyError: 'absent'\n")


@pytest.mark.process
@pytest.mark.parametrize("words", [["pods"], ["pods", "--json"], ["envs", "--pod", "here"]])
def test_a_reader_who_has_seen_enough_is_no_failure(tmp_path: Path, words: list[str]) -> None:
    """Rich's own end would be exit code 1."""
    tmp_path.joinpath("pods.yaml").write_text("pods: {here: {transport: local}}\n")
    reader, writer = os.pipe()
    os.close(reader)
    variables = {**os.environ, "NSA_POD_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "orchestrator", *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, stdout=writer, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
