"""Native Sparse Attention as a layer: projections, rotary positions, gates, three branches, a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nsa import blocks, checks, ops, routing
from nsa.cache import NSACache, Triple, check_cache
from nsa.compressors import Compressor, MeanCompressor
from nsa.config import NSAConfig
from nsa.host import int32_on
from nsa.phi import MlpPhi, Phi, WeightedPhi

NAME = "NativeSparseAttention"
GATES = ("sigmoid", "softmax")


class Compression(nn.Module):
    """A learned compression. It is called as a module: who wraps modules (FSDP, an offloader) then sees its weights
    used.
    """

    def phi(self, dtype: torch.dtype) -> Phi:
        """The map in the dtype of its inputs."""
        raise NotImplementedError

    def forward(self, x: Tensor, config: NSAConfig, **how: Any) -> Tensor:
        """Compressed tokens [B,Tc,Hkv,D] of x [B,T,Hkv,D]; `how` as `nsa.ops.compress` takes it."""
        return ops.compress(x, config, phi=self.phi(x.dtype), **how)


class WeightedCompression(Compression):
    """A learned weight for each token of a span; begins as the mean."""

    def __init__(self, n_kv_heads: int, l: int, dim: int) -> None:  # noqa: E741  the paper's symbol
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_kv_heads, l))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The mean."""
        nn.init.constant_(self.weight, 1.0 / self.weight.shape[1])

    def phi(self, dtype: torch.dtype) -> Phi:
        return WeightedPhi(self.weight.to(dtype))


class MlpCompression(Compression):
    """An MLP of the span with intra-block position embedding, one for each KV head; `dim` hidden units."""

    def __init__(self, n_kv_heads: int, l: int, dim: int) -> None:  # noqa: E741  the paper's symbol
        super().__init__()
        self.position = nn.Parameter(torch.empty(n_kv_heads, l, dim))
        self.w_in = nn.Parameter(torch.empty(n_kv_heads, l * dim, dim))
        self.b_in = nn.Parameter(torch.empty(n_kv_heads, dim))
        self.w_out = nn.Parameter(torch.empty(n_kv_heads, dim, dim))
        self.b_out = nn.Parameter(torch.empty(n_kv_heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Outputs as large as the inputs."""
        nn.init.normal_(self.position, std=0.02)
        for weight in (self.w_in, self.w_out):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        for bias in (self.b_in, self.b_out):
            nn.init.zeros_(bias)

    def phi(self, dtype: torch.dtype) -> Phi:
        return MlpPhi(*(x.to(dtype) for x in (self.position, self.w_in, self.b_in, self.w_out, self.b_out)))


COMPRESSIONS = {"mean": None, "weighted": WeightedCompression, "mlp": MlpCompression}


class _LearnedCompressor:
    """A layer's learned compression as its caches call it. It is no bound method: whose these are, compilers lose.

    A pickled one holds no layer, as no tensor of a cache is a weight: it is of the first layer of its kind that uses
    the cache.
    """

    def __init__(self, phi: str, layer: NativeSparseAttention | None = None) -> None:
        self.phi, self.layer = phi, layer

    def __call__(self, k: Tensor, v: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Compressed tokens, as an `nsa.cache.Compressor`."""
        if self.layer is None:
            raise ValueError("NSACache: a cache that was pickled goes on by a call of its layer")
        return self.layer._compress(k, v, first)

    def is_of(self, layer: NativeSparseAttention) -> bool:
        """Whether the cache is this layer's."""
        if self.layer is None and self.phi == layer.phi:
            self.layer = layer
        return self.layer is layer

    def __reduce__(self) -> tuple[type[_LearnedCompressor], tuple[str]]:
        return _LearnedCompressor, (self.phi,)

    def __deepcopy__(self, memo: dict[int, Any]) -> _LearnedCompressor:
        """That of the same layer, whose weights are not copied, or of its copy, where that was made before."""
        return _LearnedCompressor(self.phi, memo.get(id(self.layer), self.layer))


class NativeSparseAttention(nn.Module):
    """Causal self-attention [B,T,dim] -> [B,T,dim] with compressed, selected and window branches.

    Queries, and the keys of the selected and window branch, are rotated at their own positions; compressed keys
    are made from unrotated keys and rotated at the first position of their span (i*d).
    """

    def __init__(
        self, dim: int, n_heads: int, n_kv_heads: int, config: NSAConfig | None = None, *, dk: int | None = None,
        dv: int | None = None, phi: str = "mean", gate: str = "sigmoid", shared_kv: bool = False,
        rope_base: float | None = 10000.0, bias: bool = False, backend: routing.BackendChoice = None,
        strict: bool = False, deterministic: bool = False,
    ) -> None:  # fmt: skip
        """Make the layer.

        Args:
            dim: of the model.
            n_heads, n_kv_heads: Hq and Hkv; Hkv divides Hq.
            config: the sizes of the branches.
            dk, dv: of a head; dk defaults to dim // n_heads, dv to dk.
            phi: the compression: `mean`, `weighted` or `mlp`.
            gate: `sigmoid` for each head and branch (the paper), or `softmax` over the branches for each KV head.
            shared_kv: one projection of keys and values for all branches instead of one for each.
            rope_base: of the rotary embedding; None leaves positions out.
            bias: of the projections of queries, keys, values and output.
            backend, strict, deterministic: see `nsa.nsa_attention`; stronger than any flag.

        Raises:
            ValueError: sizes or names that have no meaning.
            TypeError: another type.
        """
        super().__init__()
        given = {name: size for name, size in (("dk", dk), ("dv", dv)) if size is not None}
        checks.counts(NAME, dim=dim, n_heads=n_heads, n_kv_heads=n_kv_heads, **given)
        dk = dim // n_heads if dk is None else dk
        dv = dk if dv is None else dv
        _check(n_heads, n_kv_heads, dk, phi, gate, rope_base)
        self.config = NSAConfig() if config is None else config
        checks.sizes(NAME, self.config)
        routing.per_operation(backend)  # which refuses what is none
        self.dim, self.n_heads, self.n_kv_heads, self.dk, self.dv = dim, n_heads, n_kv_heads, dk, dv
        self.phi, self.gate, self.shared_kv, self.rope_base = phi, gate, shared_kv, rope_base
        self.backend, self.strict, self.deterministic = backend, strict, deterministic
        branches = 1 if shared_kv else 3
        self.to_q = nn.Linear(dim, n_heads * dk, bias=bias)
        self.to_k = nn.Linear(dim, branches * n_kv_heads * dk, bias=bias)
        self.to_v = nn.Linear(dim, branches * n_kv_heads * dv, bias=bias)
        self.to_gates = nn.Linear(dim, 3 * (n_heads if gate == "sigmoid" else n_kv_heads))
        self.to_out = nn.Linear(n_heads * dv, dim, bias=bias)
        learned = COMPRESSIONS[phi]
        self.compress_k = None if learned is None else learned(n_kv_heads, self.config.l, dk)
        self.compress_v = None if learned is None else learned(n_kv_heads, self.config.l, dv)

    def forward(
        self, x: Tensor, cache: NSACache | None = None, *, cu_seqlens: Tensor | None = None,
        counts: Sequence[int] | Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Attention of x [B,T,dim] to itself and to what the cache holds.

        Args:
            x: the tokens; with a cache, those that follow its own (a backward pass is an error then).
            cache: of `new_cache`; takes the tokens in.
            cu_seqlens: borders of packed sequences, int32 or int64 [N+1]; B is 1, and there is no cache.
            counts: with a cache, integers [B]: of entry b only the first counts[b] tokens are real.

        Returns:
            [B,T,dim].

        Raises:
            ValueError, TypeError, nsa.routing.RoutingError: as `nsa.nsa_attention`; a cache that is not this layer's.
        """
        self._check_call(x, cache, cu_seqlens, counts)
        if cu_seqlens is not None:
            checks.borders(NAME, cu_seqlens, x)
            cu_seqlens = int32_on(cu_seqlens, x.device)
        q, k, v, gates = self.project(x, _positions(x, cache, cu_seqlens))
        if cache is not None:
            o = ops.nsa_decode(q, k, v, gates, cache, counts=counts, backend=self.backend, strict=self.strict)
        else:
            compressed = None if self.compress_k is None else self._compress(k[0], v[0], cu_seqlens=cu_seqlens)
            o = ops.nsa_attention(
                q, k, v, gates, self.config, compressed=compressed,
                compressed_rope=self.rope_base if compressed is None else None, cu_seqlens=cu_seqlens,
                backend=self.backend, strict=self.strict, deterministic=self.deterministic,
            )  # fmt: skip
        return self.to_out(o.flatten(2))

    def new_cache(
        self, batch: int, capacity: int = 1024, *, dtype: torch.dtype | None = None, page_size: int | None = None
    ) -> NSACache:
        """An empty cache for this layer, on its device, of `batch` sequences.

        Args:
            batch, capacity, page_size: see `nsa.NSACache`; what does not fit makes the buffers grow.
            dtype: of keys and values; default that of the layer's weights, where these are quantised that of its other
                parameters, else PyTorch's own.
        """
        parameters = (x for x in (*self.to_k.parameters(), *self.parameters()) if x.is_floating_point())
        like = next(parameters, torch.empty(0))
        compress: Compressor = _LearnedCompressor(self.phi, self)
        if self.compress_k is None:
            compress = MeanCompressor(self.config, self.rope_base, routing.per_operation(self.backend), self.strict)
        return NSACache(
            self.config, batch, self.n_kv_heads, self.dk, self.dv, capacity=capacity, page_size=page_size,
            dtype=like.dtype if dtype is None else dtype, device=like.device, compress=compress,
        )  # fmt: skip

    def _check_call(
        self, x: Tensor, cache: NSACache | None, cu_seqlens: Tensor | None, counts: Sequence[int] | Tensor | None
    ) -> None:
        checks.axes(NAME, ("x", x, "B,T,dim"), dim=self.dim)
        if cache is None:
            if counts is not None:
                raise ValueError(f"{NAME}: counts are of a step with a cache")
            return
        check_cache(NAME, cache)
        if cu_seqlens is not None:
            raise ValueError(f"{NAME}: give a cache or cu_seqlens, not both")
        if cache.batch != x.shape[0]:
            raise ValueError(f"{NAME}: x has B={x.shape[0]} and the cache has {cache.batch} sequences")
        if self.compress_k is None:
            same = cache.mean is not None and cache.mean.base == self.rope_base
        else:
            same = isinstance(cache.compress, _LearnedCompressor) and cache.compress.is_of(self)
        if cache.config != self.config or not same:
            raise ValueError(f"{NAME}: the cache must be one of new_cache, with this layer's config and compression")

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Triple, Triple, Tensor]:
        """q [B,T,Hq,dk], the branches' k and v [B,T,Hkv,d*] and gates [B,T,Hq,3] of x [B,T,dim] at positions [B,T].

        The selected and window keys are rotated, the compressed branch's are not.
        """
        q = self._turned(self.to_q(x).unflatten(-1, (self.n_heads, self.dk)), positions)
        k_cmp, k_sel, k_win = self._split(self.to_k(x), self.dk)
        k_sel = self._turned(k_sel, positions)
        k_win = k_sel if self.shared_kv else self._turned(k_win, positions)
        return q, (k_cmp, k_sel, k_win), self._split(self.to_v(x), self.dv), self.gates(x).to(q.dtype)

    def gates(self, x: Tensor) -> Tensor:
        """The activated gates [B,T,Hq,3] of x [B,T,dim]."""
        logits = self.to_gates(x).unflatten(-1, (-1, 3))
        if self.gate == "sigmoid":
            return logits.sigmoid()
        return logits.softmax(-1).repeat_interleave(self.n_heads // self.n_kv_heads, dim=2)

    def _split(self, projected: Tensor, dim: int) -> Triple:
        """A projection as the branches' tensors [B,T,Hkv,dim]."""
        parts = projected.unflatten(-1, (-1, self.n_kv_heads, dim)).unbind(2)
        return parts * 3 if self.shared_kv else parts

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys [B,T,H,dk], rotated if the layer rotates."""
        if self.rope_base is None:
            return x
        return ops.rotate(x, positions, self.rope_base, **self._plain)

    def _compress(
        self, k: Tensor, v: Tensor, first: Tensor | None = None, cu_seqlens: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compressed keys, rotated, and values by the learned maps; row 0 of k, v stands at first[b], or at 0."""
        k_cmp, v_cmp = (
            learned(x, self.config, cu_seqlens=cu_seqlens, **self._plain)
            for x, learned in ((k, self.compress_k), (v, self.compress_v))
        )
        at = blocks.compressed_positions(k_cmp.shape[1], self.config, cu_seqlens, k.device)
        return self._turned(k_cmp, at if first is None else first[:, None] + at), v_cmp

    @property
    def _plain(self) -> dict[str, Any]:
        """How the single operations are routed."""
        return {"backend": routing.per_operation(self.backend), "strict": self.strict}

    def extra_repr(self) -> str:
        """The effective configuration."""
        return (
            f"heads={self.n_heads}, kv_heads={self.n_kv_heads}, dk={self.dk}, dv={self.dv}, phi={self.phi}, "
            f"gate={self.gate}, shared_kv={self.shared_kv}, rope_base={self.rope_base}, backend={self.backend}, "
            f"strict={self.strict}, deterministic={self.deterministic}, {self.config}"
        )


def _positions(x: Tensor, cache: NSACache | None, cu_seqlens: Tensor | None) -> Tensor:
    """Where the tokens x [B,T,dim] stand, int64 [B,T], or [1,T] for all batch entries."""
    if cu_seqlens is not None:
        return blocks.token_positions(*x.shape[:2], cu_seqlens=cu_seqlens)
    index = torch.arange(x.shape[1], device=x.device)[None]
    return index if cache is None else cache.lengths[:, None] + index


def _check(n_heads: int, n_kv_heads: int, dk: int, phi: str, gate: str, rope_base: float | None) -> None:
    if n_heads % n_kv_heads:
        raise ValueError(f"{NAME}: n_heads={n_heads} must be a multiple of n_kv_heads={n_kv_heads}")
    if dk < 1:
        raise ValueError(f"{NAME}: dk = dim // n_heads must be at least 1, got {dk}")
    if rope_base is not None:
        checks.rotation(NAME, dk, rope_base)
    if phi not in tuple(COMPRESSIONS):
        raise ValueError(f"{NAME}: phi must be one of {', '.join(COMPRESSIONS)}, got {phi!r}")
    if gate not in GATES:
        raise ValueError(f"{NAME}: gate must be one of {', '.join(GATES)}, got {gate!r}")
