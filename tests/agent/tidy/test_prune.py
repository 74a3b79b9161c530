"""The agent's `prune` on a pod: what is in use or held stays, what is left over goes."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.agent import holds
from orchestrator.agent.env import lease
from tests.support.agent_pod import Pod, Run, said, script

DAY_S = 86400.0
HELD = "a laptop is about to use it, or is bringing it home"
WAITS = said("waits", script("import os, time\nwhile not os.path.exists('../../../open'): time.sleep(0.02)\nprint(1)"))


def prune(pod: Pod, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = pod.ask("prune", str(pod.workdir), *arguments)
    return answer


def names(answer: dict[str, Any], kind: str) -> set[str]:
    return {item["name"] for item in answer["removed"] if item["kind"] == kind}


def in_use(answer: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["in_use"] for item in answer["kept"] if item["in_use"]}


def ended(pod: Pod, text: str) -> Run:
    return pod.run({"text": text}, said("s", ["cat", "text"]))


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))


def old_leftover(path: Path, folder: bool = True) -> Path:
    """What a process that is long gone left; its change time cannot be set, so the agent's clock must be ahead."""
    path.mkdir(parents=True) if folder else path.parent.mkdir(parents=True, exist_ok=True)
    (path / "part" if folder else path).write_text("x")
    return path


def test_the_newest_runs_stay_with_what_they_need(pod: Pod) -> None:
    runs = [ended(pod, str(n)) for n in range(3)]
    planned = prune(pod, "--keep", "1", "--dry-run")
    assert all(run.path.exists() for run in runs) and planned["after_bytes"] < planned["before_bytes"]
    done = prune(pod, "--keep", "1")
    assert done["removed"] == planned["removed"] and done["after_bytes"] == planned["after_bytes"]
    assert [run.path.exists() for run in runs] == [False, False, True]
    assert names(done, "run") == {run.run_id for run in runs[:2]}
    assert [path.name for path in (pod.workdir / "trees").iterdir()] == [runs[2].plan["tree"]]
    assert len(list((pod.workdir / "cache").iterdir())) == 1
    assert prune(pod, "--keep", "1")["removed"] == []
    assert ended(pod, "2").ending == "completed", "what is left is undisturbed"


def test_a_run_that_goes_on_stays_with_all_that_it_needs(pod: Pod) -> None:
    idle, going = ended(pod, "1"), pod.launch({"text": "2"}, [WAITS])
    going.wait_for("stage_started")
    done = prune(pod, "--keep", "0")
    assert names(done, "run") == {idle.run_id} and names(done, "tree") == {idle.plan["tree"]}
    assert in_use(done) == {going.run_id: "it goes on"}
    (pod.workdir / "open").touch()
    assert going.wait().ending == "completed", going.trouble()


def test_a_run_that_waits_keeps_its_tree_and_environment(pod: Pod, tmp_path: Path) -> None:
    """Its laptop has prepared all of it, and another run holds the pod."""
    environment = pod.workdir / "envs" / "k1"
    environment.mkdir(parents=True)
    (environment / "env.json").write_text("{}")
    hold = str(pod.workdir / "holds" / "laptop")
    waiting = pod.prepare({"text": "waits"}, [said("s", ["cat", "text"])])
    tree = pod.workdir / "trees" / waiting.plan["tree"]
    pod.ask("trees", str(tree.parent), "--tree", tree.name, "--hold", hold)
    holds.Hold(hold).take("envs/k1")
    (waiting.path / "plan.json").unlink()  # as a refused launch leaves it
    waiting.path.rmdir()
    done = prune(pod, "--keep", "0")
    assert in_use(done) == {"k1": HELD, waiting.plan["tree"]: HELD} and tree.is_dir()

    stale = time.monotonic() - holds.LASTS_S + 60
    os.utime(hold, (stale, stale))
    pod.ask("holder", str(pod.workdir), "--hold", hold)  # the laptop still waits
    assert time.monotonic() - os.stat(hold).st_mtime < 60
    waiting.path.mkdir()
    (waiting.path / "plan.json").write_text(json.dumps(waiting.plan))
    assert in_use(prune(pod, "--keep", "0"))[waiting.run_id] == "it is about to begin"
    pod.ask("launch", str(waiting.path), "--hold", hold)
    assert waiting.wait().ending == "completed", waiting.trouble()
    assert Path(hold).read_text() == f"runs/{waiting.run_id}\n", "its results are not home yet"
    assert names(prune(pod, "--keep", "0"), "environment") == {"k1"} and waiting.path.exists()
    Path(hold).unlink()
    assert names(prune(pod, "--keep", "0"), "run") == {waiting.run_id}


def test_a_hold_ends_with_the_patience_of_its_laptop(pod: Pod) -> None:
    tree = ended(pod, "1").plan["tree"]
    hold = pod.workdir / "holds" / "gone"
    holds.Hold(str(hold)).take(f"trees/{tree}")
    assert names(_by_another_clock(pod), "tree") == set(), "a clock that is set ends no patience"
    renewed = time.monotonic() - holds.LASTS_S - 1
    os.utime(hold, (renewed, renewed))
    done = prune(pod, "--keep", "0")
    assert names(done, "tree") == {tree} and names(done, "leftover") == {"gone"} and not hold.exists()


def test_layers_and_environments_that_are_leased_stay(pod: Pod) -> None:
    for kind in ("envs", "layers"):
        for key in ("used", "idle"):
            (pod.workdir / kind / key).mkdir(parents=True)
    with lease.taken(pod.workdir / "envs" / "used"), lease.taken(pod.workdir / "layers" / "used"):
        done = prune(pod, "--keep", "0")
    assert names(done, "environment") == names(done, "layer") == {"idle"}
    assert in_use(done) == {"used": "a run uses it"}


def test_a_layer_that_a_kept_run_names_stays(pod: Pod) -> None:
    for key in ("named", "other"):
        (pod.workdir / "layers" / key).mkdir(parents=True)
    plan = ended(pod, "1").path / "plan.json"
    told = json.loads(plan.read_text())
    told["environment"]["layer"] = {"key": "named", "root": str(pod.workdir / "layers" / "named")}
    plan.write_text(json.dumps(told))
    assert names(prune(pod, "--keep", "1"), "layer") == {"other"}


def test_what_is_left_over_goes_once_nothing_writes_to_it(pod: Pod, monkeypatch: Any) -> None:
    tree = ended(pod, "1").plan["tree"]
    fresh = old_leftover(pod.workdir / "trees" / ".incoming-fresh")
    left = [
        *(old_leftover(pod.workdir / name) for name in ("trees/.incoming-x", "incoming/ab", "runs/half", "tmp/x-1")),
        *(old_leftover(pod.workdir / name) for name in ("envs/.building-k-1", "envs/.trash-1", "layers/.building-1")),
        *(old_leftover(pod.workdir / name, False) for name in ("agent-0a.pyz.77", "doctor-0b", "objects/pack/tmp_9")),
    ]
    old_agent = pod.workdir / "agent-0123456789abcdef.pyz"
    old_agent.write_text("x")
    first = prune(pod, "--keep", "1")
    assert names(first, "leftover") == set(), "a transfer may still be going on"
    assert {item["name"] for item in first["kept"] if item["kind"] == "agent"} >= {old_agent.name}, "it is no day old"
    age(old_agent, 2)
    done = _in_the_future(pod, fresh)
    assert names(done, "leftover") == {path.name for path in left} and names(done, "old agent") == {old_agent.name}
    assert fresh.exists() and not any(path.exists() for path in (*left, old_agent))
    assert (pod.workdir / "trees" / tree).is_dir()


def test_by_age(pod: Pod) -> None:
    old, new = ended(pod, "1"), ended(pod, "2")
    age(old.path / "journal.jsonl", 8)
    age(pod.workdir / "trees" / old.plan["tree"], 8)
    (pod.workdir / "built" / "recipe").mkdir(parents=True)
    age(pod.workdir / "built" / "recipe", 30)
    done = prune(pod, "--older-than", str(7 * DAY_S))
    assert names(done, "run") == {old.run_id} and names(done, "tree") == {old.plan["tree"]}
    assert names(done, "wheel") == {"recipe"} and new.path.exists()


def test_a_launch_keeps_the_workdir_under_its_limit_and_loses_no_evidence(pod: Pod) -> None:
    runs = [pod.run({"data": os.urandom(1 << 20)}, said("s", ["echo", str(n)])) for n in range(4)]
    last = pod.prepare({"data": os.urandom(1 << 20)}, [said("s", ["echo", "last"])])
    tidied = pod.ask("launch", str(last.path), "--max-disk", str(4 << 20))["tidied"]
    assert tidied["before_bytes"] > (8 << 20) > (4 << 20) >= tidied["after_bytes"] and tidied["problem"] is None
    assert last.wait().ending == "completed", last.trouble()
    assert [run.text("artifacts/s.txt") for run in runs] == ["0\n", "1\n", "2\n", "3\n"]
    none = pod.prepare({}, [said("s", ["echo", "1"])])
    assert pod.ask("launch", str(none.path), "--max-disk", "1")["tidied"]["after_bytes"] > 1, "all of it is in use"
    assert none.wait().ending == "completed"


def test_a_pod_that_is_held_by_nobody_known_is_left_alone(pod: Pod) -> None:
    run = ended(pod, "1")
    with (pod.workdir / "lock").open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        refused = pod.call("prune", str(pod.workdir), "--keep", "0", check=False)
    assert "held by an unknown run" in json.loads(refused.stdout)["error"] and run.path.exists()


def _in_the_future(pod: Pod, fresh: Path) -> dict[str, Any]:
    """`prune` an hour later, when only `fresh` has been written to."""
    older = f"lambda path, newest=survey.newest: newest(path) - (0 if path.name == {fresh.name!r} else 3600)"
    return _changed(pod, f"survey.newest = {older}", "1")


def _by_another_clock(pod: Pod) -> dict[str, Any]:
    """`prune` after the time of day was set a day ahead."""
    return _changed(pod, "time.time = lambda now=time.time: now() + 86400", "0")


def _changed(pod: Pod, change: str, keep: str) -> dict[str, Any]:
    code = f"""
import os, sys, time
sys.path.insert(0, {str(pod.agent)!r})
from orchestrator.agent.tidy import survey
{change}
from orchestrator.agent.commands import main
sys.exit(main(["prune", {str(pod.workdir)!r}, "--keep", {keep!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
