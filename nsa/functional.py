# mypy: disable-error-code="empty-body"
"""The steps of Native Sparse Attention, one public function each; the same names exist in `nsa.reference`.

Signatures only; all raise what `nsa_attention` does. What an operation demands is in `nsa.checks`, how a call becomes
a backend's in `nsa.operations` (the whole: `nsa.attention`), which backend computes in `nsa.routing`, and the backends
are `nsa.kernels.backend`, `nsa.fallback.torch` and `nsa.providers`.
"""

from __future__ import annotations

from torch import Tensor

from nsa import routing
from nsa.attention import Attention, AttentionPlan
from nsa.checks import Triple
from nsa.config import NSAConfig
from nsa.operations import OPERATIONS, operation
from nsa.phi import Phi
from nsa.routing import WHOLE

Output = Tensor | tuple[Tensor, Triple]
"""o, or o and the lse of each branch."""


@operation(WHOLE, ("q", "k", "v"), of=Attention, judged=True)
def nsa_attention(
    q: Tensor, k: Tensor | Triple, v: Tensor | Triple, gates: Tensor, config: NSAConfig = NSAConfig(), *,
    compressed: tuple[Tensor, Tensor] | None = None, compressed_rope: float | None = None, scale: float | None = None,
    cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None,
    block_indices: Tensor | None = None, backend: routing.BackendChoice = None, strict: bool = False,
    deterministic: bool = False, return_lse: bool = False,
) -> Output:  # fmt: skip
    """Compressed, selected and window attention, summed under the gates (Eq. 5).

    Args:
        q: [B,T,Hq,Dk], fp16, bf16, fp32 or fp64. All tensors here are of its dtype and on its device, but for borders,
            positions and blocks.
        k, v: one tensor [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv] for all branches, or a triple (cmp, sel, win).
        gates: [B,T,Hq,3] in (cmp, sel, win) order, already activated.
        config: the sizes.
        compressed: (k_cmp, v_cmp) [B,Tc,Hkv,D*] instead of the mean of the cmp keys and values.
        compressed_rope: base of a rotary embedding (as `nsa.ops.rotate`) of the means of keys: that of a span is turned
            at the span's first position, i*d, and the cmp keys are given unrotated. Not with `compressed`.
        scale: of the logits; default Dk**-0.5.
        cu_seqlens: borders of packed sequences, int32 or int64 [N+1]; B is 1. Padded batches: pack them.
        cu_seqlens_k: borders of their keys and values, where these hold earlier tokens too (chunked prefill): the
            queries of each sequence are its last tokens. Default `cu_seqlens`, and then T = Tk.
        q_start: integers [B], the position of each entry's first query when k and v hold earlier tokens too
            (chunked prefill); default 0, and then T = Tk.
        block_indices: int32 or int64 [B,T,Hkv,n] instead of the selection; checked.
        backend: a backend for every operation that it has, or a mapping from operation to backend; one that cannot
            run is a `nsa.routing.RoutingError`.
        strict: so is what cannot run of a flag's request, or of the device's own order.
        deterministic: gradients are bitwise repeatable, as `torch.use_deterministic_algorithms` asks for too. On
            sm_90 that takes longer (docs/kernels.md).
        return_lse: give the branches' log-sum-exps too.

    Returns:
        o [B,T,Hq,Dv]; with return_lse also (lse_cmp, lse_sel, lse_win), each [B,T,Hq], at least fp32, natural log,
        -inf where nothing is visible; not differentiable.

    Raises:
        ValueError: arguments that do not go together; the sentence says which.
        TypeError: an argument of another type.
        nsa.routing.RoutingError: a backend that was named, or with `strict` the first choice, cannot run.
    """


def plan(*args: object, **kwargs: object) -> AttentionPlan:
    """Plan calls of one kind of `nsa_attention`: what they need is made here, and owned by who keeps the plan.

    Takes what `nsa_attention` takes. The operation, and its gradient if one is wanted, are run twice with these
    tensors: compiled, then recorded. `plan.run(q, k, v, gates, ...)` then only allocates and launches, also inside a
    CUDA graph.

    Returns:
        the plan: `run`, and `request` and `decision`, which say what computes the calls and why.

    Raises:
        ValueError, TypeError, nsa.routing.RoutingError: as `nsa_attention`.
    """
    return AttentionPlan(OPERATIONS["nsa_attention"].bound(args, kwargs))


@operation("rotate", ("x", "x", "x"))
def rotate(
    x: Tensor, positions: Tensor, base: float, *, backend: routing.BackendChoice = None, strict: bool = False
) -> Tensor:
    """Rotary position embedding with halves paired: dimension i turns with dimension i + D/2 (`nsa.rope`).

    Args:
        x: queries or keys [B,T,H,D], D even; any strides.
        positions: int32 or int64 [B,T], or [1,T] for all batch entries, beside x.
        base: of the geometric series of wavelengths.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        [B,T,H,D], contiguous.
    """


@operation("compress", ("x", "x", "x"))
def compress(
    x: Tensor, config: NSAConfig = NSAConfig(), *, phi: Phi | None = None, cu_seqlens: Tensor | None = None,
    backend: routing.BackendChoice = None, strict: bool = False,
) -> Tensor:  # fmt: skip
    """One compressed token for each complete span [i*d, i*d+l) (Eq. 7).

    Args:
        x: keys or values [B,T,Hkv,D], not rotated.
        config: the sizes.
        phi: a learned map, an `nsa.phi.WeightedPhi` or `nsa.phi.MlpPhi`; None is the mean.
        cu_seqlens: borders of packed sequences, int32 or int64 [N+1]; B is 1.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        [B,Tc,Hkv,D]; packed: the segments' compressed tokens in order (borders: `nsa.blocks.cu_seqlens_cmp`).
    """


@operation("compressed", ("q", "k_cmp", "v_cmp"), judged=True)
def compressed_attention(
    q: Tensor, k_cmp: Tensor, v_cmp: Tensor, config: NSAConfig = NSAConfig(), *, scale: float | None = None,
    cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None,
    backend: routing.BackendChoice = None, strict: bool = False, deterministic: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of each query to the compressed tokens it sees: i*d + l - 1 <= t.

    Args:
        q: [B,T,Hq,Dk].
        k_cmp, v_cmp: [B,Tc,Hkv,Dk], [B,Tc,Hkv,Dv], as `compress` makes them.
        config: the sizes.
        scale: of the logits; default Dk**-0.5.
        cu_seqlens: borders of packed queries, int32 or int64 [N+1]; B is 1.
        cu_seqlens_k: borders of the tokens that were compressed, where there are more: see `nsa.nsa_attention`.
        q_start: integers [B], the position of each entry's first query (chunked prefill, decode); default 0.
        backend, strict, deterministic: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv], exactly 0 with zero gradient where nothing is visible, and
        lse [B,T,Hq], at least fp32, natural log, -inf there; not differentiable.
    """


@operation("select", ("q", "k_cmp"), differentiable=False)
def select_blocks(
    q: Tensor, k_cmp: Tensor, config: NSAConfig = NSAConfig(), *, scale: float | None = None,
    cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None,
    lse: Tensor | None = None, backend: routing.BackendChoice = None, strict: bool = False,
) -> Tensor:  # fmt: skip
    """The blocks that each query and KV head reads (Eq. 8 to 11): forced ones, then by score, ties to the lower index.

    Args:
        q, k_cmp, config, scale, cu_seqlens, cu_seqlens_k, q_start: as in `compressed_attention`.
        lse: [B,T,Hq] of `compressed_attention` with the same arguments, to save computing it again.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        int32 [B,T,Hkv,n_sel], relative to the query's own sequence, ascending, -1 padded at the end. Not
        differentiable.
    """


@operation("selected", ("q", "k", "v"), judged=True)
def selected_attention(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig = NSAConfig(), *,
    scale: float | None = None, cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
    q_start: Tensor | None = None, validate: bool = True, backend: routing.BackendChoice = None, strict: bool = False,
    deterministic: bool = False, return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of each query to the positions <= t of its blocks (Eq. 12).

    Args:
        q, k, v: [B,T,Hq,Dk], [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv].
        block_indices: int32 or int64 [B,T,Hkv,n], relative to the query's own sequence; -1 anywhere is padding.
        config: the sizes.
        scale, cu_seqlens, cu_seqlens_k, q_start: as in `nsa.nsa_attention`.
        validate: refuse duplicate, future or out-of-range blocks; this waits for the device. False only for
            indices that come from `select_blocks`.
        backend, strict, deterministic, return_lse: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv]; a row of -1 gives exactly 0 with zero gradient. With return_lse also lse [B,T,Hq], at least
        fp32, natural log, -inf for such a row; not differentiable.
    """


@operation("window", ("q", "k", "v"), judged=True)
def sliding_window_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int, *, scale: float | None = None, cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None, backend: routing.BackendChoice = None,
    strict: bool = False, deterministic: bool = False, return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of each query to the positions (t - window, t]: `window` keys, its own included.

    Args:
        q, k, v: [B,T,Hq,Dk], [B,Tk,Hkv,Dk], [B,Tk,Hkv,Dv].
        window: at least 1.
        scale, cu_seqlens, cu_seqlens_k, q_start: as in `nsa.nsa_attention`.
        backend, strict, deterministic, return_lse: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv]; with return_lse also lse [B,T,Hq], at least fp32, natural log; not differentiable.
    """


@operation("combine", ("o_cmp",))
def gated_combine(
    o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor, *, backend: routing.BackendChoice = None,
    strict: bool = False,
) -> Tensor:  # fmt: skip
    """Each branch's output times its gate, summed (Eq. 5).

    Args:
        o_cmp, o_sel, o_win: [B,T,Hq,Dv].
        gates: [B,T,Hq,3] in (cmp, sel, win) order, already activated.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv].
    """
