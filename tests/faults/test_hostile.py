"""A pod that answers whatever it likes: one sentence, in little time and memory; see tests.bench.hostile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.hostile import CASES, MOST_MIB, NO_SERVERS, Laptop, no_server
from tests.support.sshd import Sshd

SOON_S = 60.0
# What is no fault of the whole run is said of the file, and the run is judged without it.
JUDGED = {"as many artifacts as are held", "a name of a million letters", "a file of -1 bytes", "a file of 10^30 bytes"}
QUICK = {"a name of a million letters", "a packet of 4 GiB"}


def quick(names: Iterable[str]) -> list[Any]:
    """A few of each; the others are for the slow part."""
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory, sshd: Sshd) -> Laptop:
    return Laptop(tmp_path_factory.mktemp("laptop"), sshd)


@pytest.mark.parametrize("name", quick(CASES))
def test_a_hostile_agent_costs_little(laptop: Laptop, name: str) -> None:
    ended = laptop.meets(name)
    assert ended.exit_code == (1 if name in JUDGED else 4), ended
    assert ended.peak_mib < MOST_MIB and ended.seconds < 3 * SOON_S, ended
    assert "Traceback" not in ended.said and (name in JUDGED or ended.said.startswith("error: "))


@pytest.mark.parametrize("name", quick(NO_SERVERS))
def test_a_server_that_is_none_costs_little(laptop: Laptop, name: str) -> None:
    with no_server(NO_SERVERS[name]) as port:
        ended = laptop.ends("runs", laptop.server.entry(port=port))
    assert (ended.exit_code, ended.said[:28]) == (4, "error: pod 'p': cannot connec"[:28]), ended
    assert ended.peak_mib < MOST_MIB and ended.seconds < SOON_S, ended
