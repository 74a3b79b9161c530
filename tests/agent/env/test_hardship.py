"""Two users at once, dead builders, environments changed by hand, old ones: nothing half-made is ever used."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.agent.env import commands, lease
from orchestrator.agent.env.store import Store, identity
from orchestrator.shared.locks import locked
from tests.support import proc
from tests.support.env_pod import EnvPod, request
from tests.support.waiting import wait_for
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.slow


def site(environment: dict[str, object]) -> Path:
    return next(Path(str(environment["root"])).glob("lib/python*/site-packages"))


def kill_builders(pod: EnvPod) -> int:
    found = pod.builders()
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def test_ten_at_once_get_one_environment(pod: EnvPod) -> None:
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: pod.build(request("tool")), range(10)))
    assert len({environment["root"] for environment in found}) == 1
    assert len({environment["created"] for environment in found}) == 1
    assert pod.leftovers() == []


def test_different_requests_for_the_same_wheels_at_once_get_one_environment(pod: EnvPod) -> None:
    asked = [request("tool"), request("tool", "part"), request("tool>=2"), request("part", "tool>1")]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(pod.build, asked))
    assert len({environment["created"] for environment in found}) == 1
    assert pod.leftovers() == []


def test_builders_killed_at_ten_moments_leave_nothing_that_the_next_would_use(pod: EnvPod) -> None:
    began = time.monotonic()
    subprocess.run(["rm", "-rf", pod.build(request("tool"))["root"]], check=True)
    whole_s = time.monotonic() - began
    moments = random.Random(20251121)
    for _ in range(10):
        job = pod.start(request("tool"))
        time.sleep(moments.uniform(0, whole_s))
        killed = kill_builders(pod)
        assert pod.wait(job)["state"] == ("lost" if killed else "built")
        named = [p for p in pod.envs.iterdir() if not p.name.startswith(".")]
        assert all((p / "env.json").is_file() for p in named)
        found = pod.check(request("tool"))
        assert found["state"] == ("ready" if named else "absent"), found
        for (
            environment
        ) in named:  # it was finished before the kill: what lies there works, and the next one starts anew
            code = "import tool, part; print(tool.__version__)"
            assert subprocess.check_output([f"{environment}/bin/python", "-I", "-c", code], text=True) == "2.0\n"
            subprocess.run(["rm", "-rf", str(environment)], check=True)
    assert pod.build(request("tool"))["packages"]["tool"] == "2.0"
    assert pod.leftovers() == []


def test_an_environment_is_not_rebuilt_under_a_run_that_uses_it(pod: EnvPod) -> None:
    environment = pod.build(request("tool<2"))
    root = Path(environment["root"])
    with lease.taken(root):
        (site(environment) / "sneaky.pth").write_text("import os\n")
        inode = root.stat().st_ino
        sentence = pod.refused(request("tool<2"))
        assert "was changed since it was verified" in sentence and "nsa-pod cancel" in sentence
        assert root.stat().st_ino == inode and (site(environment) / "sneaky.pth").exists()
    assert pod.build(request("tool<2"))["key"] == environment["key"]
    assert root.stat().st_ino != inode


def test_the_tools_of_a_killed_builder_end_with_it(pod: EnvPod, tmp_path: Path) -> None:
    slow = tmp_path / "uv"
    slow.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {pod.uv} --version\nexec sleep 600\n')
    slow.chmod(0o755)
    pod.uv = slow
    pod.start(request("tool"))
    sleepers = wait_for(lambda: [child for builder in pod.builders() for child in proc.children(builder)])
    assert kill_builders(pod) >= 1
    wait_for(lambda: not any(proc.is_alive(pid) for pid in sleepers))


def test_a_build_outlives_whoever_asked_for_it(pod: EnvPod) -> None:
    process = pod.popen("build", "--workdir", str(pod.workdir))
    out, _ = process.communicate(json.dumps(request("tool")).encode())
    assert process.returncode == 0
    assert pod.wait(json.loads(out)["job"])["state"] == "built"


@pytest.fixture
def built(pod: EnvPod) -> dict[str, object]:
    return pod.build(request("tool<2"))


def test_a_replaced_package_is_found_said_and_rebuilt(pod: EnvPod, built: dict[str, object], index: str) -> None:
    _uv(pod, index, "install", "--python", str(built["python"]), "tool==2.0")
    found = pod.check(request("tool<2"))
    assert found["state"] == "changed"
    assert "tool 1.0 -> 2.0" in found["reason"]
    assert pod.build(request("tool<2"))["packages"]["tool"] == "1.0"


def test_a_removed_package_is_found_said_and_rebuilt(pod: EnvPod, built: dict[str, object], index: str) -> None:
    _uv(pod, index, "uninstall", "--python", str(built["python"]), "part")
    assert "part 1.5 -> removed" in pod.check(request("tool<2"))["reason"]
    assert pod.build(request("tool<2"))["key"] == built["key"]


def test_a_file_edited_in_place_is_found_and_not_built_again_from_the_cache(
    pod: EnvPod, built: dict[str, object]
) -> None:
    module = site(built) / "part" / "inner.py"
    assert module.stat().st_nlink > 1, "the cache has the same file"
    with module.open("a") as f:
        f.write("VALUE = 2\n")
    assert "part/inner.py" in pod.check(request("tool<2"))["reason"]
    pod.build(request("tool<2"))
    assert module.read_text() == "VALUE = 1\n"


def test_a_file_put_there_is_found(pod: EnvPod, built: dict[str, object]) -> None:
    (site(built) / "sneaky.pth").write_text("import os\n")
    assert "sneaky.pth was put there" in pod.check(request("tool<2"))["reason"]


def test_a_python_that_went_away_is_found(pod: EnvPod, built: dict[str, object]) -> None:
    link = Path(str(built["python"]))
    link.unlink()
    link.symlink_to("/nowhere/python")
    assert "its Python cannot be run" in pod.check(request("tool<2"))["reason"]
    assert pod.build(request("tool<2"))["key"] == built["key"]


def test_a_removed_environment_is_built_again(pod: EnvPod, built: dict[str, object]) -> None:
    subprocess.run(["rm", "-rf", str(built["root"])], check=True)
    assert pod.check(request("tool<2"))["state"] == "absent"
    assert pod.build(request("tool<2"))["key"] == built["key"]


def test_fresh_resolves_anew(pod: EnvPod, tmp_path: Path, index: str) -> None:
    pod.variables["PIP_FIND_LINKS"] = str(tmp_path / "links")
    (tmp_path / "links").mkdir()
    first = pod.build(request("tool"))
    make_wheel(tmp_path / "links", "tool", "3.0")
    assert pod.build(request("tool"))["key"] == first["key"], "the lock of the first time is kept"
    second = pod.build(request("tool", fresh=True))
    assert (second["packages"]["tool"], second["key"] != first["key"]) == ("3.0", True)


def test_environments_are_listed_and_old_ones_removed_but_none_in_use(pod: EnvPod) -> None:
    used, old, recent = (pod.build(request(*names)) for names in (["tool<2"], ["part"], ["tool"]))
    _age(used, days=30)
    _age(old, days=20)
    listed = pod.call("list", "--workdir", str(pod.workdir))["environments"]
    assert [e["key"] for e in listed] == [recent["key"], old["key"], used["key"]]
    assert all(e["bytes"] > 0 for e in listed)
    week = ["--older-than", str(7 * 86400)]
    with lease.taken(Path(used["root"])):
        planned = pod.prune(*week, "--dry-run")
        assert Path(old["root"]).exists()
        pruned = pod.prune(*week)
    assert [(e["kind"], e["name"]) for e in pruned["removed"]] == [("environment", old["key"])]
    assert not Path(old["root"]).exists()
    assert pod.check(request("part"))["state"] == "absent"
    kept = {e["name"]: e["in_use"] for e in pruned["kept"] if e["kind"] == "environment"}
    assert kept == {used["key"]: "a run uses it", recent["key"]: None}
    assert pruned["before_bytes"] > pruned["after_bytes"]
    assert 0 <= planned["after_bytes"] - pruned["after_bytes"] < 1 << 14, "what was remembered of it goes too"
    assert pod.check(request("tool"))["state"] == "ready", "what is left is undisturbed"
    assert pod.build(request("part"))["key"] == old["key"], "a trimmed cache still works"
    shared = {e["name"] for e in pod.prune("--keep", "0")["removed"] if e["kind"] == "download"}
    assert "uv" in shared, "the cache goes with the last environment"
    assert pod.build(request("tool"))["key"] == recent["key"]


def test_a_build_that_is_under_way_is_joined_and_not_swept_away(pod: EnvPod) -> None:
    """Who began the same was let in too, and who began another removed what was half made."""
    store = Store(pod.workdir)
    job = store.job(identity(request("tool")))
    half = store.root / ".building-k-1"
    half.mkdir(parents=True)
    with locked(job / "lock"), locked(store.key_lock("k")):
        started = pod.call("build", "--workdir", str(pod.workdir), input=request("tool"))
        assert started == {"job": job.name, "started": False}
        pod.build(request("part"))
        assert half.is_dir()
    pod.build(request("tool"))
    assert not half.exists()


def test_what_goes_while_environments_are_listed_does_not_matter(
    pod: EnvPod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another build fills and empties the cache meanwhile; another `prune` removes an environment."""
    key = pod.build(request("tool<2"))["key"]
    monkeypatch.setattr(Store, "whole", lambda _: ["gone", key])
    over = threading.Event()
    busy = pod.workdir / "cache" / "busy"
    busy.mkdir()

    def churn() -> None:
        while not over.is_set():
            for name in map(str, range(50)):
                (busy / name).touch()
            for name in map(str, range(50)):
                (busy / name).unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(100):
            assert commands.list_(["--workdir", str(pod.workdir)]) == 0
            listed = json.loads(capsys.readouterr().out)
            assert [e["key"] for e in listed["environments"]] == [key] and listed["cache_bytes"] > 0
    finally:
        over.set()
        thread.join()


def test_the_pods_own_python_is_asked_for_what_it_has(pod: EnvPod) -> None:
    found = pod.call("system", "--python", sys.executable, "pytest", "no-such-package", "PyYAML")
    assert found["kind"] == "system"
    assert found["packages"]["pytest"] == pytest.__version__
    assert set(found["packages"]) == {"pytest", "pyyaml"}
    assert "no python9 on the pod" in pod.call("system", "--python", "python9")["error"]


def _uv(pod: EnvPod, index: str, *arguments: str) -> None:
    subprocess.run(
        [str(pod.uv), "pip", *arguments, *(["--default-index", index] if arguments[0] == "install" else [])],
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "UV_CACHE_DIR": str(pod.workdir / "other-cache")},
    )


def _age(environment: dict[str, object], days: float) -> None:
    then = time.time() - days * 86400
    os.utime(Path(str(environment["root"])) / "env.json", (then, then))
