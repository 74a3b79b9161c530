"""What is remembered of calls: not more than so many, and nothing that would let a wrong call pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nsa import nsa_attention, routing
from nsa.bounded import Bounded
from nsa.config import NSAConfig
from nsa.ops import attention

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)


def test_a_new_entry_takes_the_place_of_the_oldest() -> None:
    found: Bounded[int, str] = Bounded(3)
    for key in (1, 2, 3, 2, 4):
        found[key] = str(key)
    assert dict(found) == {2: "2", 3: "3", 4: "4"}


def _arguments() -> dict[str, Any]:
    shapes = {"q": (4, 16), "k": (2, 16), "v": (2, 16), "gates": (4, 3)}
    return {name: torch.randn(1, 19, *shape) for name, shape in shapes.items()}


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for each call whose arguments were looked at, with nothing known at the start."""
    monkeypatch.setattr(attention, "_agreed", Bounded(8))
    found: list[str] = []
    check = attention._check
    monkeypatch.setattr(attention, "_check", lambda *arguments: (found.append("looked"), check(*arguments)))
    return found


def test_arguments_that_went_together_are_not_looked_at_again(looked_at: list[str]) -> None:
    for _ in range(3):
        nsa_attention(**_arguments(), config=CONFIG)
    assert len(looked_at) == 1
    nsa_attention(**{**_arguments(), "q": torch.randn(1, 19, 6, 16), "gates": torch.randn(1, 19, 6, 3)}, config=CONFIG)
    assert len(looked_at) == 2


def _longer(x: Tensor) -> Tensor:
    return torch.cat([x, x[:, :1]], 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: {"q": x["q"].half()}, "must have the dtype and device of q"),
        (lambda x: {"k": _longer(x["k"]), "v": _longer(x["v"])}, "k has 20"),
        (lambda x: {"v": _longer(x["v"])}, "k and v must agree"),
        (lambda x: {"gates": x["gates"][..., :2]}, "gates must have the shape"),
        (lambda x: {"k": (x["k"], x["k"], _longer(x["k"])), "v": (x["v"], x["v"], _longer(x["v"]))}, "have one shape"),
        (lambda x: {"compressed": (x["k"][:, :1], x["v"][:, :1])}, "must hold 3 compressed tokens"),
        (lambda x: {"compressed": x["k"]}, "must be a pair"),
        (lambda x: {"cu_seqlens": torch.tensor([0, 5, 18], dtype=torch.int32)}, "must rise from 0 to T=19"),
        (lambda x: {"q_start": torch.tensor([3])}, "do not fit in 19 keys"),
        (lambda x: {"block_indices": torch.full((1, 19, 2, 1), 7, dtype=torch.int32)}, "block_indices"),
    ],
    ids=["dtype", "more keys", "more values", "gates", "branches", "means", "no pair", "borders", "start", "blocks"],
)
def test_a_wrong_call_is_refused_after_right_ones(change: Any, words: str, looked_at: list[str]) -> None:
    x = _arguments()
    for _ in range(2):
        nsa_attention(**x, config=CONFIG)
    with pytest.raises(ValueError, match=words):
        nsa_attention(**{**x, **change(x)}, config=CONFIG)


def test_which_arguments_are_one_tensor_is_a_fact(looked_at: list[str]) -> None:
    """The same layouts in the same order, but another tensor given twice."""
    narrow, wide = torch.randn(1, 19, 2, 3), torch.randn(1, 19, 2, 16)
    nsa_attention(narrow, narrow, wide, narrow.clone(), CONFIG)
    with pytest.raises(ValueError, match="agree in B and Dk"):
        nsa_attention(narrow, wide, narrow.clone(), narrow, CONFIG)
    assert len(looked_at) == 2


def test_what_tensors_hold_is_looked_at_each_time(looked_at: list[str]) -> None:
    for border in (5, 9):
        nsa_attention(**_arguments(), config=CONFIG, cu_seqlens=torch.tensor([0, border, 19], dtype=torch.int32))
    assert len(looked_at) == 2


def test_gradients_are_a_fact_of_their_own(looked_at: list[str]) -> None:
    for grad in (False, True, False):
        x = _arguments()
        x["v"].requires_grad_(grad)
        nsa_attention(**x, config=CONFIG)
    assert len(looked_at) == 2
    assert [request.needs_grad for request in attention._agreed.values()] == [False, True]


def test_a_choice_of_backends_is_the_callers_own() -> None:
    routing.per_operation("torch").clear()
    assert routing.per_operation("torch")["window"] == "torch"
