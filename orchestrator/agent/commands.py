"""The agent's commands: each prints one JSON object, but for `tail` (bytes of the journal) and `send` (files)."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

from orchestrator.agent.holds import Hold
from orchestrator.shared.failure import Failure

_POLL_S = 0.05


def main(argv: List[str]) -> int:
    """Run the command that `argv` names; 0, or 1 with {"error": ...} for a stated failure."""
    if not argv or argv[0] not in COMMANDS:
        print(f"usage: agent <{'|'.join(COMMANDS)}> ...", file=sys.stderr)
        return 2
    with contextlib.suppress(OSError):
        os.utime(sys.argv[0])  # an agent that nobody asks anything any more is removed
    try:
        return COMMANDS[argv[0]](argv[1:])
    except Failure as e:
        return _say({"error": str(e)}, code=1)
    except OSError as e:
        return _say({"error": f"{argv[0]}: {e}"}, code=1)


def _probe(argv: List[str]) -> int:
    from orchestrator.agent.host.probe import probe

    parser = _parser("probe")
    parser.add_argument("--workdir", default="~/.nsa-pod")
    return _say(probe(parser.parse_args(argv).workdir))


def _tree_hash(argv: List[str]) -> int:
    from orchestrator.shared import tree

    parser = _parser("tree-hash", "directory")
    parser.add_argument("--tree")
    parser.add_argument("--submodules", type=json.loads, default=[])
    args = parser.parse_args(argv)
    args.hold.take(_below(args.directory))
    manifest = tree.scan(_directory(args.directory))
    found = tree.tree_hash(manifest, args.submodules)
    wrong = tree.wrong_hash(manifest, args.tree, args.submodules) if args.tree else None
    return _say({"tree": found, "files": len(manifest), "wrong": wrong})


def _adopt_tree(argv: List[str]) -> int:
    from orchestrator.shared import tree

    parser = _parser("adopt-tree", "incoming", "target")
    parser.add_argument("--tree", required=True)
    parser.add_argument("--submodules", type=json.loads, default=[])
    args = parser.parse_args(argv)
    args.hold.take(_below(args.incoming), _below(args.target))
    incoming, target = _directory(args.incoming), Path(args.target)
    wrong = tree.wrong_hash(tree.scan(incoming), args.tree, args.submodules)
    if wrong:
        raise Failure(f"{incoming} did not arrive whole: {wrong}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and tree.wrong_hash(tree.scan(target), args.tree, args.submodules):
        _discard(target)
    try:
        incoming.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        _discard(incoming)  # someone else was faster, with the same tree
    return _say({"tree": args.tree, "path": str(target)})


def _launch(argv: List[str]) -> int:
    """Start the agent of a run, detached from this connection; say its pid once it holds the pod's lock.

    With --resume-by, who asks, the run goes on where an agent that died had left off. On stdin come the values of the
    secrets that the plan names, as JSON, if there are any.
    """
    from orchestrator.agent.run import daemon, secret_values

    parser = _parser("launch", "run_dir")
    parser.add_argument("--resume-by")
    parser.add_argument("--max-disk", type=int)
    args = parser.parse_args(argv)
    args.hold.take(_below(args.run_dir))
    run_dir, secrets = _directory(args.run_dir), secret_values.read(sys.stdin.buffer.read())
    said = daemon.start(run_dir, secrets, args.resume_by, daemon.Arrival(args.hold, args.max_disk))
    return _say(said, code=0 if "pid" in said else 1)


def _tail(argv: List[str]) -> int:
    parser = _parser("tail", "run_dir")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--limit", type=int, default=4 << 20)
    args = parser.parse_args(argv)
    args.hold.take(_below(args.run_dir))
    path = _directory(args.run_dir) / "journal.jsonl"
    end = time.monotonic() + args.wait
    while not (path.exists() and path.stat().st_size > args.offset) and time.monotonic() < end:
        time.sleep(_POLL_S)
    if path.exists():
        with path.open("rb") as f:
            f.seek(args.offset)
            sys.stdout.buffer.write(f.read(args.limit))
    return 0


def _log(argv: List[str]) -> int:
    """What a stage has written to the streams that an offset is given for; waits up to --wait seconds for some."""
    from orchestrator.agent.run import stage_output

    parser = _parser("log", "run_dir", "stage")
    for stream in stage_output.STREAMS:
        parser.add_argument(f"--{stream}", type=int)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--limit", type=int, default=1 << 20)
    args = parser.parse_args(argv)
    offsets = {name: getattr(args, name) for name in stage_output.STREAMS if getattr(args, name) is not None}
    return _say(stage_output.read_on(_directory(args.run_dir), args.stage, offsets, args.limit, args.wait))


def _status(argv: List[str]) -> int:
    from orchestrator.agent.run.runs import state_of

    return _say(state_of(Path(_parser("status", "run_dir").parse_args(argv).run_dir).absolute()))


def _runs(argv: List[str]) -> int:
    from orchestrator.agent.run.lock import holder
    from orchestrator.agent.run.runs import list_runs

    workdir = Path(_parser("runs", "workdir").parse_args(argv).workdir).absolute()
    return _say({"runs": list_runs(workdir), "holder": holder(workdir)})


def _holder(argv: List[str]) -> int:
    """Who holds the pod, after at most --wait seconds in which it may become free."""
    from orchestrator.agent.run import lock

    parser = _parser("holder", "workdir")
    parser.add_argument("--wait", type=float, default=0.0)
    args = parser.parse_args(argv)
    args.hold.take()
    return _say({"holder": lock.wait(Path(args.workdir), args.wait)})


def _cancel(argv: List[str]) -> int:
    """Ask the run's agent to stop; `signalled` is false when there is none any more."""
    from orchestrator.agent.run import daemon
    from orchestrator.agent.run.runs import state_of

    parser = _parser("cancel", "run_dir")
    parser.add_argument("--by", default="someone")
    parser.add_argument("--stolen", action="store_true", help="it gives way to another run of theirs")
    args = parser.parse_args(argv)
    run_dir = _directory(args.run_dir)
    signalled = daemon.cancel(run_dir, args.by, args.stolen)
    return _say({**state_of(run_dir), "signalled": signalled})


def _send(argv: List[str]) -> int:
    """Stream the files of the run that the JSON list on stdin asks for."""
    from orchestrator.agent.run.send import asked, send

    args = _parser("send", "run_dir").parse_args(argv)
    args.hold.take(_below(args.run_dir))
    run_dir = _directory(args.run_dir)
    wanted = asked(json.loads(sys.stdin.buffer.read()))
    try:
        with io.BufferedWriter(io.FileIO(1, "wb", closefd=False), 1 << 18) as out:
            send(run_dir, wanted, out)
    except OSError as e:  # the answer is not JSON here: what went wrong goes to stderr
        print(f"send: {e}", file=sys.stderr)
        return 1
    return 0


def _env(argv: List[str]) -> int:
    from orchestrator.agent.env import commands as envs

    if not argv or argv[0] not in envs.COMMANDS:
        raise Failure(f"env: expected one of {', '.join(envs.COMMANDS)}")
    return envs.COMMANDS[argv[0]](argv[1:])


def _prune(argv: List[str]) -> int:
    """Remove all but the --keep newest runs, or but what was used in the last --older-than seconds, or what is more
    than --limit bytes; with what only they need, and what was left over. What is in use stays.
    """
    from orchestrator.agent.tidy import choose, tidy

    parser = _parser("prune", "workdir")
    parser.add_argument("--keep", type=int)
    parser.add_argument("--older-than", type=float)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args(argv)
    since = None if args.older_than is None else time.time() - args.older_than
    choice = tidy.under(args.limit) if args.limit is not None else tidy.wished(choose.Wish(args.keep, since))
    return _say(tidy.prune(_directory(args.workdir), choice, dry_run=args.dry_run))


COMMANDS: Dict[str, Callable[[List[str]], int]] = {
    "probe": _probe,
    "tree-hash": _tree_hash,
    "adopt-tree": _adopt_tree,
    "env": _env,
    "launch": _launch,
    "tail": _tail,
    "log": _log,
    "status": _status,
    "runs": _runs,
    "holder": _holder,
    "cancel": _cancel,
    "send": _send,
    "prune": _prune,
}


def _say(answer: Mapping[str, Any], code: int = 0) -> int:
    print(json.dumps(answer))
    return code


def _parser(name: str, *positionals: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"agent {name}")
    parser.add_argument("--hold", type=Hold, default=Hold(), help="the file of what the asking laptop holds")
    for positional in positionals:
        parser.add_argument(positional)
    return parser


def _directory(text: str) -> Path:
    path = Path(text).resolve()  # pytest and the guard compare paths as they are when links are followed
    if not path.is_dir():
        raise Failure(f"there is no directory {path}")
    return path


def _below(path: str) -> str:
    """A path of the workdir's second storey, such as runs/<run id>, as holds name it."""
    return "/".join(Path(path).parts[-2:])


def _discard(folder: Path) -> None:
    """Take the directory away in one step, then delete it."""
    aside = folder.with_name(f".{folder.name}.gone-{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
