"""Text from a model, one token at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from nsa.models.lm import ByteLM


@torch.inference_mode()
def generate(
    model: ByteLM, prompt: Tensor, length: int, *, use_cache: bool = True, temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:  # fmt: skip
    """Continue a prompt.

    Args:
        model: the model.
        prompt: integers [B,T], T at least 1.
        length: number of new tokens.
        use_cache: keep keys and values, else compute everything again for each token; the text is the same.
        temperature: 0 takes the likeliest token, else tokens are drawn.
        generator: of the draws.

    Returns:
        the new tokens [B,length].
    """
    if prompt.dim() != 2 or prompt.shape[1] == 0:
        raise ValueError(f"generate: the prompt must be [B,T] with a token at least, got {list(prompt.shape)}")
    caches = model.new_caches(len(prompt), prompt.shape[1] + length) if use_cache else None
    text = fresh = prompt
    for _ in range(length):
        logits = model(fresh if use_cache else text, caches)[:, -1]
        fresh = _choose(logits, temperature, generator)
        text = torch.cat([text, fresh], dim=1)
    return text[:, prompt.shape[1] :]


def _choose(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """The next token [B,1] from logits [B,vocabulary]."""
    if temperature == 0.0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits.float() / temperature).softmax(-1), 1, generator=generator)
