"""The byte-level language model: causal, the same text with and without a cache, learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nsa import NSAConfig
from nsa.models import ByteLM, LMConfig, generate

SMALL = LMConfig(
    dim=32, depth=2, n_heads=4, n_kv_heads=2, dk=8, dv=6, hidden=32, nsa=NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=13)
)


def model(**changes: object) -> ByteLM:
    torch.manual_seed(0)
    return ByteLM(replace(SMALL, **changes)).double()


def tokens(length: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(0, 256, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("phi, gate, shared_kv", [("mlp", "sigmoid", False), ("mean", "softmax", True)])
def test_a_cache_gives_the_same_logits_and_text(phi: str, gate: str, shared_kv: bool) -> None:
    lm, text = model(phi=phi, gate=gate, shared_kv=shared_kv), tokens(60)
    caches = lm.new_caches(2, capacity=8)
    pieces = [lm(text[:, start:end], caches) for start, end in ((0, 30), (30, 31), (31, 60))]
    torch.testing.assert_close(torch.cat(pieces, 1), lm(text), rtol=0, atol=1e-11)
    found = [generate(lm, text[:, :20], 24, use_cache=use) for use in (True, False)]
    assert torch.equal(*found) and found[0].shape == (2, 24)


def test_drawn_text_is_repeatable_and_varies() -> None:
    lm, prompt = model(), tokens(9)
    drawn = [
        generate(lm, prompt, 12, use_cache=use, temperature=1.0, generator=torch.Generator().manual_seed(seed))
        for use, seed in ((True, 3), (False, 3), (True, 4))
    ]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_later_tokens_change_nothing_before_them(attention: str) -> None:
    lm, text = model(attention=attention), tokens(40)
    other = text.clone()
    other[:, 25:] = (other[:, 25:] + 1) % 256
    assert torch.equal(lm(text)[:, :25], lm(other)[:, :25])


def test_prompts_of_different_lengths() -> None:
    lm, text = model(), tokens(50)
    caches = lm.new_caches(2)
    padded = text[:, :30].clone()
    padded[1, 12:] = 0
    logits = lm(padded, caches, counts=[30, 12])
    step = lm(torch.stack([text[0, 30:31], text[1, 12:13]]), caches)
    torch.testing.assert_close(step[0, 0], lm(text[:1, :31])[0, -1], rtol=0, atol=1e-11)
    torch.testing.assert_close(step[1, 0], lm(text[1:, :13])[0, -1], rtol=0, atol=1e-11)
    torch.testing.assert_close(logits[1, 11], lm(text[1:, :12])[0, -1], rtol=0, atol=1e-11)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="attention must be one of nsa, dense"):
        LMConfig(attention="linear")
    with pytest.raises(ValueError, match="use_cache=False"):
        generate(model(attention="dense"), tokens(3), 1)
    with pytest.raises(ValueError, match="LMConfig: dim must be at least 1, got 0"):
        LMConfig(dim=0)
    for prompt in (tokens(0), tokens(3).float()):
        with pytest.raises(ValueError, match=r"must be integers .* with a token at least"):
            generate(model(), prompt, 1)
    with pytest.raises(ValueError, match="length must be at least 0, got -1"):
        generate(model(), tokens(3), -1)
    for temperature in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"temperature must be at least 0, got {temperature}"):
            generate(model(), tokens(3), 1, temperature=temperature)
