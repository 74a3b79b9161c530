"""pack and open: a run as one file for a colleague, who checks it file by file and judges it again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError, IntegrityError
from orchestrator.files import aside, is_regular, on_this_disk
from orchestrator.plan.plan import read_plan
from orchestrator.pod.download import File, Quota, Refusal, file_of
from orchestrator.report import html
from orchestrator.report.run import document
from orchestrator.results import Result
from orchestrator.shared.files import folders_of
from orchestrator.shared.plan import Plan
from orchestrator.store.run_directory import DERIVED, RunDirectory, ignore_results, locate
from orchestrator.text import count, plain, size
from orchestrator.told import values

SUFFIX = ".nsa-pod.zip"
_MANIFEST, _PLAN = "manifest.json", "plan.json"
# Of a run's directory, beside what lies under stages/ and artifacts/.
_HEADS = (_PLAN, "journal.jsonl", "environment.json")
_MOST_OF_HEAD, _MOST_VALUES = 64 << 20, 1_000_000
_QUOTA = Quota()
# Logs are packed to a hundredth and less, by the best to a thousandth: it is what is left that must not be a surprise.
_RATIO, _ALWAYS = 100, 1 << 30
_PIECE = 1 << 20
_MOMENT = (1980, 1, 1, 0, 0, 0)  # the same run is the same file
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def pack(run: RunDirectory, output: Path | None) -> Path:
    """Write the run's files, its manifest and its page into one file; where that is."""
    result, plan = run.rejudge(), run.plan()
    target = output or Path(f"{plan['run_id']}{SUFFIX}")
    with aside(target) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        _fill(archive, run, result, plan)
    return target


def open_(file: Path, artifacts: Path, repo: Path) -> Result:
    """Check the packed run, keep it under `artifacts` as one that was fetched, and judge it.

    InputError if anything of it is not as its manifest says; nothing of it is kept then.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            packed = _Packed(archive, file)
            plan = packed.plan()
            run = locate(artifacts, repo, plan["commit"], plan["run_id"])
            if run.path.exists():
                raise InputError(f"run {plan['run_id']} is kept here already: {run.shown}")
            ignore_results(artifacts)
            _place(packed, run)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else e
        raise InputError(f"{file} cannot be opened: {plain(why)}") from e
    return run.settle(run.last_seen())


def _place(packed: _Packed, run: RunDirectory) -> None:
    """Unpack aside, judge it there, and give it its name."""
    beside = run.path.with_name(f".{run.path.name}.{os.getpid()}")
    try:
        with on_this_disk(beside):
            packed.unpack(beside)
        RunDirectory(beside, run.shown).rejudge()  # InputError for what cannot be judged
        beside.replace(run.path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _fill(archive: zipfile.ZipFile, run: RunDirectory, result: Result, plan: Plan) -> None:
    manifest = "".join(run.manifest(run.last_seen()))
    for record in json.loads(manifest)["files"]:
        if not is_regular(str(run.path / record["path"]), record["bytes"]):
            raise InputError(f"{run.shown}/{record['path']} changed while it was packed: pack the run again")
        with archive.open(_entry(record["path"]), "w") as out, (run.path / record["path"]).open("rb") as f:
            shutil.copyfileobj(f, out, _PIECE)
    archive.writestr(_entry(_MANIFEST), manifest)
    archive.writestr(_entry("report.html"), html.render(document(result, plan, run.path)))


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | 0o600) << 16
    return entry


class _Packed:
    """A packed run, whose entries are what its manifest says, in names and sizes, before any of it is unpacked."""

    def __init__(self, archive: zipfile.ZipFile, source: Path) -> None:
        self._archive, self._source = archive, source
        self._entries: dict[str, zipfile.ZipInfo] = {}
        if len(archive.infolist()) > _QUOTA.files + len(DERIVED):
            raise self._wrong(f"it holds {count(len(archive.infolist()), 'file')}, expected at most {_QUOTA.files}")
        for entry in archive.infolist():
            self._take(entry)
        self._manifest_text = self._head(_MANIFEST)
        self._files = {file.path: file for file in self._listed()}
        self._compare()

    def plan(self) -> Plan:
        """Its plan, which its run id is made from."""
        try:
            plan = read_plan(self._head(_PLAN).decode(errors="replace"), f"{_PLAN} in {self._source}")
        except IntegrityError as e:
            raise InputError(str(e)) from e
        if self._manifest().get("run_id") != plan["run_id"]:
            raise self._wrong(f"its manifest is of another run than its plan, {plan['run_id']}")
        return plan

    def unpack(self, directory: Path) -> None:
        """Write the files below `directory`, each with the content that the manifest tells."""
        for file in self._files.values():
            target = directory / file.path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with target.open("xb") as out:
                for piece in self._pieces(file.path, file.bytes):
                    digest.update(piece)
                    out.write(piece)
            if digest.hexdigest() != file.sha256:
                raise self._wrong(f"{file.path} is not what its manifest says (sha256 differs)")
        (directory / _MANIFEST).write_bytes(self._manifest_text)

    def _take(self, entry: zipfile.ZipInfo) -> None:
        """Remember an entry, which must be a plain file of its own name."""
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or entry.is_dir():
            raise self._wrong(f"{entry.filename!r} is a link or no file")
        if entry.flag_bits & 1 or entry.compress_type not in _PACKED:
            raise self._wrong(f"{entry.filename!r} is encrypted, or packed in a way that nsa-pod does not use")
        if entry.orig_filename != entry.filename or entry.filename in self._entries:
            raise self._wrong(f"{entry.filename!r} is there twice, or under another name")
        self._entries[entry.filename] = entry

    def _compare(self) -> None:
        """Entries and manifest name the same files, of sizes that this disk is to take."""
        there, told = self._entries.keys() - DERIVED, self._files.keys()
        if there != told:
            name = min(there ^ told)
            raise self._wrong(f"{name!r} is {'not in its manifest' if name in there else 'in its manifest alone'}")
        if folders_of(told) & told:
            raise self._wrong(f"{min(folders_of(told) & told)!r} is a file and a folder")
        folded = {name.casefold() for name in told}
        if len(folded) != len(told):
            raise self._wrong("names of two of its files differ in capital letters alone")
        total = sum(file.bytes for file in self._files.values())
        most = min(_QUOTA.bytes, max(_ALWAYS, _RATIO * self._source.stat().st_size))
        if total > most:
            raise self._wrong(f"it would take {size(total)} here, expected at most {size(most)}")

    def _listed(self) -> Iterator[File]:
        """The files of its manifest."""
        for record in self._manifest()["files"]:
            try:
                path = record.get("path") if isinstance(record, dict) else None
                if path in _HEADS:  # no file of a stage, and at the top
                    yield file_of({**record, "path": f"stages/{path}"})._replace(path=path)
                else:
                    yield file_of(record)
            except Refusal as e:
                raise self._wrong(f"{plain(path)!r} in its manifest: {e}") from e

    def _manifest(self) -> Mapping[str, Any]:
        if values(self._manifest_text) > _MOST_VALUES:
            raise self._wrong("its manifest holds more than a run can have")
        with suppress(ValueError, RecursionError):
            found = json.loads(self._manifest_text)
            if isinstance(found, dict) and isinstance(found.get("files"), list):
                return found
        raise self._wrong("its manifest is damaged")

    def _head(self, name: str) -> bytes:
        """The content of a file that is read whole."""
        entry = self._entries.get(name)
        if entry is None:
            raise self._wrong(f"it has no {name}: expected a run that nsa-pod packed")
        if entry.file_size > _MOST_OF_HEAD:
            raise self._wrong(f"its {name} takes {size(entry.file_size)}, expected at most {size(_MOST_OF_HEAD)}")
        return b"".join(self._pieces(name, entry.file_size))

    def _pieces(self, name: str, expected: int) -> Iterator[bytes]:
        """The content of an entry; InputError as soon as it is more than expected, or if it is less."""
        left = expected
        with self._archive.open(self._entries[name]) as f:
            while piece := f.read(min(_PIECE, left + 1)):
                left -= len(piece)
                if left < 0:
                    break
                yield piece
        if left:
            raise self._wrong(f"{name} has another size than its manifest says")

    def _wrong(self, why: str) -> InputError:
        return InputError(f"{self._source} is no packed run: {why}")
