"""`python -m tests.bench.guard [TEST FILE...]`: what it costs that the agent observes each process and each test.

Two suites, each bare and guarded, in turn in one run: trivial tests, and test files of this repository in a copy of its
commit; these as a stage's first session has them, and `again`, as others find what that has marked. All go under the
same pytest options and variables; guarded means with the injected package, as a stage has it. Then what does
nothing: a Python, one that imports torch, a session of one test. Prints one JSON object: medians of --rounds, and the
median and quartiles of the ratios of runs that followed each other.

Counted are CPU seconds (user and system, with all children), which a shared machine makes by the minute more or fewer.
With --instructions, the instructions of the process itself under valgrind, which differ by a millionth from run to run
whatever else runs: they want one round and some hundred tests, for all takes 40 times as long.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator.agent.env.interpreter import inspect
from orchestrator.agent.evidence.provenance import Origins
from orchestrator.agent.evidence.provided import Provided
from orchestrator.agent.host.inherited import inherited
from orchestrator.agent.layout import Layout
from orchestrator.agent.run import prepare
from orchestrator.agent.run.bytecode import Bytecode
from orchestrator.agent.run.command import FD_VARIABLE
from orchestrator.agent.run.injection import Injection
from orchestrator.agent.run.supervise import GATHER_S
from orchestrator.agent.run.variables import stage_variables
from orchestrator.shared.tree import scan

PER_FILE = 100
TRIVIAL = "def test_{n}():\n    assert {n} + 1\n\n\n"
# A part of the library's suite that a CPU goes through in half a minute.
_NAMES = ("geometry", "selection", "torch_parity", "reference", "cache", "decode", "layer", "packing")
LIBRARY = [f"nsa/tests/test_{name}.py" for name in _NAMES]
STARTS = 15
CACHEGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
Pairs = list[tuple[float, float]]  # CPU seconds or instructions, bare and guarded


@click.command()
@click.argument("files", nargs=-1)
@click.option("--tests", default=5000, show_default=True, help="How many trivial ones.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--instructions", is_flag=True, help="Count instructions, under valgrind, instead of CPU seconds.")
def main(files: Sequence[str], tests: int, rounds: int, instructions: bool) -> None:
    """Measure both suites and print them; FILES of tests stand for the library's own."""
    starts = min(rounds, 3) if instructions else STARTS
    with tempfile.TemporaryDirectory(prefix="nsa-pod-bench-") as name:
        trivial, one, library = (Stand(Path(name, stand), instructions) for stand in ("trivial", "one", "library"))
        trivial.write(tests)
        one.write(1)
        archive = subprocess.run(["git", "archive", "HEAD"], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(library.places.tree)], input=archive, check=True)
        found = {
            "counted": "instructions" if instructions else "CPU seconds",
            "trivial": {**_ratio(trivial.measure(trivial.pytest(), rounds)), "tests": tests},
            "library": _ratio(library.measure(library.pytest(*(files or LIBRARY)), rounds)),
            "library again": _ratio(library.measure(library.pytest(*(files or LIBRARY)), rounds, again=True)),
            "start": {
                "python": _added(one.measure(("-c", "pass"), starts)),
                "import torch": _added(one.measure(("-c", "import torch"), rounds)),
                "session": _added(one.measure(one.pytest(), starts)),
            },
        }
    of = found["trivial"]
    of["added_a_test"] = (of["guarded"] - of["bare"] - found["start"]["session"]) / tests
    click.echo(json.dumps({"python": sys.version.split()[0], "rounds": rounds, **found}, indent=1))


def _ratio(pairs: Pairs) -> dict[str, Any]:
    ratios = [guarded / bare for bare, guarded in pairs]
    low, ratio, high = (round(q, 4) for q in (statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3))
    bare, guarded = (statistics.median(side) for side in zip(*pairs, strict=True))
    return {"bare": bare, "guarded": guarded, "ratio": ratio, "ratio_quartiles": [low, high]}


def _added(pairs: Pairs) -> float:
    return statistics.median(guarded - bare for bare, guarded in pairs)


class Stand:
    """A run's places in `folder`, and one stage there."""

    def __init__(self, folder: Path, instructions: bool) -> None:
        self._instructions = instructions
        self.places = Layout(folder / "workdir" / "runs" / "bench")
        self.places.tree.mkdir(parents=True)
        self.places.artifacts.mkdir()
        self._stage = self.places.stage("s")
        self._tmp = folder / "tmp"

    def write(self, tests: int) -> None:
        """Trivial ones, into the tree."""
        for number in range(-(-tests // PER_FILE)):
            bodies = (TRIVIAL.format(n=n) for n in range(min(PER_FILE, tests - number * PER_FILE)))
            (self.places.tree / f"test_{number}.py").write_text("".join(bodies))

    def pytest(self, *files: str) -> Sequence[str]:
        """The arguments of a session of `files`, or of all."""
        argv = ["python", "-m", "pytest", "-q", "-o", "timeout=0", *files]  # valgrind is slow
        return prepare.with_pytest_options(argv, self.places.tree, self._stage / "junit.xml")[1:]

    def measure(self, arguments: Sequence[str], rounds: int, *, again: bool = False) -> Pairs:
        """What a Python with these arguments takes, bare and guarded; `again` after others of the same run."""
        found = inspect({"python": sys.executable, "kind": "system"}, ())
        interpreter = found.without_editables_of(Provided.by_tree(self.places.tree).names)
        cache = self.places.cache("bench")
        injection = Injection(self.places, interpreter, Bytecode(interpreter, self.places))
        injection.renew()
        env = {**inherited(), **stage_variables({}, self.places, [interpreter.bin], self._tmp, cache)}
        env["OMP_NUM_THREADS"] = "1"  # threads that wait for each other count as CPU time, and differ from run to run
        origins = Origins(self.places, interpreter, scan(self.places.tree), cache).of(env, self.places.tree)
        unguarded = {name: value for name, value in env.items() if name != "PYTHONPATH"}
        injection.tell("s", origins.config)
        tells = "pytest" in arguments
        self._run([interpreter.python, *arguments], unguarded, counts=False)  # what it compiles, others find
        pairs: Pairs = []
        for _ in range(rounds):
            bare = self._run([interpreter.python, *arguments], unguarded)
            if not again:
                injection.forget()
            pairs.append((bare, self._run([injection.venv.python, *arguments], env, tells=tells)))
        return pairs

    def _run(self, argv: Sequence[str], env: dict[str, str], *, tells: bool = False, counts: bool = True) -> float:
        """What one process takes, which must pass; if it `tells`, someone reads that, as the agent does."""
        shutil.rmtree(self._stage, ignore_errors=True)
        shutil.rmtree(self._tmp, ignore_errors=True)
        self._stage.mkdir(parents=True)
        self._tmp.mkdir()
        reads, writes = os.pipe()
        told: list[bytes] = []
        reader = threading.Thread(target=lambda: told.extend(_gathered(reads)))
        reader.start()
        counted = self._stage / "cachegrind"
        if self._instructions and counts:
            argv = [*CACHEGRIND, f"--log-file={counted}", *argv]
            env = {**env, "PYTHONHASHSEED": "0"}
        with open(self._stage / "stdout", "wb") as out:
            process = subprocess.Popen(
                argv,
                cwd=self.places.tree,
                env={**env, **({FD_VARIABLE: str(writes)} if tells else {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=[writes],
            )
        os.close(writes)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        reader.join()
        os.close(reads)
        if process.returncode or bool(told) != tells:
            output = (self._stage / "stdout").read_text(errors="replace")
            raise click.ClickException(f"{argv} ended with {process.returncode}: {output[-2000:]}")
        if self._instructions and counts:
            return int(re.findall(r"I +refs: +([\d,]+)", counted.read_text())[-1].replace(",", ""))
        return round(used.ru_utime + used.ru_stime, 4)


def _gathered(fd: int) -> Iterator[bytes]:
    """What is written to a pipe, read as the agent does."""
    while piece := os.read(fd, 1 << 16):
        yield piece
        time.sleep(GATHER_S)


if __name__ == "__main__":
    main()
