"""A run's directory on the laptop: artifacts/runner/<commit>/<run id>/, with `latest` and the short commit as links."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, ValidationError

from orchestrator.errors import InputError, IntegrityError
from orchestrator.files import locked, sha256, write_atomically
from orchestrator.plan.plan import environment_record, read_plan, to_json
from orchestrator.report import markdown
from orchestrator.report.run import document
from orchestrator.results import PlanSource, Result, Seen, judge, since
from orchestrator.shared.answers import RunState
from orchestrator.shared.files import read_json, walk
from orchestrator.shared.plan import Plan, has_no_verdict, plan_hash
from orchestrator.shared.run_ids import order
from orchestrator.shared.stage_record import File
from orchestrator.store.launches import launch_of
from orchestrator.text import count

LATEST = "latest"
DERIVED = frozenset({"manifest.json", "result.json", "report.md", "report.html", "comparison.json"})
"""What is written from the rest, and read by nobody who judges."""


class _Manifest(BaseModel):
    """What of manifest.json is read again."""

    state: RunState
    refused: list[str] = []
    left: list[str] = []
    refusal: str = ""


@dataclass(frozen=True)
class RunDirectory:
    """`path` is the directory itself; `shown` is how results and messages name it."""

    path: Path
    shown: str

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def journal_file(self) -> Path:
        return self.path / "journal.jsonl"

    def plan(self) -> Plan:
        """The laptop's own copy of the plan."""
        return read_plan(self.plan_file.read_text(errors="replace"), str(self.plan_file))

    @property
    def has_no_verdict(self) -> bool:
        """Whether nothing judges it; False also for one whose plan cannot be read."""
        with suppress(OSError, ValueError, RecursionError, AttributeError):
            return has_no_verdict(json.loads(self.plan_file.read_bytes()))
        return False

    def settle(self, seen: Seen) -> Result:
        """Judge what is here and write result.json, report.md, environment.json, manifest.json and the links.

        What somebody else who follows the run has settled as ended stays as it is.
        """
        with locked(self.path.parent.parent / ".lock"):
            if seen.state != "ended" and self._is_settled():
                return self.rejudge()
            return self._settle(seen)

    def _settle(self, seen: Seen) -> Result:
        plan = self.plan()
        write_atomically(self.path / "environment.json", to_json(environment_record(plan)))
        result = self._judge(seen)
        write_atomically(self.path / "result.json", result.to_json())
        write_atomically(self.path / "report.md", markdown.render(document(result, plan, self.path)))
        write_atomically(self.path / "manifest.json", self.manifest(seen))
        self._link()
        return result

    def manifest(self, seen: Seen) -> Iterator[str]:
        """manifest.json, in pieces: how far the run had come, and every file that is here now."""
        head = {
            "run_id": self.plan()["run_id"],
            "state": seen.state,
            "refused": list(seen.refused),
            "left": sorted(seen.left),
            "refusal": seen.refusal,
        }
        return _manifest(head, self._files())

    def rejudge(self) -> Result:
        """Judge again from the evidence; the manifest only tells how far the run had come when it was last seen.

        InputError for a directory whose plan, journal or manifest is damaged.
        """
        try:
            return self._judge(self.last_seen())
        except (ValidationError, RecursionError) as e:
            raise InputError(f"{self.path / 'manifest.json'} is damaged: fetch the run again") from e
        except IntegrityError as e:
            raise InputError(f"the run cannot be judged: {e}") from e

    def _is_settled(self) -> bool:
        with suppress(ValidationError, RecursionError):  # a damaged manifest is written anew
            return self.last_seen().state == "ended"
        return False

    def last_seen(self) -> Seen:
        """How far it had come, by its manifest."""
        file = self.path / "manifest.json"
        if not file.exists():
            return Seen("running")
        found = _Manifest.model_validate_json(file.read_bytes())
        return Seen(found.state, found.refused, found.left, refusal=found.refusal)

    def _judge(self, seen: Seen) -> Result:
        source: PlanSource = "laptop" if self._was_launched_here() else "pod"
        result = judge(self.path, seen, path=self.shown, plan_from=source)
        if not result.verdict:
            return result
        return result.model_copy(update={"notes": since.notes(result, self.path, self._bases(result))})

    def _bases(self, result: Result) -> Iterator[Path]:
        """Where the last runs before it lie that it may be held against."""
        artifacts = self.path.parent.parent.parent
        older = (run.path for run in kept(artifacts, artifacts) if order(run.path.name) < order(self.path.name))
        return islice((path for path in older if since.is_base(read_json(path / "result.json"), result)), since.MOST)

    def _was_launched_here(self) -> bool:
        """Whether the plan that lies here is, to the last bit, the one that this laptop launched, by whatever name it
        lies here.
        """
        plan = self.plan()
        launch = launch_of(plan["run_id"])
        return launch is not None and launch.plan_sha256 == plan_hash(plan)

    def _files(self) -> Iterator[File]:
        """What is here now, each file described when it is its turn; not what someone who died left aside."""
        names = sorted(
            name for name, entry in walk(self.path) if name[0] != "." and entry.is_file(follow_symlinks=False)
        )
        return (self._describe(name) for name in names if name not in DERIVED)

    def _describe(self, name: str) -> File:
        path = os.path.join(self.path, name)
        return {"path": name, "bytes": os.stat(path).st_size, "sha256": sha256(path)}

    def _link(self) -> None:
        """The short commit, and `latest`: the newest run that is judged, whichever was brought home last."""
        runner = self.path.parent.parent
        commit = self.path.parent.name
        _point(runner / commit[:7], commit)
        settled = [run for run in kept(runner.parent, runner) if (run.path / "result.json").is_file()]
        newest = next((run.path for run in settled if not run.has_no_verdict), None)
        if newest:
            _point(runner / LATEST, f"{newest.parent.name}/{newest.name}")
        siblings = (run for run in settled if run.path.parent == self.path.parent)
        of_commit = next((run.path for run in siblings if not run.has_no_verdict), None)
        if of_commit:
            _point(self.path.parent / LATEST, of_commit.name)


def create(artifacts: Path, repo: Path, plan: Plan) -> RunDirectory:
    """The directory of a new (or re-fetched) run, with the laptop's own copy of its plan."""
    run = locate(artifacts, repo, plan["commit"], plan["run_id"])
    run.path.mkdir(parents=True, exist_ok=True)
    ignore_results(artifacts)
    if not run.plan_file.exists():
        write_atomically(run.plan_file, to_json(plan))
    return run


def ignore_results(artifacts: Path) -> None:
    """Have git pass over what is kept under `artifacts`."""
    ignore = artifacts / "runner" / ".gitignore"
    if not ignore.exists():
        write_atomically(ignore, "*\n")


def locate(artifacts: Path, repo: Path, commit: str, run_id: str) -> RunDirectory:
    """Where the run is kept under `artifacts`; named relative to the repository if inside it."""
    return open_directory(artifacts.absolute() / "runner" / commit / run_id, repo)


def open_directory(path: Path, repo: Path) -> RunDirectory:
    """An existing run directory (or where one will be)."""
    absolute, root = path.resolve(), repo.resolve()
    return RunDirectory(absolute, str(absolute.relative_to(root) if absolute.is_relative_to(root) else absolute))


def find(artifacts: Path, repo: Path, name: str | None) -> RunDirectory:
    """The run called `name` (run id, the beginning of one, or a directory); with "latest" or no name the latest one
    that is judged.
    """
    name = None if name == LATEST else name
    if name and os.path.isfile(Path(name) / "plan.json"):  # False also for what cannot be a path
        return open_directory(Path(name), repo)
    if name and "/" in name and os.path.exists(name):
        raise InputError(f"{name} is no run's directory: expected one with a plan.json")
    known = kept(artifacts, repo)
    if not name:
        newest = next((run for run in known if not run.has_no_verdict), None)
        found = [newest] if newest else []
    else:
        found = [run for run in known if run.path.name.startswith(name)]
    if not known:
        raise InputError(f"no run is kept in {artifacts}: expected one by `nsa-pod validate` or `nsa-pod fetch`")
    if len(found) != 1:
        raise InputError(
            f"{count(len(found), 'run')} called {name or 'latest'!r} in {artifacts}: "
            "expected a run id or a run's directory"
        )
    return found[0]


def kept(artifacts: Path, repo: Path) -> list[RunDirectory]:
    """The runs kept under `artifacts`, newest first; run ids begin with their time."""
    runner = artifacts / "runner"
    plans = runner.glob("*/*/plan.json") if os.path.isdir(runner) else ()  # also for what cannot be a path
    # The short commit and `latest` lead to directories that are found under their own names, as links, and where a copy
    # that followed links has made directories of them.
    found = [p.parent for p in plans if not p.parent.is_symlink() and not p.parent.parent.is_symlink()]
    own = [path for path in found if path.name != LATEST and not path.name.startswith(".")]
    by_name = {(_short(path.parent), path.name): path for path in sorted(own, key=lambda path: len(path.parent.name))}
    runs = sorted(by_name.values(), key=lambda path: order(path.name), reverse=True)
    return [open_directory(path, repo) for path in runs]


def _short(commit: Path) -> str:
    return commit.name.lstrip(".")[:7]


def _point(link: Path, target: str) -> None:
    """Nothing but a shorter way, so a file system without links (exFAT) does without."""
    if link.is_dir() and not link.is_symlink():  # a copy that followed links made it; who knows what it alone holds
        link.rename(link.with_name(f".{link.name}.{os.getpid()}.copy"))
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    try:
        aside.symlink_to(target)
    except OSError as e:
        if e.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return
        raise
    aside.replace(link)


def _manifest(head: Mapping[str, object], files: Iterable[File]) -> Iterator[str]:
    """`head` and a line for each file, in pieces: there may be many."""
    yield f'{to_json(head).rstrip()[:-1].rstrip()},\n "files": ['
    for number, file in enumerate(files):
        yield f"{',' if number else ''}\n  {json.dumps(file)}"
    yield "\n ]\n}\n"
