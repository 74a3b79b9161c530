"""What every operation demands of its tensors; each refusal is one sentence that names the operation."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from nsa.blocks import num_compressed, packed_compressed
from nsa.config import NSAConfig
from nsa.host import beside, numbers

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def tensor(operation: str, name: str, x: object) -> None:
    """Refuse what is no tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{operation}: {name} must be a tensor, got {type(x).__name__}")


def sizes(operation: str, config: object) -> None:
    """Refuse what is no configuration."""
    if not isinstance(config, NSAConfig):
        raise TypeError(f"{operation}: config must be an NSAConfig, got {type(config).__name__}")


def shape(operation: str, name: str, x: Tensor, expected: str) -> None:
    """Refuse what is no tensor, or one whose number of axes is not that of `expected`, such as [B,T,Hq,Dk]."""
    tensor(operation, name, x)
    if x.dim() != expected.count(",") + 1:
        raise ValueError(f"{operation}: {name} must have the shape {expected}, got {list(x.shape)}")


def alike(operation: str, **tensors: Tensor) -> None:
    """Refuse tensors of different or unsupported dtypes, or on different devices."""
    (first, x), *others = tensors.items()
    tensor(operation, first, x)
    if x.dtype not in DTYPES:
        raise ValueError(f"{operation}: {first} must be fp16, bf16, fp32 or fp64, got {x.dtype}")
    for name, y in others:
        tensor(operation, name, y)
        if (y.dtype, y.device) != (x.dtype, x.device):
            raise ValueError(
                f"{operation}: {name} ({y.dtype}, {y.device}) must have the dtype and device of {first} "
                f"({x.dtype}, {x.device})"
            )


Triple = tuple[Tensor, Tensor, Tensor]
"""What the branches (cmp, sel, win) read."""


def triple(operation: str, name: str, x: Tensor | Triple) -> Triple:
    """One tensor for all branches, three times, or a triple as it is; refuse anything else."""
    if isinstance(x, Tensor):
        return x, x, x
    if not isinstance(x, (tuple, list)):
        raise TypeError(f"{operation}: {name} must be a tensor or a triple (cmp, sel, win), got {type(x).__name__}")
    if len(x) != 3:
        raise ValueError(f"{operation}: {name} must be one tensor or a triple (cmp, sel, win), got {len(x)}")
    return tuple(x)  # type: ignore[return-value]


def attention(operation: str, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse q [B,T,Hq,Dk], k [B,Tk,Hkv,Dk], v [B,Tk,Hkv,Dv] that do not go together."""
    for name, x, expected in (("q", q, "[B,T,Hq,Dk]"), ("k", k, "[B,Tk,Hkv,Dk]"), ("v", v, "[B,Tk,Hkv,Dv]")):
        shape(operation, name, x, expected)
    alike(operation, q=q, k=k, v=v)
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"{operation}: k and v must agree in [B,Tk,Hkv], got {list(k.shape[:3])} and {list(v.shape[:3])}"
        )
    heads(operation, q, k)


def heads(operation: str, q: Tensor, k: Tensor) -> None:
    """Refuse q [B,T,Hq,Dk] and k [B,Tk,Hkv,Dk] with other batches, head dimensions, or Hq not a multiple of Hkv."""
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"{operation}: q and k must agree in B and Dk, got {list(q.shape)} and {list(k.shape)}")
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        raise ValueError(f"{operation}: Hq={q.shape[2]} must be a multiple of Hkv={k.shape[2]}")


def rotation(operation: str, dim: int, base: object) -> None:
    """Refuse a rotary embedding of an odd dimension, or of a base that is no positive number."""
    if isinstance(base, bool) or not isinstance(base, (int, float)) or not base > 0:
        raise ValueError(f"{operation}: the base of rotary positions must be a positive number, got {base!r}")
    if dim % 2:
        raise ValueError(f"{operation}: rotary positions need an even head dimension, got {dim}")


def borders(operation: str, cu_seqlens: Tensor | None, like: Tensor) -> Tensor | None:
    """Borders of packed sequences as the kernels read them, int32 beside `like`; refuse what are no whole numbers."""
    if cu_seqlens is None or not isinstance(like, Tensor):  # which is refused with the others
        return cu_seqlens
    tensor(operation, "cu_seqlens", cu_seqlens)
    if cu_seqlens.dim() != 1 or cu_seqlens.dtype not in (torch.int32, torch.int64) or cu_seqlens.numel() == 0:
        raise ValueError(
            f"{operation}: cu_seqlens must be int32 or int64 [N+1], got {cu_seqlens.dtype} {list(cu_seqlens.shape)}"
        )
    return beside(cu_seqlens, like.device)


def packing(operation: str, tokens: int, batch: int, cu_seqlens: Tensor) -> None:
    """Refuse borders that are not from 0 to T, never falling, of a batch of one."""
    if batch != 1:
        raise ValueError(f"{operation}: packed sequences need B=1, got B={batch}")
    ends = numbers(cu_seqlens)
    if ends[0] != 0 or ends[-1] != tokens or any(a > b for a, b in pairwise(ends)):
        raise ValueError(f"{operation}: cu_seqlens must rise from 0 to T={tokens}, got {ends}")


def positions(operation: str, q: Tensor, keys: int, cu_seqlens: Tensor | None, q_start: Tensor | None) -> None:
    """Refuse queries that do not stand on the key axis of length `keys`."""
    batch, tokens = q.shape[:2]
    if q_start is not None:
        _starts(operation, batch, tokens, keys, cu_seqlens, q_start)
        return
    if tokens != keys:
        raise ValueError(f"{operation}: q has {tokens} tokens and k has {keys}; without q_start they agree")
    if cu_seqlens is not None:
        packing(operation, tokens, batch, cu_seqlens)


def _starts(operation: str, batch: int, tokens: int, keys: int, cu_seqlens: Tensor | None, q_start: Tensor) -> None:
    if cu_seqlens is not None:
        raise ValueError(f"{operation}: give cu_seqlens or q_start, not both")
    tensor(operation, "q_start", q_start)
    if q_start.shape != (batch,) or q_start.is_floating_point():
        raise ValueError(f"{operation}: q_start must be integers [B={batch}], got {list(q_start.shape)}")
    starts = q_start.tolist()
    if any(start < 0 or start + tokens > keys for start in starts):
        raise ValueError(f"{operation}: queries at q_start={starts} with {tokens} tokens do not fit in {keys} keys")


def compressed_positions(
    operation: str,
    q: Tensor,
    count: int,
    config: NSAConfig,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
) -> None:
    """Refuse a compressed axis of length `count` that does not belong to the queries' sequences.

    With q_start it may be longer than what the last query sees (a cache with room).
    """
    batch, tokens = q.shape[:2]
    if q_start is not None:
        _starts(operation, batch, tokens, 2**62, cu_seqlens, q_start)
        needed = num_compressed(tokens + max(q_start.tolist(), default=0), config)
    elif cu_seqlens is not None:
        packing(operation, tokens, batch, cu_seqlens)
        needed = packed_compressed(numbers(cu_seqlens), config)
    else:
        needed = num_compressed(tokens, config)
    if count < needed or (q_start is None and count != needed):
        raise ValueError(f"{operation}: k_cmp must hold {needed} compressed tokens, got {count}")


def compressed(
    operation: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    given: tuple[Tensor, Tensor],
    config: NSAConfig,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
) -> None:
    """Refuse anything but the compressed tokens [B,Tc,Hkv,D*] of k [B,Tk,Hkv,Dk] and v [B,Tk,Hkv,Dv]."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ValueError(f"{operation}: compressed must be a pair (k_cmp, v_cmp)")
    for name, x, of in zip(("k_cmp", "v_cmp"), given, (k, v), strict=True):
        shape(operation, name, x, "[B,Tc,Hkv,D]")
        expected = [of.shape[0], given[0].shape[1], *of.shape[2:]]
        if list(x.shape) != expected:
            raise ValueError(f"{operation}: {name} must have the shape {expected}, got {list(x.shape)}")
        alike(operation, q=q, **{name: x})
    compressed_positions(operation, q, given[0].shape[1], config, cu_seqlens, q_start)


def block_indices(operation: str, indices: Tensor, q: Tensor, kv_heads: int) -> None:
    """Refuse indices that are not integers [B,T,Hkv,n] on q's device."""
    tensor(operation, "block_indices", indices)
    expected = [*q.shape[:2], kv_heads]
    if indices.dim() != 4 or list(indices.shape[:3]) != expected:
        b, t, h = expected
        raise ValueError(
            f"{operation}: block_indices must have the shape [B={b},T={t},Hkv={h},n], got {list(indices.shape)}"
        )
    if indices.dtype not in (torch.int32, torch.int64) or indices.device != q.device:
        raise ValueError(
            f"{operation}: block_indices must be int32 on {q.device}, got {indices.dtype} on {indices.device}"
        )


def gates(operation: str, gate: Tensor, o: Tensor) -> None:
    """Refuse gates that are not [B,T,Hq,3] for an output (or a query) [B,T,Hq,D]."""
    tensor(operation, "gates", gate)
    if list(gate.shape) != [*o.shape[:3], 3]:
        raise ValueError(
            f"{operation}: gates must have the shape {[*o.shape[:3], 3]} (cmp, sel, win), got {list(gate.shape)}"
        )
