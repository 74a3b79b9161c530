"""A small decoder-only language model on bytes, and text from it, one token at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from nsa import checks
from nsa.cache import NSACache
from nsa.config import NSAConfig
from nsa.layer import NativeSparseAttention
from nsa.models.dense import DenseAttention

ATTENTIONS = ("nsa", "dense")


@dataclass(frozen=True)
class LMConfig:
    """Sizes of the model.

    Attributes:
        dim, depth: width and number of layers.
        n_heads, n_kv_heads, dk, dv: heads of the attention, and dimension of their keys and values.
        hidden: units of the feed-forward layer.
        vocabulary: number of tokens; 256 for bytes.
        attention: `nsa` or `dense`.
        nsa: sizes of the sparse branches.
        phi, gate, shared_kv, rope_base: see `nsa.NativeSparseAttention`.
    """

    dim: int = 128
    depth: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    dk: int = 32
    dv: int = 32
    hidden: int = 256
    vocabulary: int = 256
    attention: str = "nsa"
    nsa: NSAConfig = field(default_factory=lambda: NSAConfig(l=16, d=8, l_sel=32, n_sel=4, w=64))
    phi: str = "mlp"
    gate: str = "sigmoid"
    shared_kv: bool = False
    rope_base: float = 10000.0

    def __post_init__(self) -> None:
        checks.counts("LMConfig", dim=self.dim, depth=self.depth, hidden=self.hidden, vocabulary=self.vocabulary)
        if self.attention not in ATTENTIONS:
            raise ValueError(f"LMConfig: attention must be one of {', '.join(ATTENTIONS)}, got {self.attention!r}")

    def make_attention(self) -> nn.Module:
        shape = (self.dim, self.n_heads, self.n_kv_heads)
        if self.attention == "dense":
            return DenseAttention(*shape, self.dk, self.dv, self.rope_base)
        return NativeSparseAttention(
            *shape, self.nsa, dk=self.dk, dv=self.dv, phi=self.phi, gate=self.gate, shared_kv=self.shared_kv,
            rope_base=self.rope_base,
        )  # fmt: skip


class Block(nn.Module):
    """Attention, then a feed-forward layer, each on normalised input and added to it."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention = config.make_attention()
        self.feed_norm = nn.LayerNorm(config.dim)
        self.feed = nn.Sequential(nn.Linear(config.dim, config.hidden), nn.GELU(), nn.Linear(config.hidden, config.dim))

    def forward(self, x: Tensor, cache: NSACache | None, **where: object) -> Tensor:
        """x [B,T,dim] -> [B,T,dim]; `where` goes to the attention."""
        x = x + self.attention(self.attention_norm(x), cache, **where)
        return x + self.feed(self.feed_norm(x))


class ByteEmbedding(nn.Embedding):
    """An embedding that also scores outputs, so its rows begin with length one."""

    def reset_parameters(self) -> None:
        """Independent normals."""
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)


class ByteLM(nn.Module):
    """Tokens [B,T] -> logits [B,T,vocabulary] of the next ones; input and output embedding are one."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = ByteEmbedding(config.vocabulary, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim)

    def forward(
        self, tokens: Tensor, caches: Sequence[NSACache] | None = None, *, counts: Sequence[int] | Tensor | None = None,
        cu_seqlens: Tensor | None = None, checkpoint: Callable[..., Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """Logits of every token's successor.

        Args:
            tokens: integers [B,T], or their embeddings [B,T,dim]; with caches, those that follow what they hold.
            caches: of `new_caches`, one for each layer.
            counts: with caches, integers [B]: of entry b only the first counts[b] tokens are real.
            cu_seqlens: borders of packed sequences [N+1]; B is 1, and there are no caches.
            checkpoint: calls a layer, given first, with its arguments, such as `torch.utils.checkpoint.checkpoint`.
        """
        given = {"counts": counts, "cu_seqlens": cu_seqlens}
        where = {name: x for name, x in given.items() if x is not None}
        x = tokens if tokens.is_floating_point() else self.embed(tokens)
        for index, block in enumerate(self.blocks):
            layer = partial(block, cache=None if caches is None else caches[index], **where)
            x = layer(x) if checkpoint is None else checkpoint(layer, x)
        return self.norm(x) @ self.embed.weight.T

    def new_caches(self, batch: int, capacity: int = 1024) -> list[NSACache]:
        """An empty cache for each layer.

        Raises:
            ValueError: the attention is dense.
        """
        if self.config.attention != "nsa":
            raise ValueError("ByteLM: dense attention has no cache; generate with use_cache=False")
        return [block.attention.new_cache(batch, capacity) for block in self.blocks]


# --- generation ---


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

    Raises:
        ValueError: a prompt, a length or a temperature that has no meaning; the sentence says which.
    """
    if prompt.dim() != 2 or prompt.shape[1] == 0 or prompt.is_floating_point():
        found = f"{prompt.dtype} {list(prompt.shape)}"
        raise ValueError(f"generate: the prompt must be integers [B,T] with a token at least, got {found}")
    if length < 0:
        raise ValueError(f"generate: length must be at least 0, got {length}")
    if not temperature >= 0:
        raise ValueError(f"generate: temperature must be at least 0, got {temperature}")
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
