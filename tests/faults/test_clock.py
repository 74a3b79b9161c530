"""Wall clocks that jump, for real: the C library's clock is moved for the processes of laptop and agent."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.faults import runs, world
from tests.support.project import Project

# Python asks for the time of day through these; the monotonic clock stays as it is, as in a jump.
_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long moved(void) {
    long seconds = 0;
    FILE *f = fopen(getenv("CLOCK_FILE") ? getenv("CLOCK_FILE") : CLOCK_FILE, "r");
    if (f) { if (fscanf(f, "%ld", &seconds) != 1) seconds = 0; fclose(f); }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, t);
    if (code == 0 && id == CLOCK_REALTIME) t->tv_sec += moved();
    return code;
}
time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
"""
DAY = 86400


class Clock:
    """The time of day of every process that is started with `variables`: the machine's, moved by so many seconds."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.move(0)
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(_SHIM)
        build = ["cc", "-shared", "-fPIC", f'-DCLOCK_FILE="{self._file}"', str(source), "-o", str(library), "-ldl"]
        subprocess.run(build, check=True)
        self.variables = {"LD_PRELOAD": str(library)}

    def move(self, seconds: int) -> None:
        self._file.write_text(f"{seconds}\n")


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    if shutil.which("cc") is None:
        pytest.skip("a C compiler is needed to move the clock of a process")
    return Clock(tmp_path)


def wall_times(run: Path) -> list[float]:
    return [datetime.fromisoformat(e["wall"].replace("Z", "+00:00")).timestamp() for e in world.events_of(run)]


@pytest.mark.slow
def test_the_clock_jumps_during_a_run(project: Project, clock: Clock, tmp_path: Path) -> None:
    """No limit is met by it, no duration is wrong, nothing is lost: times of day are only shown."""
    workdir = tmp_path / "workdir"
    project.commit(runs.files(*(runs.said(name, "import time; time.sleep(1); print(1)") for name in "abc")))
    validate = runs.start(project, **clock.variables)
    for stage, seconds in (("a", DAY), ("b", -DAY)):
        world.wait_for_event(workdir, "stage_started", stage=stage)
        clock.move(seconds)
    outcome = runs.end(validate)
    runs.check(project, workdir, outcome, "passed", "passed", "passed", "passed")
    assert all(1 <= stage["seconds"] < 15 for stage in outcome.json["stages"])
    [run] = world.runs_of(workdir)
    times = wall_times(run)
    assert max(times) - times[0] > DAY / 2 and max(times) - times[-1] > DAY, "it was not moved"
    monotonic = [event["t"] for event in world.events_of(run)]
    assert monotonic == sorted(monotonic) and monotonic[-1] < 60


@pytest.mark.slow
def test_the_newest_run_is_the_last_launched_whatever_the_clock_says(
    project: Project, clock: Clock, tmp_path: Path
) -> None:
    """A clock that was put back must not let an older green stand for the newest run."""
    project.commit(runs.files(runs.said("only", "print(1)")))
    environment = clock.variables
    green = runs.end(runs.start(project, **environment))
    runs.check(project, tmp_path / "workdir", green, "passed", "passed")
    clock.move(-DAY)
    project.commit(runs.files(runs.said("only", "raise SystemExit(1)")))
    red = runs.end(runs.start(project, **environment))
    runs.check(project, tmp_path / "workdir", red, "failed", "failed")
    other_laptop = {**environment, "NSA_POD_HOME": str(tmp_path / "other home")}
    for variables in (environment, other_laptop):
        fetched = runs.end(project.popen("fetch", "--pod", "p", "--json", **variables))
        assert fetched.json["run_id"] == red.json["run_id"], fetched.stderr
    reported = runs.end(project.popen("report", "--json", **environment))
    assert reported.json["run_id"] == red.json["run_id"]
    assert os.path.realpath(project.root / "artifacts/runner/latest").endswith(red.json["run_id"])
