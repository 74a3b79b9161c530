"""What the operations refuse, and the sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from nsa import NativeSparseAttention, NSACache, NSAConfig, explain_routing, nsa_attention, nsa_decode, ops
from nsa.phi import WeightedPhi

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=3, w=7)
Q, K, V = torch.randn(1, 20, 4, 8), torch.randn(1, 20, 2, 8), torch.randn(1, 20, 2, 6)
K_CMP, V_CMP = torch.randn(1, 4, 2, 8), torch.randn(1, 4, 2, 6)
GATES = torch.rand(1, 20, 4, 3)


def borders(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def indices(*row: int) -> torch.Tensor:
    return torch.tensor(row, dtype=torch.int32).expand(1, 20, 2, len(row))


def window(q: torch.Tensor = Q, k: torch.Tensor = K, v: torch.Tensor = V, w: int = 7, **where: object) -> None:
    ops.sliding_window_attention(q, k, v, w, **where)


def jagged(x: torch.Tensor) -> torch.Tensor:
    return torch.nested.as_nested_tensor([x[0]], layout=torch.jagged)


def given(*compressed: torch.Tensor) -> None:
    nsa_attention(Q, K, V, GATES, CONFIG, compressed=compressed)


def explained(**facts: object) -> None:
    explain_routing(CONFIG, **{"tokens": 9, "heads": 4, "kv_heads": 2, "dk": 8, **facts})


LAYER, CACHE = NativeSparseAttention(32, 4, 2, CONFIG), NSACache(CONFIG, 1, 2, 8, 6)
CASES: list[tuple[Callable[[], object], str]] = [
    (lambda: window(torch.randn(1, 20, 3, 8)), "Hq=3 must be a multiple of Hkv=2"),
    (lambda: window(Q[0]), r"q must have the shape \[B,T,Hq,Dk\], got \[20, 4, 8\]"),
    (lambda: window(k=K[..., :6]), r"k must have the shape \[B=1,Tk,Hkv,Dk=8\], got \[1, 20, 2, 6\]"),
    (lambda: window(v=V[:, :19]), r"v must have the shape \[B=1,Tk=20,Hkv=2,Dv\], got \[1, 19, 2, 6\]"),
    (lambda: window(k=K.double()), "k .* must have the dtype and device of q"),
    (lambda: window(Q.int(), K.int(), V.int()), "q must be fp16, bf16, fp32 or fp64"),
    (lambda: window(Q[:, :10]), r"q \[B,T,Hq,Dk\] has 10 tokens and k .* has 20; without q_start or cu_seqlens_k they"),
    (
        lambda: window(cu_seqlens=borders(0)),
        r"cu_seqlens must have borders \[N\+1\] of a sequence at least, got one for 20 tokens and 20 keys",
    ),
    (
        lambda: window(Q[:, :0], cu_seqlens=borders(0), cu_seqlens_k=borders(0)),
        "got one for 0 tokens and 20 keys",
    ),
    (lambda: ops.compress(K, CONFIG, cu_seqlens=borders(0)), "of a sequence at least, got one for 20 tokens"),
    (lambda: window(cu_seqlens_k=borders(0, 20)), "cu_seqlens_k needs cu_seqlens, the borders of the queries"),
    (
        lambda: window(cu_seqlens=borders(0, 20), cu_seqlens_k=borders(0, 7, 20)),
        r"cu_seqlens_k must have the shape of cu_seqlens, \[2\], got \[3\]",
    ),
    (
        lambda: window(k=K[:, :19], v=V[:, :19], cu_seqlens=borders(0, 20), cu_seqlens_k=borders(0, 19)),
        "has 20 tokens and k .* has 19; there must not be fewer keys",
    ),
    (
        lambda: window(Q[:, :9], cu_seqlens=borders(0, 9), cu_seqlens_k=borders(0, 19)),
        r"cu_seqlens_k must rise from 0 to Tk=20, got \[0, 19\]",
    ),
    (
        lambda: window(Q[:, :9], cu_seqlens=borders(0, 2, 9), cu_seqlens_k=borders(0, 15, 20)),
        "sequence 1 has 7 queries and 5 keys; its queries are the last of its keys' tokens",
    ),
    (
        lambda: window(cu_seqlens=borders(0, 20), cu_seqlens_k=borders(0, 20), q_start=torch.tensor([0])),
        "give cu_seqlens or q_start, not both",
    ),
    (
        lambda: ops.compressed_attention(
            Q[:, :3], K_CMP, V_CMP, CONFIG, cu_seqlens=borders(0, 3), cu_seqlens_k=borders(0, 16)
        ),
        "k_cmp must hold 3 compressed tokens, got 4",
    ),
    (
        lambda: ops.selected_attention(
            Q[:, :1], K, V, torch.full((1, 1, 2, 1), 5), CONFIG, cu_seqlens=borders(0, 1), cu_seqlens_k=borders(0, 20)
        ),
        "block 5 of batch 0, token 0, KV head 0 begins after its query",
    ),
    (lambda: window(*(x.transpose(1, 2) for x in (Q, K, K))), r"q \[B,T,Hq,Dk\] has 4 tokens and k .* has 2"),
    (lambda: window(w=0), "window must be at least 1"),
    (
        lambda: window(w=2**70),
        "sliding_window_attention: window must be at most 1073741824, got 1180591620717411303424",
    ),
    (lambda: NSAConfig(l=2**31, d=2**31), "NSAConfig: l must be at most 1073741824, got 2147483648"),
    (
        lambda: nsa_attention(Q, K, V, GATES, CONFIG, cu_seqlens=torch.tensor([0, 2**32 + 20])),
        "cu_seqlens must rise from 0 to T=20",
    ),
    (lambda: window(cu_seqlens=torch.tensor([-(2**32), 20])), "cu_seqlens must rise from 0 to T=20"),
    (lambda: window(cu_seqlens=borders(0, 5, 21)), "cu_seqlens must rise from 0 to T=20"),
    (lambda: window(cu_seqlens=borders(0, 9, 5, 20)), "cu_seqlens must rise from 0 to T=20"),
    (lambda: window(cu_seqlens=torch.tensor([0.0, 20.0])), r"cu_seqlens must be int32 or int64 \[N\+1\]"),
    (lambda: window(*(x.expand(2, -1, -1, -1) for x in (Q, K, V)), cu_seqlens=borders(0, 20)), "need B=1, got B=2"),
    (lambda: window(Q[:, :5], q_start=torch.tensor([16])), "do not fit in 20 keys"),
    (lambda: window(q_start=torch.tensor([0, 0])), r"q_start must be integers \[B=1\]"),
    (lambda: window(q_start=torch.tensor([0j])), r"q_start must be integers \[B=1\], got torch.complex64"),
    (
        lambda: ops.select_blocks(Q, K_CMP, CONFIG, q_start=torch.tensor([-1])),
        r"q_start must be at least 0, got \[-1\]",
    ),
    (lambda: ops.cached_attention(Q[:, :1], GATES[:, :1], CACHE), "the cache must hold a token at least; it is empty"),
    (lambda: ops.cached_attention(Q, GATES, CACHE), r"q must have the shape \[B,T=1,Hq,Dk\], got \[1, 20, 4, 8\]"),
    (lambda: window(Q[:, :, :0]), "Hq=0 must be a multiple of Hkv=2, and both at least 1"),
    (lambda: window(Q[..., :0], K[..., :0]), "Dk must be at least 1, got 0"),
    (lambda: window(v=V[..., :0]), "Dv must be at least 1, got 0"),
    (lambda: window(cu_seqlens=borders(0, 20).to("meta")), "cu_seqlens must hold numbers, got a tensor on meta"),
    (lambda: window(q_start=borders(0).to("meta")), "q_start must hold numbers, got a tensor on meta"),
    (lambda: ops.compressed_attention(Q, K_CMP[..., :6], V_CMP, CONFIG), r"k_cmp must have .* \[B=1,Tk,Hkv,Dk=8\]"),
    (lambda: ops.compressed_attention(Q, K_CMP, V_CMP[:, :3], CONFIG), r"v_cmp must have .* \[B=1,Tk=4,Hkv=2,Dv\]"),
    (lambda: window(Q.to_sparse()), "q must be a dense tensor, got torch.sparse_coo"),
    (lambda: window(cu_seqlens=borders(0, 20).to_sparse()), "cu_seqlens must be a dense tensor, got torch.sparse_coo"),
    (lambda: window(torch.nested.as_nested_tensor([Q[0]])), "q must be a dense tensor, got nested"),
    (lambda: window(jagged(Q), jagged(K), jagged(V)), "q must be a dense tensor, got nested"),
    (lambda: nsa_attention(Q, (K, jagged(K), K), V, GATES, CONFIG), "k must be a dense tensor, got nested"),
    (lambda: nsa_decode(Q, K, V, jagged(GATES), CACHE), "gates must be a dense tensor, got nested"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, scale=math.nan), "nsa_attention: scale must be finite, got nan"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, scale=10**309), "nsa_attention: scale must be finite, got 1000"),
    (lambda: nsa_decode(Q, K, V, GATES, CACHE, scale=math.inf), "nsa_decode: scale must be finite, got inf"),
    (lambda: window(q_start=torch.tensor([0]), cu_seqlens=borders(0, 20)), "not both"),
    (lambda: ops.compressed_attention(Q, K_CMP[:, :3], V_CMP[:, :3], CONFIG), "must hold 4 compressed tokens, got 3"),
    (lambda: ops.select_blocks(Q, K, CONFIG), "must hold 4 compressed tokens, got 20"),
    (lambda: ops.select_blocks(Q, K_CMP, CONFIG, lse=Q), r"lse must have the shape \[B=1,T=20,Hq=4\]"),
    (
        lambda: ops.select_blocks(Q, K_CMP, CONFIG, lse=GATES[..., 0].half()),
        "lse must be torch.float32 on cpu, got torch.float16 on cpu",
    ),
    (lambda: ops.selected_attention(Q, K, V, indices(0)[0], CONFIG), r"shape \[B=1,T=20,Hkv=2,n\]"),
    (lambda: ops.selected_attention(Q, K, V, indices(0).float(), CONFIG), "block_indices must be int32"),
    (lambda: ops.selected_attention(Q, K, V, indices(0, -1, 0), CONFIG), "block 0 of .* is selected twice"),
    (lambda: ops.selected_attention(Q, K, V, indices(0, 1), CONFIG), "block 1 of batch 0, token 0, .* begins after"),
    (lambda: ops.selected_attention(Q, K, V, indices(-2), CONFIG), "block -2 of .* is negative"),
    (
        lambda: ops.selected_attention(Q, K, V, indices(0, 1), CONFIG, cu_seqlens=borders(0, 17, 20)),
        "block 1 of batch 0, token 0",
    ),
    (
        lambda: ops.gated_combine(V, V, V[..., :3], GATES),
        r"o_win must have the shape \[B=1,T=20,Hq=2,Dv=6\], got \[1, 20, 2, 3\]",
    ),
    (lambda: NativeSparseAttention(32, 0, 2), "n_heads must be at least 1, got 0"),
    (lambda: NativeSparseAttention(32, 4, 2)(torch.ones(1, 3, 31)), r"x must have the shape \[B,T,dim=32\], got"),
    (lambda: NativeSparseAttention(32, 4, 2, rope_base=-1), "base of rotary positions must be a positive number"),
    (lambda: NativeSparseAttention(32, 4, 2, backend="tritn"), "unknown backend 'tritn'"),
    (lambda: NativeSparseAttention(32, 4, 2, backend={"decode": "tritn"}), "unknown backend 'tritn'"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, backend={"decode": "tritn"}), "unknown backend 'tritn'"),
    (lambda: LAYER(torch.ones(1, 3, 32), cu_seqlens=borders(0, 3).to("meta")), "cu_seqlens must hold numbers"),
    (lambda: LAYER(torch.ones(1, 3, 32), LAYER.new_cache(2)), "x has B=1 and the cache has 2 sequences"),
    (
        lambda: NSACache(CONFIG, 1, 2, 8, 6, dtype=torch.int32),
        "dtype must be fp16, bf16, fp32 or fp64, got torch.int32",
    ),
    (lambda: CACHE.to(dtype=torch.int32), "dtype must be fp16, bf16, fp32 or fp64, got torch.int32"),
    (lambda: CACHE.to("gpu"), "'gpu' is no device"),
    (lambda: NSACache(CONFIG, 1, 2, 8, 6, device="cuda:99"), "this machine has no device cuda:99"),
    (lambda: CACHE.reserve(-1), r"tokens must be 1 integers of at least 0, got \[-1\]"),
    (lambda: CACHE.advance(-1), r"counts must be 1 integers of at least 0, got \[-1\]"),
    (lambda: explained(tokens=0), "explain_routing: tokens must be at least 1, got 0"),
    (lambda: explained(heads=3), "heads=3 must be a multiple of kv_heads=2"),
    (lambda: explained(dtype=torch.int8), "dtype must be fp16, bf16, fp32 or fp64, got torch.int8"),
    (lambda: nsa_attention(Q, K, V, GATES[..., :2], CONFIG), r"gates must have .* \[B=1,T=20,Hq=4,branches=3\]"),
    (lambda: nsa_attention(Q, (K, K), V, GATES, CONFIG), "one tensor or a triple"),
    (lambda: nsa_attention(Q, (K, K, K[:, :, :1]), V, GATES, CONFIG), r"k must have .* \[B=1,Tk=20,Hkv=2,Dk=8\]"),
    (lambda: given(K_CMP[:, :3], V_CMP[:, :3]), "must hold 4 compressed tokens, got 3"),
    (lambda: given(K_CMP, V_CMP[:, :3]), r"v_cmp must have the shape \[B=1,Tc=4,Hkv=2,Dv=6\], got \[1, 3, 2, 6\]"),
    (lambda: given(K_CMP[..., :6], V_CMP), r"k_cmp must have the shape \[B=1,Tc,Hkv=2,Dk=8\]"),
    (lambda: given(K_CMP[:, :, :1], V_CMP[:, :, :1]), r"k_cmp must have the shape \[B=1,Tc,Hkv=2,Dk=8\]"),
    (lambda: given(K_CMP.double(), V_CMP), "k_cmp .* must have the dtype and device of q"),
    (lambda: given(K_CMP), "compressed must be a pair"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, compressed=K_CMP), "compressed must be a pair"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, backend="cuda13"), "unknown backend 'cuda13'"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, backend={"windw": "torch"}), "unknown operation 'windw'"),
    (
        lambda: ops.compress(K, CONFIG, phi=WeightedPhi(torch.ones(2, 9))),
        r"phi.weight must have .* \[Hkv=2,l=8\]",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), CASES, ids=[sentence for _, sentence in CASES])
def test_refused_with_a_sentence(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


TYPES: list[tuple[Callable[[], object], str]] = [
    (lambda: nsa_attention(Q.tolist(), K, V, GATES), "nsa_attention: q must be a tensor, got list"),
    (lambda: nsa_attention(Q, {"k": K}, V, GATES), "k must be a tensor or a triple .*, got dict"),
    (lambda: nsa_attention(Q, None, V, GATES), r"k must be a tensor or a triple \(cmp, sel, win\), got NoneType"),
    (lambda: nsa_attention(Q, K, V, [1, 0, 0]), "gates must be a tensor, got list"),
    (lambda: nsa_attention(Q, K, V, GATES, {"l": 8}), "config must be an NSAConfig, got dict"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, cu_seqlens=[0, 20]), "cu_seqlens must be a tensor, got list"),
    (lambda: window(cu_seqlens=[0, 20], cu_seqlens_k=borders(0, 20)), ": cu_seqlens must be a tensor, got list"),
    (lambda: window(cu_seqlens=borders(0, 20), cu_seqlens_k=[0, 20]), "cu_seqlens_k must be a tensor, got list"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, q_start=0), "q_start must be a tensor, got int"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, block_indices=[0]), "block_indices must be a tensor, got list"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, scale="one"), "scale must be a number or None, got 'one'"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, scale=torch.tensor(0.5)), "nsa_attention: scale must be a number"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, scales=1), "nsa_attention: got an unexpected keyword argument"),
    (lambda: nsa_attention(Q, K, V, GATES, CONFIG, strict="no"), "strict must be True or False, got 'no'"),
    (lambda: window(deterministic=2), "deterministic must be True or False, got 2"),
    (lambda: nsa_decode(*(x[:, :1] for x in (Q, K, V, GATES)), CACHE, strict="no"), "strict must be True or False"),
    (lambda: ops.select_blocks(Q, K_CMP, CONFIG, lse=[0]), "lse must be a tensor, got list"),
    (
        lambda: nsa_attention(Q, K, V, GATES, CONFIG, backend=["triton"]),
        "backend must be a name, a mapping .* got list",
    ),
    (lambda: window(w=7.0), "window must be an integer, got float"),
    (lambda: window(backend=3), "backend must be a name, a mapping .* got int"),
    (lambda: ops.compress(K, 8), "compress: config must be an NSAConfig, got int"),
    (lambda: ops.compress(K, CONFIG, phi=torch.mean), "phi must be a WeightedPhi, an MlpPhi or None"),
    (lambda: ops.compressed_attention(Q, K_CMP, None, CONFIG), ": v_cmp must be a tensor, got NoneType"),
    (lambda: ops.select_blocks(Q, K_CMP, None), "select_blocks: config must be an NSAConfig, got NoneType"),
    (lambda: ops.gated_combine(V, V, V, None), "gates must be a tensor, got NoneType"),
    (lambda: nsa_decode(Q, K, V, GATES, None), "nsa_decode: cache must be an NSACache, got NoneType"),
    (lambda: nsa_decode(Q, K, V, GATES, CACHE, counts=3), "counts must be 1 integers, got 3"),
    (lambda: nsa_decode(Q, K, V, GATES, CACHE, counts=[1.5]), r"counts must be 1 integers, got \[1.5\]"),
    (lambda: nsa_decode(Q, K, V, GATES, CACHE, counts=[True]), r"counts must be 1 integers, got \[True\]"),
    (lambda: CACHE.reorder(torch.tensor([True])), r"from 0 to 0, got tensor\(\[True\]\)"),
    (lambda: CACHE.reorder(None), "reorder needs a list of entries from 0 to 0, got None"),
    (lambda: CACHE.reserve("all"), "tokens must be 1 integers, got 'all'"),
    (lambda: NSACache(CONFIG, 1, 2, 8, 6, compress="mean"), "compress must be a function or None, got str"),
    (lambda: explained(tokens="9"), "tokens must be an integer, got str"),
    (lambda: NSACache(1, 2, 8, 6, 4), "NSACache: config must be an NSAConfig, got int"),
    (lambda: NSACache(CONFIG, 1, 2, 8.0, 6), "dk must be an integer, got float"),
    (lambda: NativeSparseAttention(32, "4", 2), "n_heads must be an integer, got str"),
    (lambda: NativeSparseAttention(32, 4, 2, CONFIG)(Q.tolist()), "x must be a tensor, got list"),
    (lambda: NativeSparseAttention(32, 4, 2, CONFIG)(torch.ones(1, 3, 32), K), "cache must be an NSACache, got Tensor"),
]


@pytest.mark.parametrize(("call", "sentence"), TYPES, ids=[sentence for _, sentence in TYPES])
def test_another_type_is_refused_with_a_sentence(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        call()
