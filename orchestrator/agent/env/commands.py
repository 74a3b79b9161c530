"""The agent's commands about environments: check, build, wait, list, prune, and what a system Python has."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.agent.env import lease, source
from orchestrator.agent.env.build import Builder
from orchestrator.agent.env.progress import Progress, read_progress
from orchestrator.agent.env.store import Store, find, identity
from orchestrator.agent.env.uv import NoUv
from orchestrator.shared.environment_request import EnvironmentRequest
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import read_json, walk, write_atomically
from orchestrator.shared.locks import A_MOMENT_S, is_held, locked
from orchestrator.shared.redaction import Redactor
from orchestrator.shared.wheels.lockfile import canonical

_POLL_S = 0.05
_NEWS_S = 1.0
_RECENT_S = 900.0
_ASK_LIMIT_S = 60
_RESULT_BYTES = 1 << 14
_DAY_S = 86400.0
_SHOWN = ("key", "profile", "python_version", "torch_cuda", "created", "notes")
_TELLING = ("torch", "triton", "flash-attn")
_ASK_SYSTEM = """
import importlib.metadata as metadata, importlib.util, json, os, re, runpy, sys
found = {}
for distribution in metadata.distributions():
    name = distribution.metadata["Name"]
    if name:
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
said = {"python": sys.executable, "python_version": sys.version.split()[0], "packages": found}
torch = importlib.util.find_spec("torch")
if torch and torch.origin:  # its version module stands alone: nothing of torch is imported
    said["torch_cuda"] = runpy.run_path(os.path.join(os.path.dirname(torch.origin), "version.py")).get("cuda")
print(json.dumps(said))
"""


def check(argv: Sequence[str]) -> int:
    """`env check --workdir W < request`: is there a whole environment for the request?"""
    options, request = _request(argv)
    return _say(find(Store(options.workdir), request))


def build(argv: Sequence[str]) -> int:
    """`env build --workdir W < request`: start a detached build, or join the one under way.

    Prints {"job": id, "started": bool}; what becomes of it tells `env wait`.
    """
    options, request = _request(argv)
    store = Store(options.workdir)
    job = identity(request)
    folder = store.job(job)
    with locked(folder / "lock", A_MOMENT_S) as held:
        if held is None:
            return _say({"job": job, "started": False})
        for name in ("result.json", "progress.jsonl"):
            if (folder / name).exists():
                (folder / name).unlink()
        # A full disk is said here: the detached process could not even write its result.
        with tempfile.TemporaryFile(dir=str(folder)) as room:
            room.write(bytes(_RESULT_BYTES))
        if not _detach(held):
            _run_build(store, request, folder)
    return _say({"job": job, "started": True})


def wait(argv: Sequence[str]) -> int:
    """`env wait --workdir W JOB --offset N --wait S`: progress from byte N on, or the end, within S seconds.

    The end is told at once, progress at most once a second. Prints {"state", "offset", "progress"}; state is running,
    built, failed (with "error", and "lacks": "uv" where that is all) or lost: its process died.
    """
    parser = _parser("env wait")
    parser.add_argument("job")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--wait", type=float, default=0.0)
    options = parser.parse_args(argv)
    folder = Store(options.workdir).job(options.job)
    if not folder.is_dir():
        raise Failure(f"no build {options.job} is known here")
    began = time.monotonic()
    while True:
        # The state first: a builder writes its last progress before its result.
        state = _state(folder)
        lines, offset = read_progress(folder / "progress.jsonl", options.offset)
        elapsed = time.monotonic() - began
        if state["state"] != "running" or elapsed >= (min(options.wait, _NEWS_S) if lines else options.wait):
            return _say({**state, "offset": offset, "progress": lines})
        time.sleep(_POLL_S)


def list_(argv: Sequence[str]) -> int:
    """`env list --workdir W`: every environment, the last used first; files that several share count in each."""
    store = Store(_parser("env list").parse_args(argv).workdir)
    return _say({"environments": _summaries(store), "cache_bytes": _disk_bytes(store.cache)})


def prune(argv: Sequence[str]) -> int:
    """`env prune --workdir W [--days D] [--keep-bytes N] [--dry-run]`: remove environments that nobody uses.

    Those not used for D days, then the longest unused until the rest takes N bytes. What a run that goes on uses
    stays, as does what was used just now. Compiled wheels go by age too, the download cache with the last environment.
    Prints {"dry_run", "removed", "kept": each with "why", "wheels": compiled ones that went, "freed_bytes"}.
    """
    parser = _parser("env prune")
    parser.add_argument("--days", type=float)
    parser.add_argument("--keep-bytes", type=int)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(argv)
    store = Store(options.workdir)
    before = _disk_bytes(store.root, store.cache, store.built)
    found = _summaries(store)
    doomed = _doomed(found, options.days, options.keep_bytes)
    removed = doomed if options.dry_run else [e for e in doomed if _remove(store, e["key"])]
    kept = [
        {**e, "why": "somebody began to use it" if e in doomed else _why_kept(e, options.days, options.keep_bytes)}
        for e in found
        if e not in removed
    ]
    wheels = [] if options.days is None else _trim_built(store, options.days, options.dry_run)
    if not options.dry_run:
        _trim_cache(store)
    freed = before - _disk_bytes(store.root, store.cache, store.built)
    told = {"dry_run": options.dry_run, "removed": removed, "kept": kept, "wheels": wheels}
    return _say({**told, "freed_bytes": max(0, freed)})


def system(argv: Sequence[str]) -> int:
    """`env system [--python P] NAME ...`: what the pod's own Python has of the named packages."""
    parser = argparse.ArgumentParser(prog="env system")
    parser.add_argument("--python", default="python3")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(argv)
    python = shutil.which(os.path.expanduser(options.python))
    if python is None:
        raise Failure(f"there is no {options.python} on the pod")
    try:
        command = [python, "-I", "-c", _ASK_SYSTEM]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_ASK_LIMIT_S, check=True)
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as e:
        raise Failure(f"{python} does not say what is installed: {e}") from e
    packages = {name: found["packages"][name] for name in map(canonical, options.names) if name in found["packages"]}
    return _say({**found, "kind": "system", "packages": packages})


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "check": check,
    "build": build,
    "wait": wait,
    "list": list_,
    "prune": prune,
    "system": system,
}


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--workdir", required=True, type=Path)
    return parser


def _request(argv: Sequence[str]) -> Any:
    options = _parser("env").parse_args(argv)
    return options, json.load(sys.stdin)


def _say(answer: Mapping[str, Any]) -> int:
    print(json.dumps(answer))
    return 0


def _detach(held: int) -> bool:
    """Go on in a process of its own session, which keeps the lock; True in the one that answers."""
    if os.fork() > 0:
        return True
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.set_inheritable(held, False)
    return False


def _run_build(store: Store, request: EnvironmentRequest, folder: Path) -> None:
    """In the detached process, to its end: whatever happens, a result is written."""
    result = {"error": "the builder was ended"}
    variables = request.get("variables", {})
    redactor = Redactor([(name, variables[name]) for name in request.get("secrets", ())])
    try:
        Builder(store, request, Progress(folder / "progress.jsonl", redactor)).build()
        result = {}
    except Failure as e:
        result = {"error": str(e), **({"lacks": "uv"} if isinstance(e, NoUv) else {})}
    except OSError as e:
        result = {"error": f"the pod's file system refused: {e}"}
    except Exception as e:
        result = {"error": f"the builder failed unexpectedly: {type(e).__name__}: {e}"}
        (folder / "traceback").write_text(redactor.text(traceback.format_exc()))
    finally:
        write_atomically(folder / "result.json", json.dumps(redactor.clean(result)))
        os._exit(0)


def _state(folder: Path) -> dict[str, Any]:
    result = folder / "result.json"
    if result.exists():
        failure = read_json(result)
        return {"state": "failed", **failure} if failure else {"state": "built"}
    held = is_held(folder / "lock")
    # Free, and still no result: nobody will write one.
    return {"state": "running" if held or result.exists() else "lost"}


def _summaries(store: Store) -> list[dict[str, Any]]:
    """All environments, the last used first; one that somebody removes meanwhile is none."""
    found = (_summary(store.environment(key)) for key in store.whole())
    return sorted(filter(None, found), key=lambda e: float(e["age_s"]))


def _summary(root: Path) -> dict[str, Any] | None:
    try:
        age_s = round(time.time() - (root / "env.json").stat().st_mtime, 1)
    except FileNotFoundError:
        return None
    manifest = read_json(root / "env.json")
    packages = {name: version for name, version in manifest.get("packages", {}).items() if name in _TELLING}
    return {
        **{name: manifest.get(name) for name in _SHOWN},
        "packages": packages,
        "bytes": _disk_bytes(root),
        "age_s": age_s,
        "in_use": lease.is_taken(root),
    }


def _doomed(summaries: list[dict[str, Any]], days: float | None, keep_bytes: int | None) -> list[dict[str, Any]]:
    free = [e for e in reversed(summaries) if not e["in_use"] and e["age_s"] > _RECENT_S]
    doomed = [e for e in free if days is not None and e["age_s"] > days * _DAY_S]
    total = sum(e["bytes"] for e in summaries) - sum(e["bytes"] for e in doomed)
    for e in free:
        if keep_bytes is not None and total > keep_bytes and e not in doomed:
            doomed.append(e)
            total -= e["bytes"]
    return doomed


def _why_kept(environment: Mapping[str, Any], days: float | None, keep_bytes: int | None) -> str:
    if environment["in_use"]:
        return "a run uses it"
    if environment["age_s"] <= _RECENT_S:
        return f"it was used in the last {_RECENT_S / 60:.0f} minutes"
    return f"it was used in the last {days:g} days" if keep_bytes is None else "there is room for it"


def _remove(store: Store, key: str) -> bool:
    root = store.environment(key)
    with locked(store.key_lock(key), A_MOMENT_S) as held, lease.alone(root) as free:
        if held is None or not free:
            return False
        for request in store.requests_of(key):
            request.unlink()
        store.discard(root)
    return True


def _trim_built(store: Store, days: float, dry_run: bool) -> list[dict[str, Any]]:
    """Drop compiled wheels that no environment was made with for so long; they are too dear to go for room alone."""
    trimmed = []
    for told in sorted(store.built.glob("*/build.json")):
        with locked(store.built / f".{told.parent.name}.lock", A_MOMENT_S) as held:
            wheel = source.kept(told.parent)
            if held is not None and wheel and time.time() - told.parent.stat().st_mtime > days * _DAY_S:
                trimmed.append({"file": wheel.name, "bytes": _disk_bytes(told.parent)})
                if not dry_run:
                    shutil.rmtree(told.parent)
    return trimmed


def _trim_cache(store: Store) -> None:
    """Drop downloads that no environment shares; dropping others would free nothing. Not while something is built."""
    if any(_state(job)["state"] == "running" for job in store.root.glob(".jobs/*")):
        return
    for archive in store.cache.glob("uv/archive-v*/*"):
        if all(status.st_nlink == 1 for status in _files(archive)):
            shutil.rmtree(archive, ignore_errors=True)
    if not store.whole():
        shutil.rmtree(store.cache, ignore_errors=True)


def _disk_bytes(*roots: Path) -> int:
    """Blocks on disk; a file that several of the directories share counts once, one that goes meanwhile does not."""
    inodes = {status.st_ino: status.st_blocks * 512 for root in roots for status in _files(root)}
    return sum(inodes.values())


def _files(root: Path) -> Iterator[os.stat_result]:
    """The status of each file below `root`, but for those that go meanwhile."""
    for _, entry in walk(root):
        with contextlib.suppress(FileNotFoundError):
            yield entry.stat(follow_symlinks=False)
