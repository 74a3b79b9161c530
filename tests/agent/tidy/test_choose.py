"""Which items go, by number, by age and by a limit: tables, no files."""

from __future__ import annotations

import pytest

from orchestrator.agent.tidy.choose import Wish, by_limit, by_wish
from orchestrator.agent.tidy.survey import Item


def run(number: int, *, in_use: str | None = None) -> Item:
    """Run `number` of day `number`, on a tree of its own; all but the first stand on one environment."""
    environment = "envs/old" if number == 1 else "envs/new"
    return Item("run", (f"runs/{number}",), float(number), frozenset({f"trees/{number}", environment}), in_use)


def things(*runs: Item) -> list[Item]:
    trees = [Item("tree", (f"trees/{item.name}",), item.used) for item in runs]
    environments = [
        Item("environment", ("envs/old",), 1.0, frozenset({"python/3.8"})),
        Item("environment", ("envs/new",), 5.0, frozenset({"python/3.12"})),
        Item("Python", ("python/3.8",), 0.0),
        Item("Python", ("python/3.12",), 0.0),
    ]
    return [*runs, *trees, *environments, Item("git store", ("objects",), 5.0), Item("wheel", ("built/w",), 0.0)]


THREE = things(run(1), run(2), run(3))


@pytest.mark.parametrize(
    ("wish", "gone"),
    [
        (Wish(keep=3), ""),
        (Wish(keep=2), "runs/1 trees/1 envs/old python/3.8 objects"),
        (Wish(keep=0), "runs/1 runs/2 runs/3 trees/1 trees/2 trees/3 envs/old envs/new python/3.8 python/3.12 objects"),
        (Wish(since=2.5), "runs/1 runs/2 trees/1 trees/2 envs/old python/3.8 built/w"),
        (Wish(keep=2, since=9.0), "runs/1 trees/1 envs/old python/3.8 objects built/w"),
        (Wish(keep=1, since=1.5), "runs/1 trees/1 envs/old python/3.8 built/w"),
    ],
)
def test_what_goes_by_number_and_age(wish: Wish, gone: str) -> None:
    assert {item.paths[0] for item in by_wish(THREE, wish)} == set(gone.split())


def test_what_is_in_use_stays_with_all_that_it_needs_and_counts_beside_the_newest() -> None:
    items = things(run(1, in_use="it goes on"), run(2), run(3))
    assert {item.paths[0] for item in by_wish(items, Wish(keep=1))} == {"runs/2", "trees/2"} | {"objects"}
    held = [*THREE, Item("tree", ("trees/held",), 0.0, in_use="a laptop is about to use it")]
    assert "trees/held" not in {item.paths[0] for item in by_wish(held, Wish(keep=0))}


def test_an_environment_that_stays_keeps_its_python() -> None:
    items = [i for i in THREE if i.kind != "run"]
    assert {item.paths[0] for item in by_wish(items, Wish(since=3.0))} >= {"envs/old", "python/3.8"}
    assert "python/3.12" not in {item.paths[0] for item in by_wish(items, Wish(since=3.0))}


def test_under_a_limit_the_longest_unused_goes_first_and_evidence_last() -> None:
    leftover = Item("leftover", ("trees/.incoming-x",), 9.0)
    items = [*THREE, leftover, Item("download", ("cache/uv",), 0.0)]

    def gone(limit: int) -> list[str]:
        return [item.paths[0] for item in by_limit(items, 100, limit, lambda _: 10)]

    assert gone(100) == []
    assert gone(60) == ["trees/.incoming-x", "trees/1", "envs/old", "trees/2"]
    order = gone(-100)
    assert order.index("runs/1") > order.index("envs/new") > order.index("trees/3") and order[-1] == "built/w"
    assert order.index("envs/old") < order.index("python/3.8") < order.index("runs/1")
    assert "cache/uv" not in order, "downloads go with the environments that share them"
