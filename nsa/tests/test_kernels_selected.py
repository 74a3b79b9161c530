"""The selected-attention kernels against the oracle: in the interpreter on a CPU (fp32, fp16), on a GPU (also bf16)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nsa import reference
from nsa.bench.judge import gradients
from nsa.blocks import token_positions
from nsa.config import NSAConfig
from nsa.kernels import combine
from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.common.sizes import cdiv
from nsa.kernels.selected import backward_kv, chunked_index, inverted_index
from nsa.kernels.selected.attention import selected_attention
from nsa.kernels.selected.backward import selected_backward
from nsa.kernels.selected.forward import Sum, selected_forward
from nsa.kernels.selected.tile_scheduler import ALWAYS, NEVER, Schedule, can_gather, choose_schedule
from nsa.tests.kernel_cases import SLOW, by_descriptor, far_apart

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = NSAConfig(l=4, d=2, l_sel=8, n_sel=4, w=8)
MANY = NSAConfig(l=4, d=2, l_sel=4, n_sel=6, w=8)
"""Of so many blocks that a tile's queries share some and not others."""
SCHEDULES = {
    "token": Schedule(most=NEVER, pairs=16),
    "tile": Schedule(most=ALWAYS),
    "mixed": Schedule(most=4),
    "gather": Schedule(most=4, dense_from=3, chunk=16, pairs=8),
}


def random_indices(positions: torch.Tensor, heads: int, slots: int, config: NSAConfig, seed: int = 0) -> torch.Tensor:
    """Distinct blocks in random slots, with gaps; every seventh query has none. int32 [B,T,heads,slots]."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.full((*positions.shape, heads, slots), -1, dtype=torch.int32)
    for b, t in ((b, t) for b in range(positions.shape[0]) for t in range(positions.shape[1])):
        last = int(positions[b, t]) // config.l_sel
        for h in range(heads):
            count = int(torch.randint(slots + 1, (), generator=generator))
            blocks = torch.randperm(last + 1, generator=generator)[:count]
            if t % 7 != 3:
                out[b, t, h, torch.randperm(slots, generator=generator)[: len(blocks)]] = blocks.to(torch.int32)
    return out


def problem(batch=1, tokens=37, heads=2, group=2, dk=16, dv=16, config=SMALL, cu=None, slots=None, start=None, seed=0):
    """q, k, v in fp64 and block indices; keys reach `start` further than queries."""
    generator = torch.Generator().manual_seed(seed)
    keys = tokens + (0 if start is None else max(start))
    shapes = (batch, tokens, heads * group, dk), (batch, keys, heads, dk), (batch, keys, heads, dv)
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    cu = None if cu is None else torch.tensor(cu, dtype=torch.int32)
    start = None if start is None else torch.tensor(start)
    positions = token_positions(batch, tokens, cu_seqlens=cu, q_start=start)
    return (q, k, v), random_indices(positions, heads, slots or config.n_sel, config, seed), cu, start


MAIN = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
OTHERS = (torch.float16, torch.float32) if DEVICE.type == "cuda" else (torch.float16,)


def low(*tensors: torch.Tensor | None, dtype: torch.dtype = MAIN) -> list[torch.Tensor | None]:
    """The tensors on the device, floating ones in the dtype under test."""
    return [None if x is None else x.to(DEVICE, dtype if x.is_floating_point() else x.dtype) for x in tensors]


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Relative error in the norm: 1e-5 in fp32, 1e-2 in half precision."""
    assert got.shape == want.shape
    bound = 1e-5 if got.dtype == torch.float32 else 1e-2
    error = (got.cpu().double() - want).norm()
    assert error <= bound * max(1.0, float(want.norm())), f"error {error} of {want.norm()}"


SHAPES = {
    "plain": {},
    "one token": {"tokens": 1},
    "batch": {"batch": 2, "tokens": 19},
    "group 1": {"group": 1, "heads": 1},
    "group 4": {"group": 4, "heads": 1, "tokens": 41},
    "group 6": {"group": 6, "heads": 1, "tokens": 20},
    "group 16": {"group": 16, "heads": 1, "tokens": 20},
    "192/128 in small": {"dk": 24, "dv": 16, "tokens": 20},
    "dv wider": {"dk": 16, "dv": 48, "tokens": 20},
    "packed": {"tokens": 40, "cu": [0, 13, 13, 14, 31, 40]},
    "chunked": {"batch": 2, "tokens": 11, "start": [5, 9]},
    "odd block": {"config": NSAConfig(l=4, d=2, l_sel=12, n_sel=4, w=8), "tokens": 50},
    "long block": {"config": NSAConfig(l=4, d=2, l_sel=32, n_sel=3, w=8), "tokens": 70, "heads": 1},
    "block of three tiles": {"config": NSAConfig(l=4, d=2, l_sel=48, n_sel=3, w=8), "tokens": 110},
    "odd slots": {"slots": 5, "tokens": 45, "heads": 1},
    "many blocks": {"config": MANY, "tokens": 90, "heads": 1, "group": 4},
    "many of packed": {"config": MANY, "tokens": 97, "group": 4, "cu": [0, 42, 43, 97]},
    "more heads than chunks": {"config": MANY, "tokens": 30, "heads": 5, "group": 8},
}


def oracle(qkv, indices, config, cu, start):
    inputs = [x.clone().requires_grad_() for x in qkv]
    o = reference.selected_attention(*inputs, indices, config, cu_seqlens=cu, q_start=start)
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1), dtype=o.dtype)
    return o.detach(), do, gradients(o, inputs, do)


def assert_equals_oracle(shape: str, schedule: str, dtype: torch.dtype = MAIN) -> None:
    config = SHAPES[shape].get("config", SMALL)
    qkv, indices, cu, start = problem(**SHAPES[shape])
    want, do, grads = oracle([x.to(dtype).double() for x in qkv], indices, config, cu, start)
    q, k, v, idx, cu, start, do = low(*qkv, indices, cu, start, do, dtype=dtype)
    scale = q.shape[-1] ** -0.5
    o, lse = selected_forward(q, k, v, idx, config, scale, cu, start, SCHEDULES[schedule])
    close(o, want)
    empty = (indices < 0).all(-1).repeat_interleave(q.shape[2] // k.shape[2], -1)
    assert torch.equal(lse.cpu() == float("-inf"), empty)
    assert o.cpu()[empty].count_nonzero() == 0
    stats, how = backward_preprocess(do, o, lse), SCHEDULES[schedule]
    got = selected_backward(do, q, k, v, stats, idx, config, scale, cu, start, schedule=how)
    for one, expected in zip(got, grads, strict=True):
        close(one, expected)


BOTH = ("plain", "packed", "odd block", "many blocks")
CASES = [
    *(pytest.param(shape, "gather") for shape in SHAPES),
    *(pytest.param(shape, "mixed", marks=() if shape in BOTH else SLOW) for shape in SHAPES),
]


@pytest.mark.parametrize(("shape", "schedule"), CASES)
def test_forward_and_gradients_equal_the_oracle(shape: str, schedule: str) -> None:
    assert_equals_oracle(shape, schedule)


@pytest.mark.parametrize("schedule", ["token", "tile"])
@pytest.mark.parametrize("shape", ["plain", pytest.param("packed", marks=SLOW)])
def test_one_kernel_alone_equals_the_oracle(shape: str, schedule: str) -> None:
    assert_equals_oracle(shape, schedule)


@pytest.mark.parametrize("schedule", ["tile", "gather"])
def test_sums_of_few_runs_at_once_are_those_of_all(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (q, k, v), indices, *_ = problem(**SHAPES["plain"])
    q, k, v, idx = low(q, k, v, indices)
    o, lse = selected_forward(q, k, v, idx, SMALL, 0.3, schedule=SCHEDULES[schedule])
    do = torch.randn_like(o)
    stats = backward_preprocess(do, o, lse)

    def gradients() -> tuple[torch.Tensor, ...]:
        return selected_backward(do, q, k, v, stats, idx, SMALL, 0.3, schedule=SCHEDULES[schedule])

    whole = gradients()
    monkeypatch.setattr(backward_kv, "SEGMENTS_HELD", 3)
    for got, want in zip(gradients(), whole, strict=True):
        assert torch.equal(got, want)


def test_heads_at_once_are_as_one_after_the_other() -> None:
    (q, k, v), indices, *_ = problem(tokens=20, heads=3, group=1)
    q, k, v, idx = low(q, k, v, indices)
    o, lse = selected_forward(q, k, v, idx, SMALL, 0.3, schedule=SCHEDULES["gather"])
    do = torch.randn_like(o)
    stats = backward_preprocess(do, o, lse)
    one, two, all_at_once = (
        selected_backward(do, q, k, v, stats, idx, SMALL, 0.3, schedule=replace(SCHEDULES["gather"], heads=heads))
        for heads in (1, 2, 3)
    )
    for found in (two, all_at_once):
        assert all(map(torch.equal, found, one))


@pytest.mark.parametrize(
    ("rows", "of_16", "of_4"),
    [
        (100, (100, 81), (100, 81)),
        (4096, (4096, 2), (4096, 2)),
        (8192, (8192, 1), (8192, 1)),
        (65536, (32768, 1), (65536, 1)),
        (1 << 20, (32768, 1), (131072, 1)),
    ],
)
def test_as_many_heads_and_queries_are_gathered_as_can_be_held(
    rows: int, of_16: tuple[int, int], of_4: tuple[int, int]
) -> None:
    for group, held in ((16, of_16), (4, of_4)):
        schedule = choose_schedule(group, 4, 16, 64, 128, True, rows=rows)
        assert (schedule.chunk, schedule.heads) == held


@pytest.mark.parametrize(
    ("l_sel", "widest", "backward", "fits"),
    [
        (64, 256, False, True),
        (64, 128, True, True),
        (128, 64, True, True),
        (65, 192, False, False),  # held as 128 keys: 118 KB on sm_89
        (80, 192, False, False),
        (128, 128, True, False),  # 111 KB
        (64, 192, True, False),
    ],
)
def test_blocks_that_gathering_has_no_room_for(l_sel: int, widest: int, backward: bool, fits: bool) -> None:
    assert can_gather(l_sel, widest, 2, backward) == fits
    for group in (4, 16):
        chosen = choose_schedule(group, 16, 16, l_sel, widest, backward)
        assert (chosen.dense_from > 0) == (fits and (backward or group == 4))


@pytest.mark.parametrize("backward", [False, True])
def test_nothing_is_gathered_where_a_tile_takes_all_blocks_of_a_sequence(backward: bool) -> None:
    for group, tokens, most in ((16, 4, 32), (4, 16, 40 if backward else 128)):
        for blocks in (1, most, most + 1):
            chosen = choose_schedule(group, tokens, 16, 64, 128, backward, rows=8192, blocks=blocks)
            assert (chosen.dense_from > 0) == (blocks > most and (backward or group == 4))


@pytest.mark.parametrize(
    ("widest", "backward", "tma", "most"),
    [(128, False, True, ALWAYS), (192, False, True, 40), (128, False, False, 40), (192, True, True, 48)],
)
def test_which_unions_of_16_heads_one_kernel_takes(widest: int, backward: bool, tma: bool, most: int) -> None:
    for rows, expected in ((1 << 14, ALWAYS), (1 << 16, most)):
        assert choose_schedule(16, 4, 16, 64, widest, backward, rows=rows, tma=tma) == Schedule(expected)


@pytest.mark.parametrize("schedule", ["mixed", "gather"])
@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_other_dtypes(dtype: torch.dtype, schedule: str) -> None:
    assert_equals_oracle("192/128 in small", schedule, dtype)


@pytest.mark.parametrize("schedule", ["token", "tile", "gather"])
def test_a_token_that_reads_only_itself_gets_its_value(schedule: str) -> None:
    (q, k, v), indices, *_ = problem(batch=3, tokens=1)
    q, k, v, idx = low(q, k, v, indices)
    o, _ = selected_forward(q, k, v, idx, SMALL, 0.3, schedule=SCHEDULES[schedule])
    assert torch.equal(o, v.repeat_interleave(q.shape[2] // k.shape[2], 2))


@pytest.mark.parametrize("schedule", ["token", "tile", "gather"])
def test_so_does_the_first_token_of_a_sequence_in_the_middle_of_a_tile(schedule: str) -> None:
    (q, k, v), indices, cu, _ = problem(tokens=48, cu=[0, 41, 48])
    indices[:, 41], indices[:, 41, :, 0] = -1, 0
    q, k, v, idx, cu = low(q, k, v, indices, cu)
    o, _ = selected_forward(q, k, v, idx, SMALL, 0.3, cu, schedule=SCHEDULES[schedule])
    assert torch.equal(o[:, 41], v[:, 41].repeat_interleave(q.shape[2] // k.shape[2], 1))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sign", [1, -1])
def test_logits_out_of_range(sign: int, schedule: str) -> None:
    (q, k, v), indices, *_ = problem(**SHAPES["many blocks"])
    q[..., 0], k[..., 0] = far_apart(sign, q.shape[-1])
    want = reference.selected_attention(q, k, v, indices, MANY)
    q, k, v, idx = low(q, k, v, indices)
    o, lse = selected_forward(q, k, v, idx, MANY, q.shape[-1] ** -0.5, schedule=SCHEDULES[schedule])
    close(o, want)
    assert (lse[lse.isfinite()] * sign > 60).all()


def test_a_part_beyond_all_that_exp2_holds_goes_on() -> None:
    """Logits near 180 in units of log2, of either sign: the weight of the tile's part would be infinite, or 0."""
    for sign in (1, -1):
        (q, k, v), indices, *_ = problem(**SHAPES["many blocks"])
        q[..., 0], k[..., 0] = far_apart(sign, q.shape[-1])
        scale = 1.6 * q.shape[-1] ** -0.5
        want = reference.selected_attention(q, k, v, indices, MANY, scale=scale)
        q, k, v, idx = low(q, k, v, indices)
        o, _ = selected_forward(q, k, v, idx, MANY, scale, schedule=SCHEDULES["mixed"])
        close(o, want)


@pytest.mark.parametrize("by", ["address", "descriptor"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_value_behind_a_block_reaches_none_who_read_the_block(
    schedule: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 12 keys are held as 16 rows: those beyond the block are the next one's, which nobody chose."""
    if by == "descriptor":
        by_descriptor(monkeypatch)
    config = NSAConfig(l=4, d=2, l_sel=12, n_sel=4, w=8)
    (q, k, v), indices, *_ = problem(config=config, tokens=96)
    indices[indices == 1] = -1
    clean, poisoned = v, v.clone()
    poisoned[:, 12:24] = float("nan")
    q, k, clean, poisoned, idx = low(q, k, clean, poisoned, indices)
    o, found = (selected_forward(q, k, x, idx, config, 0.3, schedule=SCHEDULES[schedule])[0] for x in (clean, poisoned))
    assert torch.equal(found[:, 48:], o[:, 48:])


@pytest.mark.parametrize("schedule", ["token", "mixed", pytest.param("gather", marks=SLOW)])
def test_loads_by_descriptor(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_descriptor(monkeypatch)
    for shape in ("many of packed", "192/128 in small", "long block"):
        assert_equals_oracle(shape, schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gate_and_added_dq(schedule: str) -> None:
    """`backward` takes the gradient of gate * o, and adds to a dq that it is given."""
    qkv, indices, _, _ = problem(tokens=30)
    qkv = [x.to(MAIN).double() for x in qkv]
    gates = torch.randn(1, 30, 4, 3, dtype=torch.float64)
    gates[:, 3:5] = 0
    inputs = [x.clone().requires_grad_() for x in qkv]
    o = reference.selected_attention(*inputs, indices, SMALL)
    do = torch.randn_like(o)
    grads = gradients(gates[..., 1:2] * o, inputs, do)
    q, k, v, idx, do, gates = low(*qkv, indices, do, gates)
    o, lse = selected_forward(q, k, v, idx, SMALL, 0.25)
    dq = torch.ones_like(q)
    stats, _ = combine.stats(do, (o, o, o), (lse, lse, lse), gates)
    got = selected_backward(do, q, k, v, stats[1], idx, SMALL, 0.25, dq=dq, schedule=SCHEDULES[schedule])
    assert got[0] is dq
    close(dq, grads[0] + 1)
    close(got[1], grads[1])
    close(got[2], grads[2])


def test_autograd_function_and_strided_inputs() -> None:
    qkv, indices, _, _ = problem(tokens=21)
    want, do, grads = oracle([x.to(MAIN).double() for x in qkv], indices, SMALL, None, None)
    q, k, v, idx, do = low(*qkv, indices, do)
    inputs = [x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k, v)]
    o, _ = selected_attention((*inputs, idx, None, None, None), (SMALL, 0.25, False))
    close(o, want)
    for one, expected in zip(gradients(o, inputs, do), grads, strict=True):
        close(one, expected)


def test_lse_is_the_natural_logarithm_of_the_sum() -> None:
    qkv, indices, _, _ = problem(tokens=17, heads=1, group=1)
    q, k, v, idx = low(*qkv, indices)
    _, lse = selected_forward(q, k, v, idx, SMALL, 0.25)
    for t in range(17):
        keys = reference.selected_set(t, indices[0, t, 0].tolist(), SMALL)
        want = (0.25 * k[0, keys, 0].double() @ q[0, t, 0].double()).logsumexp(-1) if keys else torch.tensor(-torch.inf)
        bound = 1e-4 if q.dtype == torch.float32 else 1e-2
        assert torch.allclose(lse[0, t, 0].double().cpu(), want.double().cpu(), atol=bound)


@pytest.mark.parametrize("shape", [{"tokens": 0}, {"batch": 0}, {"tokens": 5, "slots": 0}])
def test_nothing_to_do(shape: dict[str, int]) -> None:
    batch, tokens, slots = shape.get("batch", 1), shape.get("tokens", 3), shape.get("slots", 4)
    q, k = (torch.randn(batch, tokens, heads, 16, device=DEVICE) for heads in (4, 2))
    indices = torch.zeros(batch, tokens, 2, slots, dtype=torch.int32, device=DEVICE)
    o, lse = selected_forward(q, k, k, indices, SMALL, 1.0)
    assert o.shape == q.shape and o.count_nonzero() == 0
    dq, dk, dv = selected_backward(o, q, k, k, backward_preprocess(o, o, lse), indices, SMALL, 1.0)
    assert [x.count_nonzero() for x in (dq, dk, dv)] == [0, 0, 0] and dk.shape == k.shape


def test_the_union_names_the_distinct_blocks_and_their_members() -> None:
    """The worked example of `inverted_index`: two queries with the blocks {0,3} and {3,5}."""
    q = torch.zeros(1, 2, 1, 16, device=DEVICE)
    k = torch.zeros(1, 64, 1, 16, device=DEVICE)
    where = inverted_index.places(q, k, 8, q_start=torch.tensor([50], device=DEVICE))
    indices = torch.tensor([[[3, 0, -1]], [[-1, 3, 5]]], dtype=torch.int32, device=DEVICE)
    union = inverted_index.union(indices, where, tokens=2)
    assert union.count.tolist() == [[3]]
    assert union.starts[0, 0, :3].tolist() == [0, 24, 40]
    assert union.members[0, 0, :3].tolist() == [0b01, 0b11, 0b10]


def test_what_few_share_is_left_to_each_query() -> None:
    """Of the tile {0,3,1}, {3,5,-1}: block 3, and 5, which the first query is not after; then {0,1} and {}. The next
    tile has no more blocks than its kernel takes.
    """
    q, k = torch.zeros(1, 4, 1, 16, device=DEVICE), torch.zeros(1, 64, 1, 16, device=DEVICE)
    where = inverted_index.places(q, k, 8, q_start=torch.tensor([46], device=DEVICE))
    lists = [[0, 3, 1], [-1, 3, 5], [-1, -1, 2], [0, -1, -1]]
    indices = torch.tensor(lists, dtype=torch.int32, device=DEVICE)[:, None]
    union = inverted_index.union(indices, where, tokens=2, dense_from=2, most=2)
    assert union.count.tolist() == [[inverted_index.LEFT_OUT.value + 2, 2]]
    assert union.starts[0, :, :2].tolist() == [[24, 40], [0, 16]]
    assert union.members[0, :, :2].tolist() == [[0b11, 0b10], [0b10, 0b01]]
    assert union.lists[:, 0].tolist() == [[0, -1, 1], [-1, -1, -1], [-1, -1, -1], [-1, -1, -1]]


@pytest.mark.parametrize("chunk", [0, 4])
def test_a_block_behind_all_keys_is_padding(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchecked, it must not leave a place in the lists unwritten: that would be an address."""
    q, k = torch.zeros(1, 4, 1, 16, device=DEVICE), torch.zeros(1, 32, 1, 16, device=DEVICE)
    where = inverted_index.places(q, k, 8, q_start=torch.tensor([28], device=DEVICE))
    lists = torch.tensor([[0, 1], [4, 2], [-1, 1], [5, 3]], dtype=torch.int32, device=DEVICE)[:, None]
    monkeypatch.setattr(torch, "empty", torch.zeros)
    union = inverted_index.union(lists, where, tokens=4, dense_from=2, most=0, chunk=chunk)
    if union.keys is None:
        assert union.lists.flatten().tolist() == [0, -1, -1, 2, -1, -1, -1, -1]
    else:
        past = union.rest_keys + where.bins
        assert (union.keys.view(4, 2) == past).tolist() == [[False, False], [True, False], [True, False], [True, False]]


@pytest.mark.parametrize("keep", [False, True], ids=["sum", "sum and o"])
def test_the_gated_sum_of_what_was_shared_and_what_was_not(keep: bool) -> None:
    """Some tiles whole, some in two parts, of which the first lies meanwhile where the sum or o will be."""
    qkv, indices, _, _ = problem(**SHAPES["many blocks"])
    want = reference.selected_attention(*(x.to(MAIN).double() for x in qkv), indices, MANY)
    q, k, v, idx = low(*qkv, indices)
    others = torch.randn(2, *want.shape, device=DEVICE, dtype=MAIN)
    gates = torch.randn(*want.shape[:3], 3, device=DEVICE, dtype=MAIN)
    out = torch.full_like(others[0], float("nan"))
    into = Sum(*others, gates, out, keep)
    o, _ = selected_forward(q, k, v, idx, MANY, q.shape[-1] ** -0.5, schedule=SCHEDULES["mixed"], into=into)
    parts = torch.stack([others[0].cpu().double(), want, others[1].cpu().double()], -1)
    close(out, (parts * gates.cpu().double()[..., None, :]).sum(-1))
    if keep:
        close(o, want)


def test_runs_hold_each_pair_once_in_order() -> None:
    """Each block's queries ascend over its segments; a block chosen by all is cut into several."""
    config = SMALL
    positions = token_positions(2, 33)
    indices = random_indices(positions, 2, 4, config)
    indices[..., 0, 0] = torch.where((indices[..., 0, :] == 0).any(-1), indices[..., 0, 0], 0)
    q, k = (torch.zeros(2, 33, heads, 16, device=DEVICE) for heads in (4, 2))
    where = inverted_index.places(q, k, config.l_sel)
    flat = indices.flatten(0, 1).to(DEVICE)
    last = 2 * where.bins
    segments = inverted_index.segments(inverted_index.pair_keys(flat, where), last, 8, last)
    found: dict[int, list[int]] = {}
    for number, key in enumerate(segments.segment_key.tolist()):
        if key < last:
            begin = int(segments.edges[key]) + (number - int(segments.segment_edges[key])) * 8
            pairs = segments.order[begin : min(begin + 8, int(segments.edges[key + 1]))].tolist()
            assert pairs
            found.setdefault(key, []).extend(pairs)
    assert all(pairs == sorted(pairs) for pairs in found.values())
    assert sorted(p for pairs in found.values() for p in pairs) == (flat.cpu().flatten() >= 0).nonzero()[:, 0].tolist()
    for key, pairs in found.items():
        for pair in pairs:
            n, h, slot = pair // 8, pair // 4 % 2, pair % 4
            start = int(flat[n, h, slot]) * config.l_sel + n // 33 * 33
            assert key // where.bins == h and int(where.blocks[0, key % where.bins]) == start


@pytest.mark.parametrize(("count", "last_key"), [(500, 300), (1, 5), (700, 3), (64, 40000)])
def test_runs_of_any_keys(count: int, last_key: int) -> None:
    """Keys that no pair has, keys of many segments, padding, and more keys than 16 bits hold."""
    keys = torch.randint(last_key + 3, (count,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    segments = inverted_index.segments(keys.to(DEVICE), last_key, 8, last_key)
    counts = torch.bincount(keys.clamp(max=last_key), minlength=last_key + 1)[:last_key]
    parts = (counts + 7) // 8
    assert segments.edges.tolist() == [0, *counts.cumsum(0).tolist()]
    assert segments.segment_edges.tolist() == [0, *parts.cumsum(0).tolist()]
    expected = torch.arange(last_key).repeat_interleave(parts).tolist()
    assert segments.segment_key.tolist()[: len(expected)] == expected
    assert all(key >= last_key for key in segments.segment_key.tolist()[len(expected) :])
    assert segments.order.cpu().tolist() == keys.sort(stable=True).indices.tolist()


def test_reachable_bounds_the_blocks_of_each_chunk() -> None:
    """One sequence of 20 tokens, blocks of 8, chunks of 8 queries: 1, 2 and 3 blocks; of two in chunks of their own: 3
    each. Of packed ones those that begin before the chunk ends: in 40 keys 1, 2, ... and 5, and one for a border.
    """
    one, two = (torch.zeros(batch, 20, 1, 16, device=DEVICE) for batch in (1, 2))
    assert inverted_index.places(one, one, 8).reachable(8) == 1 + 2 + 3
    assert inverted_index.places(two, two, 8).reachable(20) == 3 + 3
    packed, borders = torch.zeros(1, 40, 1, 16, device=DEVICE), torch.tensor([0, 13, 40], dtype=torch.int32)
    assert inverted_index.places(packed, packed, 8, borders.to(DEVICE)).reachable(8) == 2 + 3 + 4 + 5 + 6


@pytest.mark.parametrize("chunk", [1, 5, 16, 100])
@pytest.mark.parametrize("how", ["dense", "packed", "chunks of a prefill"])
def test_what_all_may_choose_is_reachable(how: str, chunk: int) -> None:
    """Every query chooses every block that it may."""
    lengths, batch, tokens, keys, l_sel = (0, 9, 1, 14, 27), (1 if how == "packed" else 3), 51, 51, 8
    if how == "chunks of a prefill":
        tokens, keys = 7, 40
    borders = torch.tensor([0, *lengths]).cumsum(0).int() if how == "packed" else None
    starts = torch.tensor([0, 17, 33]) if tokens < keys else None
    positions = token_positions(batch, tokens, cu_seqlens=borders, q_start=starts).expand(batch, tokens)
    every = torch.arange(cdiv(keys, l_sel)).expand(batch, tokens, 1, -1)
    indices = torch.where(every <= positions[:, :, None, None] // l_sel, every, -1).int().flatten(0, 1).to(DEVICE)
    q, k = (torch.zeros(batch, size, 1, 16, device=DEVICE) for size in (tokens, keys))
    given = (x if x is None else x.to(DEVICE) for x in (borders, starts))
    where = inverted_index.places(q, k, l_sel, *given)
    found = int((chunked_index.segments(indices, where, chunk, 8).edges.diff() > 0).sum())
    assert found <= where.reachable(chunk) <= cdiv(batch * tokens, chunk) * where.bins


@pytest.mark.slow
def test_gradients_repeat_bit_for_bit() -> None:
    qkv, indices, _, _ = problem(tokens=60, group=4)
    q, k, v, idx = low(*qkv, indices)
    o, lse = selected_forward(q, k, v, idx, SMALL, 0.25)
    do = torch.randn_like(o)
    first, *others = (
        selected_backward(do, q, k, v, backward_preprocess(do, o, lse), idx, SMALL, 0.25) for _ in range(3)
    )
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_more_pairs_than_31_bits_number_are_refused() -> None:
    keys = torch.empty(1 << 31, dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match=r"2147483648 pairs .* more than 2\^31 - 1"):
        inverted_index.segments(keys, 8, 128, 8)


@pytest.mark.parametrize("chunk", [16, 1000])
def test_segments_of_chunks_hold_each_pair_once(chunk: int) -> None:
    """Those of a key are its pairs in any order, cut as they come; a query that chose a block twice has it twice."""
    _, indices, _, _ = problem(tokens=41, group=1)
    indices = indices.to(DEVICE)
    indices[0, 40, 0, 1] = indices[0, 40, 0, 0] = 0
    (_, rows, heads, slots), pairs = indices.shape, 5
    q, k = torch.empty(1, rows, heads, 16, device=DEVICE), torch.empty(1, rows, heads, 16, device=DEVICE)
    where = inverted_index.places(q, k, SMALL.l_sel)
    found = chunked_index.segments(indices[0], where, chunk, pairs)
    chunks = -(-rows // chunk)
    expected: dict[int, list[int]] = {}
    for pair, block in enumerate(indices.flatten().tolist()):
        n, h = divmod(pair // slots, heads)
        if block >= 0:
            expected.setdefault((h * chunks + n // chunk) * where.bins + block, []).append(pair)
    order, edges, segment_edges, segment_key = (x.tolist() for x in found.arrays)
    assert {key: sorted(order[edges[key] : edges[key + 1]]) for key in expected} == expected
    assert edges[-1] == sum(map(len, expected.values()))
    assert segment_key[: segment_edges[-1]] == [
        key for key in sorted(expected) for _ in range(-(-len(expected[key]) // pairs))
    ]


def test_more_segments_than_there_can_be_stay_in_their_room() -> None:
    """Of unchecked blocks that lie in the future: two of each query, of which the first half may choose one."""
    tokens = 2 * SMALL.l_sel
    indices = torch.tensor([0, 1], dtype=torch.int32, device=DEVICE).expand(tokens, 1, 2).contiguous()
    q, k = (torch.empty(1, tokens, 1, 16, device=DEVICE) for _ in range(2))
    where = inverted_index.places(q, k, SMALL.l_sel)
    found = chunked_index.segments(indices, where, 1, 8)
    assert where.reachable(1) < indices.numel()
    assert found.segment_edges.max() == found.segment_key.numel() < indices.numel()
