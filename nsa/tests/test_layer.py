"""NativeSparseAttention: one result with and without a cache, packed or not; positions, gates, gradients."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from torch import Tensor, nn

from nsa import NativeSparseAttention, NSACache, NSAConfig, reference, routing
from nsa.rope import frequencies, rotate
from nsa.tests.kernel_cases import DEVICE

CONFIG = NSAConfig(l=8, d=4, l_sel=8, n_sel=4, w=13)
VARIANTS = [
    {"phi": "mean", "gate": "sigmoid", "shared_kv": False},
    {"phi": "weighted", "gate": "softmax", "shared_kv": True},
    {"phi": "mlp", "gate": "sigmoid", "shared_kv": True},
    {"phi": "mlp", "gate": "softmax", "shared_kv": False, "rope_base": None, "bias": True},
]


def layer(**options: object) -> NativeSparseAttention:
    """dim 12, Hq = 4, Hkv = 2, dk 6, dv 5, fp64, with learned parts away from their beginnings."""
    torch.manual_seed(0)
    made = NativeSparseAttention(12, 4, 2, CONFIG, dk=6, dv=5, **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def tokens(count: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, count, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: f"{o['phi']}-{o['gate']}")
def test_with_a_cache_as_without(options: dict[str, object]) -> None:
    attention, x = layer(**options), tokens(90)
    expected = attention(x)
    cache = attention.new_cache(2, capacity=4)
    borders = [0, 5, 6, 7, 8, 40, *range(41, 91)]
    found = [attention(x[:, start:end], cache) for start, end in itertools.pairwise(borders)]
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: f"{o['phi']}-{o['gate']}")
def test_packed_as_apart(options: dict[str, object]) -> None:
    attention, x = layer(**options), tokens(70, batch=1)
    borders = torch.tensor([0, 1, 1, 31, 70], dtype=torch.int32)
    apart = [attention(x[:, start:end]) for start, end in itertools.pairwise(borders.tolist())]
    torch.testing.assert_close(attention(x, cu_seqlens=borders), torch.cat(apart, 1), rtol=0, atol=1e-12)


def test_it_is_the_oracle_between_its_projections() -> None:
    """Positions as stated: own for queries, sel and win keys; i*d for compressed keys, made from unrotated ones."""
    attention, x = layer(phi="weighted"), tokens(50)
    at = torch.arange(50)[None]
    q = rotate(attention.to_q(x).unflatten(-1, (4, 6)), at, 10000.0)
    k, v = (attention.to_k(x).unflatten(-1, (3, 2, 6)).unbind(2), attention.to_v(x).unflatten(-1, (3, 2, 5)).unbind(2))
    k_cmp = reference.compress(k[0], CONFIG, phi=attention.compress_k.phi(x.dtype))
    v_cmp = reference.compress(v[0], CONFIG, phi=attention.compress_v.phi(x.dtype))
    k_cmp = rotate(k_cmp, torch.arange(k_cmp.shape[1])[None] * CONFIG.d, 10000.0)
    keys = (k[0], rotate(k[1], at, 10000.0), rotate(k[2], at, 10000.0))
    gates = attention.to_gates(x).sigmoid().unflatten(-1, (4, 3))
    o = reference.nsa_attention(q, keys, v, gates, CONFIG, compressed=(k_cmp, v_cmp))
    torch.testing.assert_close(attention(x), attention.to_out(o.flatten(2)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_rotation_turns_pairs_of_halves(dtype: torch.dtype) -> None:
    assert frequencies(8, 1e4, torch.device("cpu")).tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001])
    x, at = torch.randn(2, 5, 3, 8).to(dtype), torch.randint(0, 1 << 20, (2, 5))
    turned = rotate(x, at, 1e4)
    assert turned.dtype == dtype
    for i in range(4):
        angle = (at.float() * frequencies(8, 1e4, x.device)[i])[..., None]
        first, second, angle = x[..., i], x[..., i + 4], angle.to(torch.promote_types(dtype, torch.float32))
        torch.testing.assert_close(turned[..., i], (first * angle.cos() - second * angle.sin()).to(dtype))
        torch.testing.assert_close(turned[..., i + 4], (first * angle.sin() + second * angle.cos()).to(dtype))


@pytest.mark.triton
@pytest.mark.parametrize("packed", [False, True])
def test_it_runs_in_the_kernels_alone(packed: bool) -> None:
    """Rotation, and the means of unrotated keys turned where their spans begin, inside the one operation."""
    torch.manual_seed(0)
    sizes = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
    x = torch.randn(1, 23, 24, device=DEVICE)
    borders = torch.tensor([0, 10, 23], dtype=torch.int32, device=DEVICE) if packed else None
    found = {}
    for backend in ("torch", "triton"):
        torch.manual_seed(0)
        attention = NativeSparseAttention(24, 3, 1, sizes, dk=24, dv=16, backend=backend, rope_base=10.0).to(DEVICE)
        with routing.record() as routes:
            y = attention(x, cu_seqlens=borders)
        y.square().sum().backward()
        found[backend] = [y, *(p.grad for p in attention.parameters())]
    assert {route.backend for route in routes} == {"triton"} and not any(route.fallback for route in routes)
    assert len(routes.of("rotate")) == 3 and not routes.of("compress")
    torch.testing.assert_close(found["triton"], found["torch"], rtol=1e-4, atol=1e-4)


def test_rotation_depends_on_distance_only() -> None:
    q, k = torch.randn(1, 1, 1, 16, dtype=torch.float64), torch.randn(1, 1, 1, 16, dtype=torch.float64)

    def product(m: int, n: int) -> float:
        at = [torch.tensor([[p]]) for p in (m, n)]
        return float((rotate(q, at[0], 1e4) * rotate(k, at[1], 1e4)).sum())

    assert product(7, 3) == pytest.approx(product(1007, 1003), abs=1e-3)  # fp32 angles
    assert abs(product(7, 3) - product(7, 4)) > 1e-3
    assert torch.equal(rotate(q, torch.zeros(1, 1), 1e4), q)


def test_softmax_gates_sum_to_one_in_each_group() -> None:
    gates = layer(gate="softmax").gates(tokens(3))
    assert gates.shape == (2, 3, 4, 3)
    torch.testing.assert_close(gates.sum(-1), torch.ones(2, 3, 4, dtype=torch.float64))
    assert torch.equal(gates[:, :, 0], gates[:, :, 1]) and not torch.equal(gates[:, :, 1], gates[:, :, 2])


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: f"{o['phi']}-{o['gate']}")
def test_every_parameter_learns(options: dict[str, object]) -> None:
    attention = layer(**options)
    attention(tokens(40)).square().sum().backward()
    assert not [name for name, p in attention.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]


@pytest.mark.parametrize("phi", ["mean", "mlp"])
def test_training_goes_on_from_its_state(phi: str) -> None:
    """Weights and the optimizer's state are all that there is."""

    def trained(of: NativeSparseAttention, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            loss = (of(tokens(40)) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    one, other = layer(phi=phi), layer(phi=phi)
    of_one, of_other = (torch.optim.AdamW(x.parameters(), 1e-2) for x in (one, other))
    trained(one, of_one, 2)
    other.load_state_dict(one.state_dict())
    of_other.load_state_dict(copy.deepcopy(of_one.state_dict()))
    assert trained(one, of_one, 3) == trained(other, of_other, 3)


def test_low_precision_and_autocast() -> None:
    attention = layer(phi="mlp").float()
    x = tokens(60).float()
    expected = attention(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(attention(x).float(), expected, rtol=0.1, atol=0.1)
        cache = attention.new_cache(2, dtype=torch.bfloat16)
        torch.testing.assert_close(attention(x, cache).float(), expected, rtol=0.1, atol=0.1)
    half = attention.to(torch.bfloat16)
    assert half(x.bfloat16(), half.new_cache(2)).dtype == torch.bfloat16


class Packed(nn.Module):
    """As PyTorch's quantised Linear, its weight is a method, and no parameter; as many wrappers, it has no sizes."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        self._of = [of]

    def weight(self) -> Tensor:
        return self._of[0].weight

    def forward(self, x: Tensor) -> Tensor:
        return self._of[0](x)


@pytest.mark.parametrize("phi", ["mean", "mlp"])
def test_a_quantised_layer_has_a_cache(phi: str) -> None:
    attention, x = layer(phi=phi).float(), tokens(20).float()
    expected = attention(x)
    for name, module in list(attention.named_children()):
        if isinstance(module, nn.Linear):
            setattr(attention, name, Packed(module))
    with torch.no_grad():
        cache = attention.new_cache(2)
        found = torch.cat([attention(x[:, :13], cache), attention(x[:, 13:], cache)], dim=1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("phi", ["weighted", "mlp"])
def test_whoever_wraps_its_parts_sees_each_called(phi: str) -> None:
    attention, called = layer(phi=phi), set()
    for name, part in attention.named_children():
        part.register_forward_hook(lambda *_, name=name: called.add(name))
    attention(tokens(20))
    assert called == {name for name, _ in attention.named_children()}


def test_arguments_are_stronger_than_flags() -> None:
    with pytest.raises(routing.RoutingError, match="selected"):
        layer(backend={"selected": "cuda"}, strict=True)(tokens(9))


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"n_kv_heads": 3}, "multiple of n_kv_heads=3"),
        ({"dk": 5}, "rotary positions need an even head dimension, got 5"),
        ({"phi": "max"}, "phi must be one of mean, weighted, mlp"),
        ({"gate": "tanh"}, "gate must be one of sigmoid, softmax"),
    ],
)
def test_refusals(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        NativeSparseAttention(**{"dim": 16, "n_heads": 4, "n_kv_heads": 2, **options})


def test_a_cache_is_the_layers_own() -> None:
    x = tokens(9)
    for attention in (layer(), layer(phi="mlp")):
        double = {"batch": 2, "n_kv_heads": 2, "dk": 6, "dv": 5, "dtype": torch.float64}
        foreign = [NSACache(CONFIG, **double), NSACache(NSAConfig(), **double), layer(phi="mlp").new_cache(2)]
        for cache in (*foreign, layer(rope_base=None).new_cache(2)):
            with pytest.raises(ValueError, match="must be one of new_cache"):
                attention(x, cache)
        with pytest.raises(ValueError, match="counts are of a step with a cache"):
            attention(x, counts=[3, 3])


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: f"{o['phi']}-{o['gate']}")
@pytest.mark.parametrize("page_size", [None, 8])
def test_a_copied_cache_goes_on_by_itself(options: dict[str, object], page_size: int | None) -> None:
    """Two ways to go on from one prompt, in one layer; copied together, the copies belong together."""
    attention, x = layer(**options), tokens(60)
    other = torch.cat([x[:, :30], x[:, 30:].flip(1)], 1)
    with torch.no_grad():
        cache = attention.new_cache(2, page_size=page_size)
        attention(x[:, :30], cache)
        branched = copy.deepcopy(cache)
        both = copy.deepcopy((attention, cache))
        for way, of, held in ((x, attention, cache), (other, attention, branched), (other, *both)):
            found = [of(way[:, at : at + 1], held) for at in range(30, 60)]
            torch.testing.assert_close(torch.cat(found, 1), attention(way)[:, 30:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("phi", ["mean", "weighted", "mlp"])
def test_a_pickled_cache_holds_no_weights_and_goes_on_in_its_layer(phi: str) -> None:
    attention, x = layer(phi=phi), tokens(60)
    with torch.no_grad():
        cache = attention.new_cache(2)
        attention(x[:, :30], cache)
        kept = pickle.dumps(cache)
        assert len(kept) < len(pickle.dumps((attention, cache))) - sum(p.nbytes for p in attention.parameters())
        together = pickle.loads(pickle.dumps((attention, cache)))
        for of, held in ((attention, pickle.loads(kept)), together):
            found = [of(x[:, at : at + 1], held) for at in range(30, 60)]
            torch.testing.assert_close(torch.cat(found, 1), attention(x)[:, 30:], rtol=0, atol=1e-12)
        if phi == "mean":
            return
        with pytest.raises(ValueError, match="must be one of new_cache"):
            layer(phi="mlp" if phi == "weighted" else "weighted")(x, pickle.loads(kept))
        k, v = attention.project(x, torch.arange(60)[None].expand(2, -1))[1:3]
        with pytest.raises(ValueError, match="goes on by a call of its layer"):
            pickle.loads(kept).append(k, v)


def test_a_cache_excludes_packing() -> None:
    attention = layer()
    with pytest.raises(ValueError, match="not both"):
        attention(tokens(3, batch=1), attention.new_cache(1), cu_seqlens=torch.tensor([0, 3], dtype=torch.int32))
