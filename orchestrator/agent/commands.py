"""The agent's commands: each prints one JSON object, but for `tail` (bytes of the journal), `send` (files), `serve`."""

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
from orchestrator.agent.host import umask
from orchestrator.shared import disk
from orchestrator.shared.answers import READY
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import write_atomically

_POLL_S = 0.05
_ALIVE_S = 1.0
_RENEW_S = 60.0
# The bases that a laptop considers.
_MOST_TREES = 20


def main(argv: List[str]) -> int:
    """Run the command that `argv` names; 0, or 1 with {"error": ...} for a stated failure."""
    if not argv or argv[0] not in COMMANDS:
        print(f"usage: agent <{'|'.join(COMMANDS)}> ...", file=sys.stderr)
        return 2
    umask.take_away()
    with contextlib.suppress(OSError):
        os.utime(sys.argv[0])  # an agent that nobody asks anything any more is removed
    try:
        return COMMANDS[argv[0]](argv[1:])
    except Failure as e:
        return _say({"error": str(e)}, code=1)
    except OSError as e:
        return _say({"error": f"{argv[0]}: {disk.told(e, _place(argv))}"}, code=1)


def _probe(argv: List[str]) -> int:
    from orchestrator.agent.probe import probe

    parser = _parser("probe")
    parser.add_argument("--workdir", default="~/.nsa-pod")
    return _say(probe(parser.parse_args(argv).workdir))


def _trees(argv: List[str]) -> int:
    """The trees in the directory, the last made first, and whether that of --tree is there and what its name says."""
    from orchestrator.agent.git.pristine import Pristine, Wanted

    parser = _parser("trees", "directory")
    parser.add_argument("--tree", required=True)
    parser.add_argument("--submodules", type=json.loads, default=[])
    args = parser.parse_args(argv)
    args.hold.take(_below(f"{args.directory}/{args.tree}"))
    folder = Path(args.directory)
    folder.mkdir(parents=True, exist_ok=True)
    there = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    names = [entry.name for entry in sorted(there, key=_made, reverse=True)]
    wanted = Wanted(args.tree, args.submodules)
    whole = args.tree in names and wanted.why_not(Pristine(folder / args.tree).scan()) is None
    _drop_leftovers(folder, f".incoming-{args.tree}-" if not whole else None)
    return _say({"trees": names[:_MOST_TREES], "whole": whole})


def _bring_tree(argv: List[str]) -> int:
    """Make the tree of a stream, and of the tree --base: say how much of it is there, and take the rest from stdin."""
    from orchestrator.agent.git.incoming import Incoming
    from orchestrator.agent.git.pristine import Wanted
    from orchestrator.agent.supplied import supplied

    parser = _parser("bring-tree", "trees")
    parser.add_argument("--tree", required=True)
    parser.add_argument("--submodules", type=json.loads, default=[])
    parser.add_argument("--base")
    parser.add_argument("--stream", required=True)
    args = parser.parse_args(argv)
    folder = Path(args.trees).resolve()
    args.hold.take(*(f"{folder.name}/{name}" for name in (args.tree, args.base) if name))
    wanted = Wanted(args.tree, args.submodules)
    with supplied() as stream:
        Incoming(folder, wanted, args.base, args.stream).go_on(_ready, stream)
    return _say({"tree": args.tree, "path": str(folder / args.tree)})


def _launch(argv: List[str]) -> int:
    """Start the agent of a run, detached from this connection; say its pid once it holds the pod's lock.

    With --resume-by, who asks, the run goes on where an agent that died had left off. On stdin come the values of the
    secrets that the plan names, as JSON, if there are any; with --plan-bytes, the plan before them.
    """
    from orchestrator.agent.run import daemon, secret_values

    parser = _parser("launch", "run_dir")
    parser.add_argument("--resume-by")
    parser.add_argument("--max-disk", type=int)
    parser.add_argument("--plan-bytes", type=int, default=0)
    args = parser.parse_args(argv)
    args.hold.take(_below(args.run_dir))
    given = sys.stdin.buffer.read()
    if args.plan_bytes:
        _write_plan(Path(args.run_dir), given[: args.plan_bytes], args.plan_bytes)
    run_dir, secrets = _directory(args.run_dir), secret_values.read(given[args.plan_bytes :])
    said = daemon.start(run_dir, secrets, args.resume_by, daemon.Arrival(args.hold, args.max_disk))
    return _say(said, code=0 if "pid" in said else 1)


def _tail(argv: List[str]) -> int:
    parser = _parser("tail", "run_dir")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--limit", type=int, default=4 << 20)
    parser.add_argument("--follow", action="store_true", help="go on for as long as the run's agent lives")
    args = parser.parse_args(argv)
    args.hold.take(_below(args.run_dir))
    path = _directory(args.run_dir) / "journal.jsonl"
    if args.follow:
        return _follow(path, args.offset, args.limit, args.hold)
    end = time.monotonic() + args.wait
    while not (path.exists() and path.stat().st_size > args.offset) and time.monotonic() < end:
        time.sleep(_POLL_S)
    sys.stdout.buffer.write(_read(path, args.offset, args.limit))
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


def _follow(path: Path, offset: int, limit: int, hold: Hold) -> int:
    """Write the journal from `offset` as it grows, until its agent is gone and all of it is written."""
    from orchestrator.agent.runs import living_agent

    goes_on, look_at, renew_at = True, 0.0, time.monotonic() + _RENEW_S
    while True:
        if time.monotonic() >= renew_at:
            hold.take()
            renew_at += _RENEW_S
        if time.monotonic() >= look_at:  # before the journal: an agent writes its last line before it lets the lock go
            goes_on, look_at = living_agent(path.parent) is not None, time.monotonic() + _ALIVE_S
        data = _read(path, offset, limit)
        offset += len(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        if not data:
            if not goes_on:
                return 0
            time.sleep(_POLL_S)


def _read(path: Path, offset: int, limit: int) -> bytes:
    """What the file holds from `offset`, at most `limit` bytes; nothing where there is none yet."""
    try:
        with path.open("rb") as f:
            f.seek(offset)
            return f.read(limit)
    except FileNotFoundError:
        return b""


def _status(argv: List[str]) -> int:
    from orchestrator.agent.runs import state_of

    run_dir = Path(_parser("status", "run_dir").parse_args(argv).run_dir).absolute()
    found = state_of(run_dir)
    return _say({**found, "refusal": disk.refusal(run_dir) if found["state"] == "lost" else ""})


def _runs(argv: List[str]) -> int:
    from orchestrator.agent.lock import holder
    from orchestrator.agent.runs import list_runs

    parser = _parser("runs", "workdir")
    parser.add_argument("--begin", default="", help="only those whose ids begin so")
    args = parser.parse_args(argv)
    workdir = Path(args.workdir).absolute()
    found, more = list_runs(workdir, args.begin)
    return _say({"runs": found, "more": more, "holder": holder(workdir)})


def _holder(argv: List[str]) -> int:
    """Who holds the pod, after at most --wait seconds in which it may become free."""
    from orchestrator.agent import lock

    parser = _parser("holder", "workdir")
    parser.add_argument("--wait", type=float, default=0.0)
    args = parser.parse_args(argv)
    args.hold.take()
    return _say({"holder": lock.wait(Path(args.workdir), args.wait)})


def _cancel(argv: List[str]) -> int:
    """Ask the run's agent to stop; `signalled` is false when there is none any more."""
    from orchestrator.agent.run import daemon
    from orchestrator.agent.runs import state_of

    parser = _parser("cancel", "run_dir")
    parser.add_argument("--by", default="someone")
    parser.add_argument("--stolen", action="store_true", help="it gives way to another run of theirs")
    args = parser.parse_args(argv)
    run_dir = _directory(args.run_dir)
    within = daemon.cancel(run_dir, args.by, args.stolen)
    return _say({**state_of(run_dir), "signalled": within is not None, "within": within or 0.0})


def _end(argv: List[str]) -> int:
    """Kill the run's agent, which did not stop when it was asked to; `ended` says whether the pod is free of it."""
    from orchestrator.agent.run import daemon

    return _say({"ended": daemon.end(_directory(_parser("end", "run_dir").parse_args(argv).run_dir))})


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


def _serve(argv: List[str]) -> int:
    """Answer whatever a laptop asks over one connection, for as long as it lasts."""
    from orchestrator.agent.serve import serve

    _parser("serve").parse_args(argv)
    return serve(main, _outlives)


def _outlives(argv: List[str]) -> bool:
    """Whether the command leaves a process behind, which is then found by its own command line."""
    return argv[:1] == ["launch"] or argv[:2] in (["env", "build"], ["env", "build-layer"])


COMMANDS: Dict[str, Callable[[List[str]], int]] = {
    "probe": _probe,
    "trees": _trees,
    "bring-tree": _bring_tree,
    "env": _env,
    "launch": _launch,
    "tail": _tail,
    "log": _log,
    "status": _status,
    "runs": _runs,
    "holder": _holder,
    "cancel": _cancel,
    "end": _end,
    "send": _send,
    "prune": _prune,
    "serve": _serve,
}


def _say(answer: Mapping[str, Any], code: int = 0) -> int:
    print(json.dumps(answer))
    return code


def _ready(at: int) -> None:
    """Say from which byte on what comes on stdin is expected."""
    print(f"{READY} {at}", flush=True)


def _parser(name: str, *positionals: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"agent {name}")
    parser.add_argument("--hold", type=Hold, default=Hold(), help="the file of what the asking laptop holds")
    for positional in positionals:
        parser.add_argument(positional)
    return parser


def _place(argv: List[str]) -> str:
    """Where the command was at work: each is told of a place below the workdir."""
    return next((argument for argument in argv if argument.startswith("/")), "/")


def _directory(text: str) -> Path:
    path = Path(text).resolve()  # pytest and the guard compare paths as they are when links are followed
    if not path.is_dir():
        raise Failure(f"there is no directory {path}")
    return path


def _below(path: str) -> str:
    """A path of the workdir's second storey, such as runs/<run id>, as holds name it."""
    return "/".join(Path(path).parts[-2:])


def _drop_leftovers(trees: Path, wanted: str | None) -> None:
    """Delete what a laptop, or an agent, that is gone has left there, but for what begins with `wanted`."""
    from orchestrator.agent.git.incoming import is_left
    from orchestrator.agent.tidy.survey import ABANDONED_S
    from orchestrator.shared.files import walk

    for entry in trees.iterdir():
        is_leftover = entry.name.startswith(".") and not (wanted and entry.name.startswith(wanted))
        written = max([_made(entry), *(_made(Path(file.path)) for _, file in walk(entry))]) if is_leftover else 0
        if is_leftover and is_left(entry) and time.time() - written > ABANDONED_S:
            shutil.rmtree(entry, ignore_errors=True)


def _made(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # it has just been taken away
        return time.time()


def _write_plan(run_dir: Path, plan: bytes, size: int) -> None:
    if len(plan) != size:
        raise Failure("the plan did not arrive whole")
    run_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(run_dir / "plan.json", plan.decode())
