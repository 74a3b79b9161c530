"""The agent's commands about environments and the layers over them: check, build, wait, list, and what a system Python
has.
"""

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

from orchestrator.agent.env import layer, lease
from orchestrator.agent.env.build import Builder
from orchestrator.agent.env.progress import Progress, read_progress
from orchestrator.agent.env.store import Store, find, identity
from orchestrator.agent.env.uv import NoUv
from orchestrator.agent.holds import Hold, gate
from orchestrator.shared.environment_request import EnvironmentRequest
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import read_json, walk, write_atomically
from orchestrator.shared.layer_request import LayerRequest
from orchestrator.shared.locks import A_MOMENT_S, is_held, locked
from orchestrator.shared.redaction import Redactor
from orchestrator.shared.wheels.lockfile import canonical

_POLL_S = 0.05
_NEWS_S = 1.0
_ASK_LIMIT_S = 60
_RESULT_BYTES = 1 << 14
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
    return _say(find(Store(options.workdir), request, options.hold))


def build(argv: Sequence[str]) -> int:
    """`env build --workdir W < request`: start a detached build, or join the one under way.

    Prints {"job": id, "started": bool}; what becomes of it tells `env wait`.
    """
    options, request = _request(argv)
    store, hold = Store(options.workdir), options.hold
    return _start(store, identity(request), request, lambda progress: Builder(store, request, progress, hold).build())


def find_layer(argv: Sequence[str]) -> int:
    """`env layer --workdir W < request`: is there a whole layer for the request?"""
    options, request = _request(argv)
    return _say(layer.find(Store(options.workdir), request, options.hold))


def build_layer(argv: Sequence[str]) -> int:
    """`env build-layer --workdir W < request`: as `build`, of a layer."""
    options, request = _request(argv)
    store = Store(options.workdir)
    job = f"layer-{layer.key_of(request)}"
    return _start(store, job, request, lambda progress: layer.LayerBuilder(store, request, progress).build())


def _start(
    store: Store, job: str, request: EnvironmentRequest | LayerRequest, build: Callable[[Progress], None]
) -> int:
    folder = store.job(job)
    with contextlib.ExitStack() as stack:
        with gate(store.workdir, shared=True):  # who removes things knows from then on that something is built
            held = stack.enter_context(locked(folder / "lock", A_MOMENT_S))
        if not held:
            return _say({"job": job, "started": False})
        for name in ("result.json", "progress.jsonl"):
            if (folder / name).exists():
                (folder / name).unlink()
        # A full disk is said here: the detached process could not even write its result.
        with tempfile.TemporaryFile(dir=str(folder)) as room:
            room.write(bytes(_RESULT_BYTES))
        if not _detach():
            _run_build(build, request, folder)
    return _say({"job": job, "started": True})


def wait(argv: Sequence[str]) -> int:
    """`env wait --workdir W JOB --offset N --wait S`: progress from byte N on, or the end, within S seconds.

    The end is told at once, progress at most once a second. Prints {"state", "offset", "progress"}; state is running,
    built, failed (with "error", and "lacks": "uv", or the "requires" of "project", where that is all) or lost: its
    process died.
    """
    parser = _parser("env wait")
    parser.add_argument("job")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--wait", type=float, default=0.0)
    options = parser.parse_args(argv)
    options.hold.take()
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


def system(argv: Sequence[str]) -> int:
    """`env system [--python P] NAME ...`: what the pod's own Python has of the named packages."""
    parser = argparse.ArgumentParser(prog="env system")
    parser.add_argument("--hold")
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
    "layer": find_layer,
    "build-layer": build_layer,
    "wait": wait,
    "list": list_,
    "system": system,
}


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--workdir", required=True, type=Path)
    parser.add_argument("--hold", type=Hold, default=Hold())
    return parser


def _request(argv: Sequence[str]) -> Any:
    options = _parser("env").parse_args(argv)
    return options, json.load(sys.stdin)


def _say(answer: Mapping[str, Any]) -> int:
    print(json.dumps(answer))
    return 0


def _detach() -> bool:
    """Go on in a process of its own session, which keeps the lock; True in the one that answers."""
    if os.fork() > 0:
        return True
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    return False


def _run_build(build: Callable[[Progress], None], request: EnvironmentRequest | LayerRequest, folder: Path) -> None:
    """In the detached process, to its end: whatever happens, a result is written."""
    result: dict[str, Any] = {"error": "the builder was ended"}
    variables = request.get("variables", {})
    redactor = Redactor([(name, variables[name]) for name in request.get("secrets", ())])
    try:
        build(Progress(folder / "progress.jsonl", redactor))
        result = {}
    except layer.Lacks as e:
        result = {"error": str(e), "project": e.project, "requires": e.requirements}
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
    if not manifest:
        return None
    packages = {name: version for name, version in manifest.get("packages", {}).items() if name in _TELLING}
    return {
        **{name: manifest.get(name) for name in _SHOWN},
        "packages": packages,
        "bytes": _disk_bytes(root),
        "age_s": age_s,
        "in_use": lease.is_taken(root),
    }


def _disk_bytes(*roots: Path) -> int:
    """Blocks on disk; a file that several of the directories share counts once, one that goes meanwhile does not."""
    inodes = {status.st_ino: status.st_blocks * 512 for root in roots for status in _files(root)}
    return sum(inodes.values())


def _files(root: Path) -> Iterator[os.stat_result]:
    """The status of each file below `root`, but for those that go meanwhile."""
    for _, entry in walk(root):
        with contextlib.suppress(FileNotFoundError):
            yield entry.stat(follow_symlinks=False)
