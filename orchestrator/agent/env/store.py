"""Where a pod's environments lie, and whether one is still what it was when it was verified.

<workdir>/envs/<key>/           an environment; only whole and verified ones have this name; its manifest is env.json
<workdir>/envs/.building-*      being built, by whoever holds the lock of its key
<workdir>/envs/.requests/<id>.json   which key a request came to, with its lock
<workdir>/envs/.jobs/<id>/      a build under way or ended: its lock, progress, result
<workdir>/envs/.<key>.lease     taken by the runs that use the environment
<workdir>/wheelhouses/*/        wheels that were carried here
<workdir>/built/<recipe>/       wheels that were compiled here
<workdir>/layers/<key>/         a repository's own installation over an environment; see layer.py
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.agent.env.fingerprint import fingerprint, is_same
from orchestrator.agent.env.installed import differences, installed, site_packages, strangers
from orchestrator.agent.holds import Hold
from orchestrator.shared.environment_request import AskedWheel, EnvironmentRequest
from orchestrator.shared.files import read_json, write_atomically
from orchestrator.shared.locks import is_held
from orchestrator.shared.query import ask
from orchestrator.shared.text import listing

# What a request is identified by: not where a Python or a wheel is found, but which.
_IDENTITY = ("format", "requirements", "indexes", "pins", "cuda", "sdists", "hashes")
_ID_DIGITS = 16
_ANSWER_S = 30


class Store:
    """The environments under one workdir."""

    def __init__(self, workdir: Path) -> None:
        self.workdir = Path(workdir)
        self.root = self.workdir / "envs"
        self.tools = self.workdir / "tools"
        self.cache = self.workdir / "cache"
        self.built = self.workdir / "built"
        self.layers = self.workdir / "layers"
        self.downloads = self.cache / "wheels"

    @property
    def places_of_wheels(self) -> list[Path]:
        """Directories that hold wheels as files."""
        return [*sorted(self.workdir.glob("wheelhouses/*")), self.downloads]

    def environment(self, key: str) -> Path:
        return self.root / key

    def job(self, request_id: str) -> Path:
        return self.root / ".jobs" / request_id

    def key_lock(self, key: str) -> Path:
        return self.root / f".{key}.lock"

    def is_building(self) -> bool:
        """Whether an environment is being built."""
        locks = (job / "lock" for job in self.root.glob(".jobs/*"))
        return any(lock.exists() and is_held(lock) for lock in locks)

    def whole(self) -> list[str]:
        """Keys of all whole environments."""
        return sorted(p.parent.name for p in self.root.glob("*/env.json") if not p.parent.name.startswith("."))

    def remembered(self, request_id: str) -> dict[str, Any]:
        """{"key", "lock"} that the request came to last time; empty if it is new here."""
        return read_json(self._request_file(request_id))

    def remember(self, request_id: str, key: str, lock: str) -> None:
        self._request_file(request_id).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._request_file(request_id), json.dumps({"key": key, "lock": lock}))

    def requests_of(self, key: str) -> list[Path]:
        """The files of all requests that came to `key`."""
        return [p for p in self.root.glob(".requests/*.json") if read_json(p).get("key") == key]

    def _request_file(self, request_id: str) -> Path:
        return self.root / ".requests" / f"{request_id}.json"

    def discard(self, path: Path) -> None:
        """Remove a directory that nobody shall see half gone; what is left of an interrupted removal goes too."""
        trash = path.parent / f".trash-{os.getpid()}-{time.monotonic_ns()}"
        with contextlib.suppress(FileNotFoundError):
            path.rename(trash)
        for left in path.parent.glob(".trash-*"):
            shutil.rmtree(left, ignore_errors=True)


def identity(request: EnvironmentRequest) -> str:
    """The request's identity on a machine like this one: equal requests get the same environment."""
    content: dict[str, Any] = {name: value for name, value in request.items() if name in _IDENTITY}
    content["python"] = request["python"]["version"]
    content["wheels"] = [_identity_of(wheel) for wheel in request["wheels"]]
    content["platform"] = platform()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_ID_DIGITS]


def _identity_of(wheel: AskedWheel) -> list[Any]:
    """By its address; where it has none, by how it is compiled."""
    source = wheel["source"]
    return [wheel["url"] or (source and [source["version"], source["variables"]]), wheel["required"]]


def platform() -> str:
    return sysconfig.get_platform()


def find(store: Store, request: EnvironmentRequest, hold: Hold) -> dict[str, Any]:
    """{"state": "ready", ...} with the environment for `request`; "absent", or "changed" with the reason.

    Quick: files are listed, none is read and nothing is imported. The environment counts as used now, and is held.
    """
    key = store.remembered(identity(request)).get("key")
    hold.take(*([f"envs/{key}"] if key else []))
    return look_at(store, key) if key else {"state": "absent", "reason": "it was not built here yet"}


def look_at(store: Store, key: str) -> dict[str, Any]:
    """As `find`, of the environment called `key`."""
    root = store.environment(key)
    manifest = read_json(root / "env.json")
    if not manifest:
        return {"state": "absent", "reason": f"environment {key} was removed"}
    reason = _broken_python(root, manifest) or _changed(root, manifest)
    if reason:
        return {"state": "changed", "reason": f"environment {key} was changed since it was verified: {reason}"}
    manifest = _used(root, manifest)
    return {"state": "ready", "environment": describe(root, manifest)}


def _used(root: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest, marked as used now; links that came or went are not looked into again."""
    found = fingerprint(root)
    if found == manifest["fingerprint"]:
        os.utime(root / "env.json")
        return manifest
    again = {**manifest, "fingerprint": found}
    write_atomically(root / "env.json", json.dumps(again, indent=1, sort_keys=True))
    return again


def describe(root: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into a plan: the environment's manifest, its lock, and where it lies."""
    lock = (root / "lock.txt").read_text(encoding="utf-8")
    return {"kind": "managed", "python": str(root / "bin" / "python"), "root": str(root), **manifest, "lock": lock}


def _broken_python(root: Path, manifest: Mapping[str, Any]) -> str | None:
    """An environment stands on a Python outside it, which may have been replaced."""
    command = [str(root / "bin" / "python"), "-I", "-S", "-c", "import sys; print(sys.version.split()[0])"]
    version, expected = (ask(command, _ANSWER_S) or "").strip(), manifest["python_version"]
    if not version:
        return "its Python cannot be run"
    return None if version == expected else f"its Python is {version}, it was {expected}"


def _changed(root: Path, manifest: Mapping[str, Any]) -> str | None:
    if is_same(manifest["fingerprint"], fingerprint(root), [site_packages(root)]):
        return None
    found, expected = installed(root), manifest["packages"]
    versions = [
        f"{name} {expected.get(name, 'absent')} -> {found.get(name, 'removed')}"
        for name in sorted({*found, *expected})
        if found.get(name) != expected.get(name)
    ]
    if versions:
        return listing(versions)
    edited = [file for _, file in differences(root)]
    if edited:
        return f"other content in {listing(edited)}"
    added = strangers(root)
    return f"{listing(added)} was put there" if added else "files were touched or scripts edited"
