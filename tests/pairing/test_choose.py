"""The choice, over the pods that people rent: which environment, or which refusal, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.errors import EnvironmentFailed, InputError
from orchestrator.pairing.choose import choose
from orchestrator.pairing.table import table
from tests.support.rented_pods import PODS, WHOLE, asked, named


@pytest.mark.parametrize("pod", PODS["chosen"], ids=lambda pod: pod["name"])
def test_chosen(pod: dict[str, Any]) -> None:
    chosen = asked(pod).choose()
    expected = {"torch": "2.8.0", "triton": "3.4.0", "flash": "2.8.3", "python": "3.10", **pod}
    flash = expected["flash"] if expected["is"] != "newest" else None
    assert chosen.profile == expected["is"]
    assert (chosen.pins["torch"], chosen.pins.get("triton")) == (expected["torch"], expected["triton"])
    assert [wheel["version"] for wheel in chosen.wheels] == ([flash] if flash else [])
    assert (chosen.interpreter and chosen.python) == expected["python"]
    said = [*chosen.reasons, *chosen.rejected, *(wheel["url"] for wheel in chosen.wheels)]
    assert pod.get("says", "") in "\n".join(said)


@pytest.mark.parametrize("pod", PODS["refused"], ids=lambda pod: pod["name"])
def test_refused(pod: dict[str, Any]) -> None:
    with pytest.raises((EnvironmentFailed, InputError)) as refused:
        asked(pod).choose()
    assert pod["says"] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_there_are_enough_pods() -> None:
    assert len(PODS["chosen"]) + len(PODS["refused"]) >= 60


def test_a_build_that_pypi_does_not_serve_comes_from_torchs_own_index() -> None:
    chosen = named("GTX 1080 Ti").choose()
    assert chosen.indexes == ("https://download.pytorch.org/whl/cu126",)
    assert "torch==2.13.0+cu126" in chosen.requirements


def test_a_build_that_pypi_serves_needs_no_other_index() -> None:
    chosen = named("H100").choose()
    assert chosen.indexes == ()
    assert chosen.requirements[:2] == ("torch==2.8.0", "triton==3.4.0")


def test_what_a_release_needs_without_saying_so_is_added() -> None:
    assert {"setuptools", "einops"} <= set(named("4090, the seeds' torch 2.4").choose().requirements)


def test_without_torch_any_python_will_do() -> None:
    chosen = choose(table(), named("CPU").facts, EnvironmentSpec(extra=["pytest"]))
    assert (chosen.profile, chosen.python, chosen.requirements, chosen.cuda) == (None, "3.10", ("pytest",), None)


def test_flash_attn_is_required_only_if_the_runbook_says_so() -> None:
    required = EnvironmentSpec(requires=["torch", "flash-attn"])
    assert [wheel["required"] for wheel in choose(table(), named("H100").facts, required).wheels] == [True]
    assert [wheel["required"] for wheel in named("H100").choose().wheels] == [False]


def test_the_request_is_the_same_whichever_reasons_led_to_it() -> None:
    spec = EnvironmentSpec.model_validate(WHOLE)
    pinned = choose(table(), named("4090, driver 570.169").facts, spec, "torch28")
    assert named("4090, driver 550.90.07").choose().request() == pinned.request()
