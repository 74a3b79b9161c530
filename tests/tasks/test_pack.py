"""pack and open: what a colleague gets is what was packed, or nothing at all; and it is judged again."""

from __future__ import annotations

import json
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.errors import InputError
from orchestrator.store.run_directory import RunDirectory, kept
from orchestrator.tasks import pack as pack_task
from tests.support.seed_run import seed_run

Entries = dict[str, bytes]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return seed_run(tmp_path_factory.mktemp("mine"))


@pytest.fixture(scope="module")
def packed(run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_task.pack(run, tmp_path_factory.mktemp("packed") / "run.zip")


def opened(file: Path, folder: Path) -> Any:
    return pack_task.open_(file, folder / "artifacts", folder)


def changed(packed: Path, target: Path, change: Callable[[Entries], None]) -> Path:
    """The packed run with its entries as `change` leaves them."""
    with zipfile.ZipFile(packed) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return target


def with_manifest(entries: Entries, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads(entries["manifest.json"])
    change(manifest)
    entries["manifest.json"] = json.dumps(manifest).encode()


def test_what_is_opened_is_what_was_packed_and_is_judged_again(run: RunDirectory, packed: Path, tmp_path: Path) -> None:
    result = opened(packed, tmp_path)
    mine = run.rejudge()
    assert (result.verdict, result.run_id) == ("failed", mine.run_id)
    assert {s.name: (s.status, s.reason) for s in result.stages} == {s.name: (s.status, s.reason) for s in mine.stages}
    assert "judged by the pod's copy of the plan" in result.summary
    (found,) = kept(tmp_path / "artifacts", tmp_path)
    for path in run.path.rglob("*"):
        if path.is_file() and path.name not in ("manifest.json", "result.json", "report.md"):
            assert (found.path / path.relative_to(run.path)).read_bytes() == path.read_bytes()
    assert (tmp_path / "artifacts/runner/.gitignore").is_file() and (found.path / "report.md").is_file()


def test_a_stored_verdict_is_not_believed(packed: Path, tmp_path: Path) -> None:
    lie = changed(packed, tmp_path / "lie.zip", lambda e: e.update({"result.json": b'{"verdict": "passed"}'}))
    assert opened(lie, tmp_path).verdict == "failed"


def test_the_same_run_is_the_same_file(run: RunDirectory, packed: Path, tmp_path: Path) -> None:
    assert pack_task.pack(run, tmp_path / "again.zip").read_bytes() == packed.read_bytes()


def test_one_that_is_here_is_not_touched(packed: Path, tmp_path: Path) -> None:
    opened(packed, tmp_path)
    with pytest.raises(InputError, match="is kept here already"):
        opened(packed, tmp_path)


def swap(path: str, content: bytes) -> Callable[[Entries], None]:
    return lambda entries: entries.update({path: content})


def drop(path: str) -> Callable[[Entries], None]:
    return lambda entries: entries.pop(path) and None  # type: ignore[func-returns-value]


def listed(path: str, content: bytes = b"x") -> Callable[[Entries], None]:
    """With a file that the manifest names too, and truly."""

    def change(entries: Entries) -> None:
        entries[path] = content
        digest = pack_task.hashlib.sha256(content).hexdigest()
        record = {"path": path, "bytes": len(content), "sha256": digest}
        with_manifest(entries, lambda manifest: manifest["files"].append(record))

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (swap("artifacts/reads.csv", b"S,reads_actual,reads_expected\n512,1571,1571\n"), "another size"),
        (swap("artifacts/triton_bwd.txt", b"1 passed"), "another size"),
        (swap("stages/prefill/stdout", b"PREFILL is done\n"), "sha256 differs"),
        (swap("artifacts/more.txt", b"x"), "'artifacts/more.txt' is not in its manifest"),
        (drop("stages/prefill/stdout"), "'stages/prefill/stdout' is in its manifest alone"),
        (drop("manifest.json"), "it has no manifest"),
        (swap("manifest.json", b"[" * 100_000), "its manifest is damaged"),
        (swap("manifest.json", b"[" + b"[]," * 600_000 + b"0]"), "more than a run can have"),
        (lambda e: with_manifest(e, lambda m: m.update(run_id="another")), "another run than its plan"),
        (drop("plan.json"), "in its manifest alone"),
        (listed("../../outside.txt"), "outside the run's directory"),
        (listed("/etc/passwd"), "outside the run's directory"),
        (listed("artifacts/../../../x"), "outside the run's directory"),
        (listed("x.txt"), "outside the run's directory"),
        (listed("bin/x"), "under stages/ or artifacts/"),
        (listed("artifacts/\x1b[2J"), "that can be shown"),
        (listed("artifacts/READS.csv"), "capital letters alone"),
        (listed("artifacts/" + "a/" * 40 + "x"), "folders deep"),
        (listed("artifacts/reads.csv/x"), "a file and a folder"),
    ],
)  # fmt: skip
def test_what_is_not_as_its_manifest_says_leaves_nothing_here(
    change: Callable[[Entries], None], why: str, packed: Path, tmp_path: Path
) -> None:
    file = changed(packed, tmp_path / "changed.zip", change)
    with pytest.raises(InputError, match=why):
        opened(file, tmp_path)
    assert not kept(tmp_path / "artifacts", tmp_path) and not list(tmp_path.rglob("outside*"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in (".gitignore", file.name)]


def test_a_plan_that_was_changed_is_no_plan(packed: Path, tmp_path: Path) -> None:
    def change(entries: Entries) -> None:
        entries["plan.json"] = entries["plan.json"].replace(b'"max": 100', b'"max": 200')

    with pytest.raises(InputError, match="was changed: its content"):
        opened(changed(packed, tmp_path / "p.zip", change), tmp_path)


def entry(name: str, mode: int) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.external_attr = mode << 16
    return found


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755, stat.S_IFIFO | 0o644])
def test_links_and_what_is_no_file_are_refused(mode: int, packed: Path, tmp_path: Path) -> None:
    file = tmp_path / "link.zip"
    file.write_bytes(packed.read_bytes())
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(entry("stages/prefill/link", mode), "/etc/passwd")
    with pytest.raises(InputError, match="is a link or no file"):
        opened(file, tmp_path)


def test_the_same_name_twice_is_refused(packed: Path, tmp_path: Path) -> None:
    file = tmp_path / "twice.zip"
    file.write_bytes(packed.read_bytes())
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("artifacts/reads.csv", "S\n")
    with pytest.raises(InputError, match="there twice"):
        opened(file, tmp_path)


def test_a_bomb_is_refused_before_it_goes_off(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_task, "_ALWAYS", 1 << 20)
    bomb = changed(packed, tmp_path / "bomb.zip", listed("artifacts/zeros.bin", bytes(8 << 20)))
    with pytest.raises(InputError, match=r"it would take 8\.\d MiB here, expected at most"):
        opened(bomb, tmp_path)


def test_an_entry_that_is_larger_than_it_says_stops_at_what_it_says(packed: Path, tmp_path: Path) -> None:
    """The manifest, which the sum is made of, says one byte; the entry holds eight MiB."""

    def change(entries: Entries) -> None:
        listed("artifacts/zeros.bin", b"x")(entries)
        entries["artifacts/zeros.bin"] = bytes(8 << 20)

    with pytest.raises(InputError, match=r"zeros\.bin has another size"):
        opened(changed(packed, tmp_path / "b.zip", change), tmp_path)


@pytest.mark.parametrize("size", [0, 40, 3000, -40])
def test_what_is_cut_short_or_no_archive_is_one_sentence(size: int, packed: Path, tmp_path: Path) -> None:
    file = tmp_path / "cut.zip"
    file.write_bytes(packed.read_bytes()[:size])
    with pytest.raises(InputError, match="cannot be opened"):
        opened(file, tmp_path)


def test_bytes_that_were_changed_on_the_way_are_noticed(packed: Path, tmp_path: Path) -> None:
    content = bytearray(packed.read_bytes())
    with zipfile.ZipFile(packed) as archive:
        at = archive.getinfo("journal.jsonl").header_offset
    length = struct.unpack_from("<H", content, at + 26)[0]
    content[at + 30 + length + 50] ^= 0xFF
    file = tmp_path / "bits.zip"
    file.write_bytes(content)
    with pytest.raises(InputError):
        opened(file, tmp_path)
    assert not kept(tmp_path / "artifacts", tmp_path)


def test_by_the_command_line(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main(["pack", str(run.path)])
    file = capsys.readouterr().out.strip()
    assert file == f"{run.path.name}.nsa-pod.zip"
    with pytest.raises(SystemExit, match="2"):
        main(["pack", str(run.path), "--output", f"{file}/inside"])
    assert "expected a folder for the file inside" in capsys.readouterr().err
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").touch()
    with pytest.raises(SystemExit, match="0"):
        main(["pack", str(run.path), "--output", "link"])
    assert (tmp_path / "link").is_symlink() and (tmp_path / "kept").read_bytes() == Path(file).read_bytes()
    capsys.readouterr()
    with pytest.raises(SystemExit, match="1"):
        main(["open", file, "--json"])
    assert json.loads(capsys.readouterr().out)["verdict"] == "failed"
    with pytest.raises(SystemExit, match="2"):
        main(["open", "nowhere.zip"])
