"""docs/models.md as it stands: with torchtitan and Megatron-LM where they are installed, else with what stands in for
the interfaces that its code uses."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nsa

PAGE = Path(nsa.__file__).parents[1] / "docs/models.md"
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)+)", PAGE.read_text(), re.M))
SIZES = nsa.NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=16)
HEADS, KV_HEADS, DIM, BORDERS = 4, 2, 16, [0, 40, 96]


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


needs_torchtitan = pytest.mark.skipif(not installed("torchtitan"), reason="torchtitan is not installed")
needs_megatron = pytest.mark.skipif(not installed("megatron"), reason="megatron-core is not installed")


class StandIn(nn.Module):
    """torchtitan's and Megatron's modules, as far as the page uses them."""

    @dataclass(kw_only=True)
    class Config:
        pass

    def __init__(self, config: object = None) -> None:
        super().__init__()


STAND_INS = {
    "torchtitan.protocols.module": {"Module": StandIn},
    "torchtitan.models.common.attention": {"VarlenAttention": StandIn},
    "megatron.core.transformer.module": {"MegatronModule": StandIn},
    "megatron.core.transformer.utils": {"make_sharded_tensors_for_checkpoint": lambda state, *rest: state},
}


@pytest.fixture
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the code of a section of the page defines."""
    for name, content in STAND_INS.items():
        if not installed(name.partition(".")[0]):
            module = ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)
    code = "".join(re.findall(r"(?:^(?:    .*)?\n)+", SECTIONS[request.param], re.M))
    names: dict[str, Any] = {"__name__": "shown"}
    monkeypatch.setitem(sys.modules, "shown", ModuleType("shown"))  # where dataclasses look for what they annotate
    exec(compile(re.sub(r"^    ", "", code, flags=re.M), str(PAGE), "exec"), names)
    return names


def inputs(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v [B,T,heads,DIM]."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, length, heads, DIM, requires_grad=True) for heads in (HEADS, KV_HEADS, KV_HEADS))
    return q, k, v


def expected(q: Tensor, k: Tensor, v: Tensor, weight: Tensor, borders: Tensor | None = None) -> Tensor:
    gates = torch.stack([(q * weight[..., i]).sum(-1) for i in range(3)], -1).sigmoid()
    return nsa.reference.nsa_attention(q, (k,) * 3, (v,) * 3, gates, SIZES, scale=DIM**-0.5, cu_seqlens=borders)


def learned(gates: nn.Parameter) -> nn.Parameter:
    with torch.no_grad():
        return gates.normal_()


@pytest.mark.parametrize("shown", ["torchtitan"], indirect=True)
@pytest.mark.parametrize("packed", [False, True])
def test_an_inner_attention_of_torchtitan(shown: dict[str, Any], packed: bool) -> None:
    of = shown["NSAInnerAttention"]
    inner = of(of.Config(n_heads=HEADS, head_dim=DIM, sizes=SIZES))
    inner.reset_parameters()
    assert not inner.gates.any()
    weight, (q, k, v) = learned(inner.gates), inputs(2, 48)
    borders = torch.tensor(BORDERS, dtype=torch.int32) if packed else None
    o = inner(q, k, v, attention_masks=borders if borders is None else SimpleNamespace(cu_seq_q=borders))
    flat = (x.flatten(0, 1)[None] if packed else x for x in (q, k, v))
    torch.testing.assert_close(o, expected(*flat, weight, borders).view(o.shape), rtol=1e-4, atol=1e-5)
    o.sum().backward()
    assert inner.gates.grad is not None and inner.gates.grad.any() and q.grad is not None


@pytest.mark.parametrize("shown", ["Megatron-LM"], indirect=True)
@pytest.mark.parametrize("packed", [False, True])
def test_a_core_attention_of_megatron(shown: dict[str, Any], packed: bool) -> None:
    of = shown["NSACoreAttention"]
    of.sizes = SIZES
    config = SimpleNamespace(
        context_parallel_size=1, attention_dropout=0.0, tensor_model_parallel_size=1, num_attention_heads=HEADS,
        kv_channels=DIM, params_dtype=torch.float32,
    )  # fmt: skip
    core = of(config, 1, None, "self")
    weight, (q, k, v) = learned(core.gates), inputs(1 if packed else 2, 96)
    if packed:
        borders = torch.tensor(BORDERS, dtype=torch.int32)
        o = core(q[0], k[0], v[0], None, packed_seq_params=SimpleNamespace(cu_seqlens_q=borders))
        torch.testing.assert_close(o, expected(q, k, v, weight, borders)[0].flatten(1), rtol=1e-4, atol=1e-5)
    else:
        o = core(*(x.transpose(0, 1) for x in (q, k, v)), None)
        torch.testing.assert_close(o.transpose(0, 1), expected(q, k, v, weight).flatten(2), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="context_parallel_size 1 and attention_dropout 0"):
        of(SimpleNamespace(**{**vars(config), "attention_dropout": 0.1}), 1, None, "self")


@needs_torchtitan
@pytest.mark.parametrize("shown", ["torchtitan"], indirect=True)
def test_a_model_of_torchtitan(shown: dict[str, Any]) -> None:
    llama3 = pytest.importorskip("torchtitan.models.llama3")
    model = shown["with_nsa"](llama3.llama3_configs["debugmodel"](attn_backend="varlen"), SIZES).build()
    model.init_states()
    tokens = torch.randint(2048, (2, 48))
    positions = torch.arange(48).expand(2, 48) % 24
    masks = model.get_attention_masks(positions)
    logits = model(tokens, attention_masks=masks, positions=positions)
    alone = model(tokens[:1, 24:], positions=positions[:1, :24])
    torch.testing.assert_close(logits[:1, 24:], alone, rtol=1e-3, atol=1e-4)
    logits.sum().backward()
    assert all(layer.attention.inner_attention.gates.grad.any() for layer in model.layers.values())


@needs_megatron
@pytest.mark.parametrize("shown", ["Megatron-LM"], indirect=True)
def test_a_layer_of_megatron(shown: dict[str, Any], tmp_path: Path) -> None:
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.spec_utils import build_module
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    try:
        config = TransformerConfig(
            num_layers=1, hidden_size=HEADS * DIM, num_attention_heads=HEADS, num_query_groups=KV_HEADS,
            attention_dropout=0.0, hidden_dropout=0.0, use_cpu_initialization=True, gradient_accumulation_fusion=False,
        )  # fmt: skip
        shown["NSACoreAttention"].sizes = SIZES
        layer = build_module(shown["with_nsa"](get_gpt_layer_local_spec()), config=config, layer_number=1)
        x = torch.randn(48, 2, HEADS * DIM, requires_grad=True)
        y, _ = layer(x, attention_mask=None)
        y[:40].sum().backward()
        gates = layer.self_attention.core_attention.gates
        assert y.shape == x.shape and gates.grad is not None and gates.grad.any()
        assert x.grad is not None and x.grad[:40].all() and not x.grad[40:].any(), "no token reads a later one"
        state = layer.sharded_state_dict(prefix="layer.")
        assert "layer.self_attention.core_attention.gates" in state
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
