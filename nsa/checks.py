"""What every operation demands of its tensors; each refusal is one sentence that names the operation.

The functions at the end, one for each operation, look at types and layouts only: once for calls of one kind. What the
tensors hold is looked at in each call (`values`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise
from numbers import Real

import torch
from torch import Tensor

from nsa.blocks import check_block_indices, num_compressed, packed_compressed, token_positions
from nsa.config import LARGEST, NSAConfig
from nsa.host import numbers
from nsa.library import Arguments
from nsa.phi import MlpPhi, WeightedPhi

PHIS = {type(None): "mean", WeightedPhi: "weighted", MlpPhi: "mlp"}
"""How a request names a learned map."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def tensor(operation: str, name: str, x: object) -> None:
    """Refuse what is no tensor, or one not laid out by strides."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{operation}: {name} must be a tensor, got {type(x).__name__}")
    if x.layout != torch.strided or x.is_nested:
        raise ValueError(f"{operation}: {name} must be a dense tensor, got {'nested' if x.is_nested else x.layout}")


def dense(operation: str, given: Mapping[str, object]) -> None:
    """Refuse a tensor among these, or in a list of theirs, that is not laid out by strides."""
    for name, x in given.items():
        for y in x if isinstance(x, (tuple, list)) else (x,):
            if isinstance(y, Tensor):
                tensor(operation, name, y)


def sizes(operation: str, config: object) -> None:
    """Refuse what is no configuration."""
    if not isinstance(config, NSAConfig):
        raise TypeError(f"{operation}: config must be an NSAConfig, got {type(config).__name__}")


def counts(operation: str, **numbers: object) -> None:
    """Refuse what is no integer of at least 1."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{operation}: {name} must be an integer, got {type(number).__name__}")
        if number < 1:
            raise ValueError(f"{operation}: {name} must be at least 1, got {number}")


def switch(operation: str, name: str, given: object) -> None:
    """Refuse what is neither True nor False: a word would be true, whatever it says."""
    if not isinstance(given, bool):
        raise TypeError(f"{operation}: {name} must be True or False, got {given!r}")


def scale(operation: str, q: Tensor, given: object) -> float:
    """The factor of the logits: Dk**-0.5 unless given; refuse what is no number, a tensor too."""
    if given is None:
        return float(q.shape[-1]) ** -0.5
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"{operation}: scale must be a number or None, got {given!r}")
    if not abs(given) <= sys.float_info.max:  # NaN is not, nor an integer that no float can be
        raise ValueError(f"{operation}: scale must be finite, got {given!r}")
    return float(given)


def dtype(operation: str, name: str, given: object) -> None:
    """Refuse what nothing here computes in."""
    if given not in DTYPES:
        raise ValueError(f"{operation}: {name} must be fp16, bf16, fp32 or fp64, got {given}")


def axes(operation: str, *declared: tuple[str, Tensor, str], **known: int) -> dict[str, int]:
    """Refuse what is no tensor, or one whose axes are not those declared, such as B,T,Hq,Dk: axes of one name have one
    size in all of them.

    Args:
        operation: names itself.
        declared: of each tensor its name, itself, and its axes.
        known: sizes of some axes.

    Returns:
        the size of each axis.
    """
    for name, x, expected in declared:
        tensor(operation, name, x)
        names = expected.split(",")
        found = {**dict(zip(names, x.shape, strict=False)), **known}
        if list(map(found.get, names)) != list(x.shape):
            wanted = ",".join(f"{axis}={known[axis]}" if axis in known else axis for axis in names)
            raise ValueError(f"{operation}: {name} must have the shape [{wanted}], got {list(x.shape)}")
        known = found
    return known


def indices(operation: str, name: str, x: Tensor, device: torch.device) -> None:
    """Refuse what holds no indices on this device."""
    if x.dtype not in (torch.int32, torch.int64) or x.device != device:
        raise ValueError(f"{operation}: {name} must be int32 or int64 on {device}, got {x.dtype} on {x.device}")


def alike(operation: str, **tensors: Tensor) -> None:
    """Refuse tensors of different or unsupported dtypes, or on different devices."""
    (first, x), *others = tensors.items()
    tensor(operation, first, x)
    dtype(operation, first, x.dtype)
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


def attention(operation: str, q: Tensor, k: Tensor, v: Tensor, named: tuple[str, str] = ("k", "v")) -> None:
    """Refuse q [B,T,Hq,Dk], k [B,Tk,Hkv,Dk], v [B,Tk,Hkv,Dv] that do not go together; `named`: what k and v are
    called there.
    """
    key, value = named
    found = axes(operation, ("q", q, "B,T,Hq,Dk"), (key, k, "B,Tk,Hkv,Dk"), (value, v, "B,Tk,Hkv,Dv"))
    alike(operation, q=q, **{key: k, value: v})
    heads(operation, **found)


def heads(operation: str, Hq: int, Hkv: int, Dk: int, Dv: int = 1, **others: int) -> None:
    """Refuse Hq that is no multiple of Hkv, and heads or dimensions of which there are none."""
    if Hq == 0 or Hkv == 0 or Hq % Hkv:
        raise ValueError(f"{operation}: Hq={Hq} must be a multiple of Hkv={Hkv}, and both at least 1")
    if Dk == 0 or Dv == 0:
        raise ValueError(f"{operation}: {'Dv' if Dk else 'Dk'} must be at least 1, got 0")


def holding(operation: str, name: str, x: Tensor, beside: Tensor) -> None:
    """Refuse what is no tensor, or one without memory beside one with."""
    tensor(operation, name, x)
    if x.is_meta and not beside.is_meta:
        raise ValueError(f"{operation}: {name} must hold numbers, got a tensor on {x.device}")


def borders(operation: str, given: Tensor, beside: Tensor, name: str = "cu_seqlens") -> None:
    """Refuse borders of packed sequences, of tokens on the device of `beside`, that are no whole numbers [N+1]."""
    holding(operation, name, given, beside)
    if given.dim() != 1 or given.dtype not in (torch.int32, torch.int64) or given.numel() == 0:
        raise ValueError(f"{operation}: {name} must be int32 or int64 [N+1], got {given.dtype} {list(given.shape)}")


def rotation(operation: str, dim: int, base: object) -> None:
    """Refuse a rotary embedding of an odd dimension, or of a base that is no positive number."""
    if isinstance(base, bool) or not isinstance(base, (int, float)) or not base > 0:
        raise ValueError(f"{operation}: the base of rotary positions must be a positive number, got {base!r}")
    if dim % 2:
        raise ValueError(f"{operation}: rotary positions need an even head dimension, got {dim}")


def where(operation: str, q: Tensor, keys: int | None, x: Arguments) -> None:
    """Refuse borders and positions that cannot say where the queries stand on a key axis of length `keys`, if it is
    that of tokens.
    """
    cu_seqlens, of_keys, q_start = x["cu_seqlens"], x.get("cu_seqlens_k"), x.get("q_start")
    if cu_seqlens is not None:
        borders(operation, cu_seqlens, q)
    if of_keys is not None:
        borders(operation, of_keys, q, "cu_seqlens_k")
        if cu_seqlens is None:
            raise ValueError(f"{operation}: cu_seqlens_k needs cu_seqlens, the borders of the queries")
        if of_keys.shape != cu_seqlens.shape:
            raise ValueError(
                f"{operation}: cu_seqlens_k must have the shape of cu_seqlens, {list(cu_seqlens.shape)}, got "
                f"{list(of_keys.shape)}"
            )
    if cu_seqlens is not None:
        if q_start is not None:
            raise ValueError(f"{operation}: give cu_seqlens or q_start, not both")
        if q.shape[0] != 1:
            raise ValueError(f"{operation}: packed sequences need B=1, got B={q.shape[0]}")
        if cu_seqlens.numel() == 1 and (q.shape[1] or keys):
            held = f"{q.shape[1]} tokens" + ("" if keys is None else f" and {keys} keys")
            raise ValueError(
                f"{operation}: cu_seqlens must have borders [N+1] of a sequence at least, got one for {held}"
            )
    if q_start is not None:
        holding(operation, "q_start", q_start, q)
        if q_start.shape != (q.shape[0],) or q_start.dtype not in INTEGERS:
            raise ValueError(
                f"{operation}: q_start must be integers [B={q.shape[0]}], got {q_start.dtype} {list(q_start.shape)}"
            )
    elif keys is not None and (q.shape[1] > keys or (of_keys is None and q.shape[1] != keys)):
        demand = "without q_start or cu_seqlens_k they agree" if of_keys is None else "there must not be fewer keys"
        raise ValueError(f"{operation}: q [B,T,Hq,Dk] has {q.shape[1]} tokens and k [B,Tk,Hkv,Dk] has {keys}; {demand}")


def compressed_count(operation: str, q: Tensor, count: int, x: Arguments) -> None:
    """Refuse a compressed axis of length `count` that does not belong to the queries of one sequence each."""
    if x["cu_seqlens"] is None and x["q_start"] is None:
        _count(operation, count, num_compressed(q.shape[1], x["config"]))


def _count(operation: str, count: int, needed: int, more: bool = False) -> None:
    if count < needed or (not more and count != needed):
        raise ValueError(f"{operation}: k_cmp must hold {needed} compressed tokens, got {count}")


def block_indices(operation: str, chosen: Tensor, q: Tensor, kv_heads: int) -> None:
    """Refuse indices that are not integers [B,T,Hkv,n] on q's device."""
    axes(operation, ("block_indices", chosen, "B,T,Hkv,n"), B=q.shape[0], T=q.shape[1], Hkv=kv_heads)
    indices(operation, "block_indices", chosen, q.device)


def gates(operation: str, gate: Tensor, o: Tensor) -> None:
    """Refuse gates that are not [B,T,Hq,3] for an output (or a query) [B,T,Hq,D]."""
    axes(operation, ("gates", gate, "B,T,Hq,branches"), B=o.shape[0], T=o.shape[1], Hq=o.shape[2], branches=3)


# --- what tensors hold ---


def values(operation: str, x: Arguments, q: Tensor, keys: int | None, k_cmp: Tensor | None) -> None:
    """Refuse borders that are not from 0 to T, never falling; sequences with more queries than keys; queries that do
    not fit in `keys` keys of tokens, or that see more compressed tokens than k_cmp has; blocks that no query may
    select. With q_start k_cmp may be longer than what the last query sees (a cache with room). The borders are int32
    beside q.
    """
    tokens, cu_seqlens, of_keys, q_start = q.shape[1], x["cu_seqlens"], x.get("cu_seqlens_k"), x.get("q_start")
    if cu_seqlens is not None:
        ends = _rising(operation, "cu_seqlens", cu_seqlens, "T", tokens)
        if of_keys is not None:
            lengths, ends = _lengths(ends), _rising(operation, "cu_seqlens_k", of_keys, "Tk", keys)
            few = next((i for i, (a, b) in enumerate(zip(lengths, _lengths(ends), strict=True)) if a > b), None)
            if few is not None:
                raise ValueError(
                    f"{operation}: sequence {few} has {lengths[few]} queries and {_lengths(ends)[few]} keys; its "
                    "queries are the last of its keys' tokens"
                )
        if k_cmp is not None:
            _count(operation, k_cmp.shape[1], packed_compressed(ends, x["config"]))
    if q_start is not None:
        starts = numbers(q_start)
        if any(start < 0 for start in starts):
            raise ValueError(f"{operation}: q_start must be at least 0, got {starts}")
        if keys is not None and any(start + tokens > keys for start in starts):
            raise ValueError(f"{operation}: queries at q_start={starts} with {tokens} tokens do not fit in {keys} keys")
        if k_cmp is not None:
            _count(operation, k_cmp.shape[1], num_compressed(tokens + max(starts, default=0), x["config"]), more=True)
    chosen = x.get("block_indices")
    if chosen is not None and x.get("validate", True):
        at = token_positions(*q.shape[:2], cu_seqlens=cu_seqlens, cu_seqlens_k=of_keys, q_start=q_start)
        check_block_indices(chosen, at, x["config"])


def _rising(operation: str, name: str, given: Tensor, axis: str, tokens: int | None) -> list[int]:
    """Borders that rise from 0, to `tokens` if that is known."""
    ends = numbers(given)
    end = ends[-1] if tokens is None else tokens
    if ends[0] != 0 or ends[-1] != end or any(a > b for a, b in pairwise(ends)):
        raise ValueError(f"{operation}: {name} must rise from 0 to {axis}={end}, got {ends}")
    return ends


def _lengths(ends: list[int]) -> list[int]:
    return [end - first for first, end in pairwise(ends)]


# --- what each operation demands ---


def rotate(name: str, x: Arguments) -> None:
    turned, positions = x["x"], x["positions"]
    found = axes(name, ("x", turned, "B,T,H,D"), ("positions", positions, "B or 1,T"))
    alike(name, x=turned)
    rotation(name, found["D"], x["base"])
    if found["B or 1"] not in (1, found["B"]):
        raise ValueError(f"{name}: positions must be of B={found['B']} entries or of one, got {list(positions.shape)}")
    indices(name, "positions", positions, turned.device)


def compress(name: str, x: Arguments) -> None:
    axes(name, ("x", x["x"], "B,T,Hkv,D"))
    alike(name, x=x["x"])
    sizes(name, x["config"])
    _phi(name, x["x"], x["config"], x["phi"])
    where(name, x["x"], None, x)


def _phi(name: str, x: Tensor, config: NSAConfig, phi: object) -> None:
    if type(phi) not in PHIS:
        raise TypeError(f"{name}: phi must be a WeightedPhi, an MlpPhi or None, got {type(phi).__name__}")
    parameters: dict[str, Tensor] = {} if phi is None else {f"phi.{part}": y for part, y in vars(phi).items()}
    alike(name, x=x, **parameters)
    (heads, dim), l = x.shape[2:], config.l  # noqa: E741  the paper's symbol
    expected = ("Hkv,l",) if isinstance(phi, WeightedPhi) else ("Hkv,l,D", "Hkv,l*D,M", "Hkv,M", "Hkv,M,D", "Hkv,D")
    declared = zip(parameters, parameters.values(), expected, strict=False)
    axes(name, *declared, **{"Hkv": heads, "D": dim, "l": l, "l*D": l * dim})


def compressed_attention(name: str, x: Arguments) -> None:
    attention(name, x["q"], x["k_cmp"], x["v_cmp"], ("k_cmp", "v_cmp"))
    sizes(name, x["config"])
    where(name, x["q"], None, x)
    compressed_count(name, x["q"], x["k_cmp"].shape[1], x)


def select_blocks(name: str, x: Arguments) -> None:
    q, k_cmp, lse = x["q"], x["k_cmp"], x["lse"]
    given = () if lse is None else (("lse", lse, "B,T,Hq"),)
    found = axes(name, ("q", q, "B,T,Hq,Dk"), ("k_cmp", k_cmp, "B,Tc,Hkv,Dk"), *given)
    alike(name, q=q, k_cmp=k_cmp)
    heads(name, **found)
    sizes(name, x["config"])
    where(name, q, None, x)
    compressed_count(name, q, k_cmp.shape[1], x)
    wide = torch.promote_types(q.dtype, torch.float32)
    if lse is not None and (lse.dtype, lse.device) != (wide, q.device):
        raise ValueError(f"{name}: lse must be {wide} on {q.device}, got {lse.dtype} on {lse.device}")


def selected_attention(name: str, x: Arguments) -> None:
    attention(name, x["q"], x["k"], x["v"])
    sizes(name, x["config"])
    where(name, x["q"], x["k"].shape[1], x)
    block_indices(name, x["block_indices"], x["q"], x["k"].shape[2])


def sliding_window_attention(name: str, x: Arguments) -> None:
    counts(name, window=x["window"])
    if x["window"] > LARGEST:
        raise ValueError(f"{name}: window must be at most {LARGEST}, got {x['window']}")
    attention(name, x["q"], x["k"], x["v"])
    where(name, x["q"], x["k"].shape[1], x)


def gated_combine(name: str, x: Arguments) -> None:
    branches = {each: x[each] for each in ("o_cmp", "o_sel", "o_win")}
    axes(name, *((each, o, "B,T,Hq,Dv") for each, o in branches.items()))
    alike(name, **branches, gates=x["gates"])
    gates(name, x["gates"], x["o_cmp"])


def nsa_attention(name: str, x: Arguments) -> None:
    q, given, rope = x["q"], x["compressed"], x["compressed_rope"]
    if rope is not None:
        if given is not None:
            raise ValueError(f"{name}: compressed_rope is of the means; compressed is used as it is given")
        rotation(name, q.shape[-1] if isinstance(q, Tensor) else 0, rope)
    keys, values = triple(name, "k", x["k"]), triple(name, "v", x["v"])
    sizes(name, x["config"])
    of_branches = [*(("k", k, "B,Tk,Hkv,Dk") for k in keys), *(("v", v, "B,Tk,Hkv,Dv") for v in values)]
    found = axes(name, ("q", q, "B,T,Hq,Dk"), *of_branches)
    for each, x_of, _ in of_branches:
        alike(name, q=q, **{each: x_of})
    heads(name, **found)
    where(name, q, keys[0].shape[1], x)
    alike(name, q=q, gates=x["gates"])
    gates(name, x["gates"], q)
    if x["block_indices"] is not None:
        block_indices(name, x["block_indices"], q, keys[1].shape[2])
    if given is None:
        return
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ValueError(f"{name}: compressed must be a pair (k_cmp, v_cmp)")
    k_cmp, v_cmp = given
    axes(name, ("k_cmp", k_cmp, "B,Tc,Hkv,Dk"), ("v_cmp", v_cmp, "B,Tc,Hkv,Dv"), **found)
    alike(name, q=q, k_cmp=k_cmp, v_cmp=v_cmp)
    compressed_count(name, q, k_cmp.shape[1], x)
