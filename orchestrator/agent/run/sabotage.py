"""Runs a stage's tests again after they passed, once for each function that is spoiled and each mutant of the tree; and
once with all of that in its place and nothing wrong, where the tests that noticed have to pass.

Each time they find the tree and the artifacts as the stage itself had found them, at the same paths; what they leave is
thrown away, but for the output of an attempt that no test noticed. What they read or write outside of all that, and
make anew where it is not there, is not there: it may hold what the code itself had returned.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import dataclasses
import json
import os
import shutil
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple, Union

from orchestrator.agent.evidence.provenance import Origins
from orchestrator.agent.host.removal import remove
from orchestrator.agent.layout import Layout, Scratch
from orchestrator.agent.run.bytecode import VARIABLE
from orchestrator.agent.run.command import EVENTS, Commands, seen_by
from orchestrator.agent.run.golden_files import GoldenFiles, written
from orchestrator.agent.run.injection import Injection
from orchestrator.agent.run.supervise import CannotStart, Ending, Limits, Supervisor
from orchestrator.shared import tree
from orchestrator.shared.events import SabotageEnded, SabotageStarted
from orchestrator.shared.files import Refused, open_inside
from orchestrator.shared.journal import Journal
from orchestrator.shared.plan import Stage
from orchestrator.shared.stage_record import Attempt, EndedBy, StageRecord
from orchestrator.shared.text import plain
from orchestrator.verdict import execution
from orchestrator.verdict.case import SESSIONS

_COMPILED = (".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".cuh", ".pyx", ".pxd", ".rs", ".f90")
_FOLDER = "sabotage"
_MAX_BYTES = 16 << 20
_KEPT_LOG_BYTES = 64 << 10
_DURATIONS, _NOTICED = "durations.json", "noticed.json"
_LINKS = "links"
_GIT = ".git"

Outcome = Literal["killed", "survived", "not called", "no proof"]
Finding = Tuple[Outcome, Optional[str], str]
Notes = List[Mapping[str, Any]]


@dataclass(frozen=True)
class _Wrong:
    """What is wrong while the tests run: the function `name`, or what the mutant's `files` hold (None: they are gone),
    unless it is `unfit`. The injected modules are `told` of it, and in a control, with nothing wrong, of the tests that
    have `noticed` something.
    """

    name: str
    kind: Literal["function", "mutant"]
    told: Mapping[str, Union[str, Sequence[str]]]
    files: Mapping[str, Optional[bytes]] = field(default_factory=dict)
    unfit: Optional[str] = None
    noticed: Sequence[str] = ()

    def changes_test(self, proof: Mapping[str, Any], begun: Path) -> bool:
        """Whether it changes what the test that noticed it expects: its file, but for functions that are no tests."""
        file = str(proof.get("noticed")).partition("::")[0]
        wrong = self.files.get(file)
        return wrong is not None and _tests_of(wrong) != _tests_of((begun / file).read_bytes())


class Sabotage:
    """The attempts of a run's stages; `asked` says whether they are part of it."""

    def __init__(
        self,
        asked: bool,
        places: Layout,
        commands: Commands,
        injection: Injection,
        origins: Origins,
        supervisor: Supervisor,
        journal: Journal,
    ) -> None:
        self._asked = asked
        self._places = places
        self._commands = commands
        self._injection = injection
        self._origins = origins
        self._supervisor = supervisor
        self._journal = journal
        self._room = places.run_dir / _FOLDER
        self._begun, self._given, self._aside = (self._room / name for name in ("tree", "artifacts", "own"))
        self._since = 0
        self._golden = GoldenFiles((), 0)

    def begin(self, stage: Stage) -> None:
        """Keep what the stage begins with, if its tests are to run again."""
        shutil.rmtree(self._room, ignore_errors=True)
        if self.is_wanted(stage):
            self._room.mkdir()
            self._since = self._room.stat().st_ctime_ns
            _copy_tree(self._places.tree, self._begun)
            tree.copy(self._places.artifacts, self._given)

    def is_wanted(self, stage: Stage) -> bool:
        """Whether there is anything to attempt."""
        return next(self._wanted(stage), None) is not None

    def run(self, stage: Stage, tmp: Path, record: StageRecord) -> None:
        """Make the attempts, and record them; the record is that of an ended stage where the run itself is ended."""
        wanted = list(self._wanted(stage))
        self._places.tree.rename(self._aside)
        try:
            ended_by = self._find_golden(stage, tmp)
            if ended_by in ("cancel", "limit"):
                record["ended_by"] = ended_by
                return
            for number, wrong in enumerate(wanted, start=1):
                self._journal.append(
                    SabotageStarted(
                        event="sabotage_started", stage=stage["name"], name=wrong.name, number=number, of=len(wanted)
                    )
                )
                attempt, ended_by = self._attempt(stage, wrong, number, tmp)
                if ended_by in ("cancel", "limit"):
                    record["ended_by"] = ended_by
                    return
                record["sabotage"].append(attempt)
                self._journal.append(SabotageEnded(event="sabotage_ended", stage=stage["name"], **attempt))
            ended_by = self._take_back(stage, wanted, record["sabotage"], tmp)
            if ended_by in ("cancel", "limit"):
                record["ended_by"] = ended_by
        finally:
            self._discard_tree()
            self._aside.rename(self._places.tree)
            shutil.rmtree(self._room, ignore_errors=True)
            self._golden.remove()

    def _find_golden(self, stage: Stage, tmp: Path) -> Optional[EndedBy]:
        """Find which of the files that the tests have read, or written, outside of the run they make anew: none of them
        is there.
        """
        command = self._commands.of(stage, tmp)
        homes = self._origins.of(seen_by(command), command.cwd).config["home"]
        spared = [*homes, str(self._places.workdir), str(self._places.short)]
        runs = self._places.run_dir.parent.glob("*/plan.json")  # any of which may have made one
        first = min((plan.stat().st_mtime_ns for plan in runs), default=self._since)
        files = [*self._read_outside(stage, tmp), *written(seen_by(command), first, spared)]
        self._golden = GoldenFiles(files, self._since)
        ending = Ending()
        if self._golden.files:
            with contextlib.suppress(CannotStart, OSError):
                ending, _ = self._again(stage, _Wrong("", "function", {"attempt": ""}), self._scratch(0), tmp)
            self._golden.keep_made()
        return ending.ended_by

    def _read_outside(self, stage: Stage, tmp: Path) -> Iterator[str]:
        read = (note.get("read") for note in _lines(self._places.stage(stage["name"]), execution.FILE))
        inside = (self._places.tree, self._places.artifacts, self._places.stage(stage["name"]), tmp, tmp.resolve())
        for file in read:
            if isinstance(file, str) and not file.startswith(tuple(f"{folder}/" for folder in inside)):
                yield file

    def _wanted(self, stage: Stage) -> Iterator[_Wrong]:
        if self._asked:
            for name in stage["expect"].get("kills") or ():
                yield _Wrong(name, "function", {"attempt": "", "kill": name})
            for mutant in stage.get("mutants") or ():
                files = {path: _content(packed) for path, packed in mutant["files"].items()}
                yield _Wrong(mutant["patch"], "mutant", {"attempt": mutant["tests"]}, files, mutant["wrong"])

    def _attempt(self, stage: Stage, wrong: _Wrong, number: int, tmp: Path) -> Tuple[Attempt, Optional[EndedBy]]:
        ending, scratch = Ending(), self._scratch(number)
        if wrong.unfit:
            finding: Finding = ("no proof", None, f"does not apply: {wrong.unfit}")
        else:
            try:
                ending, notes = self._again(stage, wrong, scratch, tmp)
                finding = _finding(ending, notes, wrong, stage, self._begun)
                if finding[0] == "survived" and self._golden.files:
                    finding = ("survived", None, f"they make {min(self._golden.files)} themselves, which was not there")
            except (CannotStart, OSError) as e:
                finding = ("no proof", None, f"could not be tried: {e}")
        outcome, test, reason = finding
        if outcome != "killed":
            self._keep_output(stage, scratch, number)
        shutil.rmtree(scratch.folder, ignore_errors=True)
        attempt = Attempt(
            name=wrong.name,
            kind=wrong.kind,
            outcome=outcome,
            test=test and plain(test),
            reason=plain(reason),
            seconds=ending.seconds,
        )
        return attempt, ending.ended_by

    def _take_back(
        self, stage: Stage, wanted: Sequence[_Wrong], attempts: Sequence[Attempt], tmp: Path
    ) -> Optional[EndedBy]:
        """Take back what was noticed by tests that do not pass with nothing wrong either: they are flaky, or look for
        the sabotage itself. Functions are replaced then by what returns the same, files differ by a blank line.
        """
        noticed = [attempt for attempt in attempts if attempt["outcome"] == "killed"]
        if not noticed:
            return None
        told = {"attempt": "", "kill": [a["name"] for a in noticed if a["kind"] == "function"]}
        paths = {path for wrong in wanted for path in wrong.files if path.endswith(".py")}
        files = {path: self._with_a_blank_line(path) for path in paths if (self._begun / path).is_file()}
        control = _Wrong("", "function", told, files, noticed=[str(attempt["test"]) for attempt in noticed])
        ending = Ending()
        notes: Notes = []
        with contextlib.suppress(CannotStart, OSError):  # then nothing has passed
            ending, notes = self._again(stage, control, self._scratch(len(wanted) + 1), tmp)
        passed = {plain(str(note["held"])) for note in notes if "held" in note}
        for attempt in noticed:
            if attempt["test"] not in passed:
                reason = f"was noticed by {attempt['test']}, which does not pass with nothing wrong either"
                attempt["outcome"], attempt["reason"] = "no proof", reason
                self._journal.append(SabotageEnded(event="sabotage_ended", stage=stage["name"], **attempt))
        return ending.ended_by

    def _with_a_blank_line(self, path: str) -> bytes:
        return (self._begun / path).read_bytes() + b"\n"

    def _scratch(self, number: int) -> Scratch:
        return Scratch(self._places.run_dir, self._places.beside, folder=self._room / str(number))

    def _again(self, stage: Stage, wrong: _Wrong, scratch: Scratch, tmp: Path) -> Tuple[Ending, Notes]:
        """Run the tests; how that ended, and what the injected modules told of it."""
        try:
            self._prepare(wrong, scratch, tmp)
            ending = self._run(stage, wrong, scratch, tmp)
            return ending, _lines(scratch.stage(stage["name"]), execution.FILE)
        finally:
            remove(str(tmp))
            self._discard_tree()

    def _prepare(self, wrong: _Wrong, scratch: Scratch, tmp: Path) -> None:
        """The tree and the artifacts as the stage began with them, and the tree made wrong."""
        scratch.folder.mkdir()
        scratch.stage("").mkdir()
        tmp.mkdir(exist_ok=True)
        tree.copy(self._given, scratch.artifacts)
        _copy_tree(self._begun, self._places.tree)
        self._injection.renew()
        for path, content in wrong.files.items():
            _put(self._places.tree, path, content)
            self._put_installed(path, content)

    def _put_installed(self, path: str, content: Optional[bytes]) -> None:
        """Make wrong what the repository's own layer has of the file; OSError where it has that compiled."""
        inner = self._injection.shadow(path, self._begun / path)
        if inner:
            _put(self._injection.venv.packages, inner, content)
        elif self._injection.has_layer and path.endswith(_COMPILED):
            raise OSError(f"{path} is compiled into the repository's installation, which is not built again for it")

    def _run(self, stage: Stage, wrong: _Wrong, scratch: Scratch, tmp: Path) -> Ending:
        folder, limits = scratch.stage(stage["name"]), stage["limits"]
        command = dataclasses.replace(self._commands, places=scratch).of(stage, tmp)
        durations, noticed = scratch.folder / _DURATIONS, scratch.folder / _NOTICED
        durations.write_text(json.dumps(self._seconds(stage)))
        if wrong.noticed:
            noticed.write_text(json.dumps(wrong.noticed))
        own = {
            "report": str(folder / execution.FILE),
            "sessions": str(folder / SESSIONS),
            "durations": str(durations),
            **({"noticed": str(noticed)} if wrong.noticed else {}),
        }
        env, kept = seen_by(command), str(self._commands.bytecode.folder)
        self._injection.tell(stage["name"], {**self._origins.of(env, command.cwd).config, **own, **wrong.told})
        if env.get(VARIABLE, kept) != kept:  # two sources of one size and second would be one to it
            env[VARIABLE] = str(tmp / "bytecode")
        with self._golden.absent(env, scratch.folder / _LINKS, faulty=bool(wrong.name)) as variables:
            return self._supervisor.run(
                dataclasses.replace(command, env={**env, **variables}, log_bytes=_KEPT_LOG_BYTES),
                Limits(limits["wall"], limits["silence"], limits["grace"]),
                lambda stream, elapsed, log: None,
            )

    def _seconds(self, stage: Stage) -> Dict[str, float]:
        """How long each test took in the stage's own run."""
        seconds: Dict[str, float] = {}
        for event in _lines(self._places.stage(stage["name"]), EVENTS):
            id_, took = event.get("id"), event.get("seconds")
            if isinstance(id_, str) and isinstance(took, (int, float)):
                seconds[id_] = seconds.get(id_, 0.0) + took
        return seconds

    def _discard_tree(self) -> None:
        """Take the attempt's tree away, even if it holds what cannot be deleted."""
        if self._places.tree.exists():
            gone = self._room / "gone" / os.urandom(8).hex()
            gone.parent.mkdir(exist_ok=True)
            self._places.tree.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _keep_output(self, stage: Stage, scratch: Scratch, number: int) -> None:
        kept = self._places.stage(stage["name"]) / _FOLDER / str(number)
        if (scratch.stage(stage["name"]) / "stdout").exists():
            kept.mkdir(parents=True)
            (scratch.stage(stage["name"]) / "stdout").rename(kept / "stdout")


def kept_output(places: Layout, stage: str, record: StageRecord) -> List[str]:
    """The outputs that the attempts left, as names of files of the run's directory."""
    names = (f"stages/{stage}/{_FOLDER}/{n}/stdout" for n in range(1, len(record["sabotage"]) + 1))
    return [name for name in names if (places.run_dir / name).is_file()]


def _copy_tree(source: Path, target: Path) -> None:
    tree.copy(source, target)
    if (source / _GIT).is_dir():
        shutil.copytree(source / _GIT, target / _GIT, symlinks=True)


def _content(packed: Optional[str]) -> Optional[bytes]:
    return None if packed is None else zlib.decompress(base64.b64decode(packed))


def _put(root: Path, path: str, content: Optional[bytes]) -> None:
    """Replace a file of the tree by what the mutant makes of it."""
    place = Path(os.path.normpath(root / path))
    if not str(place).startswith(f"{root}/"):
        raise OSError(f"{path} is outside the tree")
    mode = place.stat().st_mode if place.is_file() else 0o644
    if os.path.lexists(place):
        place.unlink()
    if content is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(mode & 0o777)


def _lines(folder: Path, name: str) -> Notes:
    """What the injected modules wrote into a file of the folder; what is not whole does not count."""
    found: Notes = []
    try:
        with open_inside(folder, name) as f:
            for line in f.read(_MAX_BYTES).splitlines():
                note = json.loads(line)
                if isinstance(note, dict):
                    found.append(note)
    except (OSError, Refused, ValueError, RecursionError):
        pass
    return found


def _finding(ending: Ending, notes: Notes, wrong: _Wrong, stage: Stage, begun: Path) -> Finding:
    """What came of an attempt, in the tree as it had `begun`: the first of its answers."""
    noticed = [note for note in notes if "noticed" in note]
    proofs = [note for note in noticed if note.get("proof") is True]
    if proofs and all(wrong.changes_test(note, begun) for note in proofs):
        return "no proof", None, f"changes the test that noticed it, {proofs[0]['noticed']}"
    others = (note for note in proofs if not wrong.changes_test(note, begun))
    proof = next((note for note in others if not _is_written_by(wrong, note, begun)), None)
    if proof:
        return "killed", str(proof["noticed"]), str(proof.get("error"))
    if proofs:
        own = proofs[0]
        return "no proof", None, f"was noticed by no more than a line of its own: {own['place']}: {own['line']}"
    answers: List[Callable[[], Optional[Finding]]] = [
        lambda: _not_spoiled(notes) if wrong.kind == "function" else None,
        lambda: _stopped(ending, stage),
        lambda: _only_errors(noticed),
        lambda: _nothing_ran(ending, wrong),
    ]
    found = (answer() for answer in answers)
    return next((finding for finding in found if finding), ("survived", None, ""))


def _tests_of(source: bytes) -> List[str]:
    """What the file of a test holds beside functions and classes that are none: a kernel may stand there too."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    names = (getattr(node, "name", "test") for node in module.body)
    return [ast.dump(node) for node, name in zip(module.body, names) if name.lower().startswith("test")]


def _is_written_by(wrong: _Wrong, proof: Mapping[str, Any], begun: Path) -> bool:
    """Whether what failed is a line that the mutant itself has written, in the code or in the tests."""
    file = str(proof.get("place")).rpartition(":")[0]
    if wrong.files.get(file) is None:
        return False
    before = (begun / file).read_text("utf-8", "replace") if (begun / file).is_file() else ""
    return not any(line.strip().startswith(str(proof.get("line"))) for line in before.splitlines())


def _not_spoiled(notes: Notes) -> Optional[Finding]:
    told = {str(note["sabotage"]): note for note in notes if "sabotage" in note}
    if "refused" in told:
        return "no proof", None, f"cannot be spoiled: it {told['refused'].get('why')}"
    if "absent" in told:
        return "not called", None, "its module has nothing of that name"
    if "called" not in told:
        return "not called", None, ""
    if "spoiled" not in told and "untouched" in told:
        return "no proof", None, f"returned nothing that can be made wrong: {told['untouched'].get('of')}"
    if "spoiled" not in told:
        return "no proof", None, "gave no result, and changed nothing that it was given"
    return None


def _stopped(ending: Ending, stage: Stage) -> Optional[Finding]:
    limits = {"wall": stage["limits"]["wall"], "silence": stage["limits"]["silence"]}
    if ending.ended_by in limits:
        seconds = limits[str(ending.ended_by)]
        return "no proof", None, f"made its tests reach their {ending.ended_by} limit of {seconds:g} s: no test failed"
    return ("no proof", None, f"made its tests end by {ending.signal}: no test failed") if ending.signal else None


def _only_errors(noticed: Notes) -> Optional[Finding]:
    if not noticed:
        return None
    late = next((note for note in noticed if note.get("late") is True), None)
    if late:
        return "no proof", None, f"was noticed only by how long a test took: {late['noticed']}: {late.get('error')}"
    first = noticed[0]
    said = f"made tests fail, but none by an assertion or a comparison: {first['noticed']}: {first.get('error')}"
    return "no proof", None, said


def _nothing_ran(ending: Ending, wrong: _Wrong) -> Optional[Finding]:
    if ending.exit_code == 0:
        return None
    if ending.exit_code == 5 and wrong.kind == "mutant":  # pytest's own, for no tests
        return "no proof", None, f"was not tried: none of the tests matches {wrong.told['attempt']!r}"
    return "no proof", None, f"made its tests end with exit code {ending.exit_code}: no test failed"
