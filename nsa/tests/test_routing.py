"""The dispatch table, and the record of what ran. No GPU is needed to ask what one would run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from nsa import NSAConfig, explain_routing, flags, nsa_attention, ops, profiles, routing
from nsa.device import device_name
from nsa.routing import registry
from nsa.routing.policy import decide
from nsa.routing.record import paused
from nsa.tests.decoding import SMALL, Inputs
from nsa.tests.testing import Problem, expect_route

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PROBLEM = Problem(CONFIG, tokens=40, kv_heads=2, group_size=2)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A device of any compute capability with every backend able to run everything it implements."""
    machine = SimpleNamespace(capability=(9, 0), reason={})
    real_load = registry.load
    able = {
        name: SimpleNamespace(supports=lambda r, n=name: machine.reason.get(n)) for name in ("triton", "fa2", "cuda")
    }
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: machine.capability)
    monkeypatch.setattr(registry, "missing", lambda name: None)
    monkeypatch.setattr(registry, "load", lambda name: able.get(name) or real_load(name))
    yield machine


def request(operation: str, **facts: object) -> routing.Request:
    tokens = 1 if operation == "decode" else 8192
    shape = {"batch": 1, "tokens": tokens, "keys": 8192, "heads": 64, "kv_heads": 4, "dk": 128, "dv": 128}
    facts = {"device": torch.device("cuda"), "dtype": torch.bfloat16, **shape, "config": NSAConfig(), **facts}
    return routing.Request(operation, **facts)


def chosen(
    operation: str, choice: routing.BackendChoice = None, *, facts: dict | None = None, **flag: object
) -> routing.Decision:
    decision = decide(request(operation, **(facts or {})), choice, flags.Flags(**flag))
    assert decision is not None
    return decision


def test_hopper_prefers_triton(gpu: SimpleNamespace) -> None:
    for operation in ("rotate", "compress", "compressed", "select", "selected", "window", "combine", "attention"):
        decision = chosen(operation)
        assert (decision.backend, decision.fallback, decision.requested) == ("triton", False, None)


def test_ada_takes_triton_selection_where_it_fits(gpu: SimpleNamespace) -> None:
    gpu.capability = (8, 9)
    for tokens in (1, 96, 8192):
        assert chosen("selected", facts={"tokens": tokens}).backend == "triton"
        assert chosen("attention", facts={"tokens": tokens}).backend == "triton"
    assert chosen("selected", use_triton_sel=False).backend == "torch"
    assert "NSA_SEL_TRITON_GROUP=0" in chosen("selected", sel_triton_group=False).reason
    assert chosen("selected", sel_triton_group=True).backend == chosen("selected").backend == "triton"
    gpu.reason = {"triton": "64 query heads share a KV head, more than a tile's 32"}
    wide = chosen("selected")
    assert (wide.backend, wide.fallback) == ("torch", True) and "a tile's 32" in wide.reason


def test_what_a_profile_keeps_off_is_off_unless_forced(gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = replace(profiles.load("sm90"), sel_triton_min_L=profiles.Measured(None, "a measurement"))
    monkeypatch.setattr(profiles, "for_device", lambda device: measured)
    off = chosen("selected")
    assert off.backend == "torch" and not off.fallback and off.overruled and "(a measurement)" in off.reason
    asked = chosen("selected", use_triton_sel=True)
    assert asked.backend == "torch" and asked.fallback and asked.requested == "triton"
    forced = chosen("selected", use_triton_sel=True, triton_sel_force=True)
    assert (forced.backend, forced.fallback, forced.overruled) == ("triton", False, False)
    assert chosen("selected", "triton").backend == "triton"


def test_strict_refuses_what_nobody_but_a_profile_keeps_off(gpu: SimpleNamespace) -> None:
    """The caller's own arguments and flags are no reason to refuse; that nothing has such a kernel is none either."""
    gpu.capability = (8, 0)

    def run(operation: str, backend: str | None = None, **flag: object) -> str:
        with flags.using(**flag), paused():  # nothing runs on the device that is pretended
            asked = request(operation, tokens=96)
            decision = routing.decided(asked, backend, strict=True)
            return routing.carry_out(decision, asked, lambda module: module.__name__)

    with pytest.raises(routing.RoutingError, match="would run on torch: triton: 96 tokens, fewer than sel_triton_min"):
        run("selected")
    for case in (
        {"operation": "selected", "backend": "torch"},
        {"operation": "selected", "use_triton_sel": False},
        {"operation": "selected", "sel_triton_min_l": 100},
    ):
        assert run(**case) == "nsa.fallback.torch"


def test_amd_s_gpus_are_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch calls them cuda, and one of them has the compute capability 9.4."""
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 4))
    found = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: found)
    backend, whole = registry.load("triton"), request("attention")
    for interpreted in (False, True):
        monkeypatch.setattr(backend, "INTERPRETED", interpreted)
        assert backend.supports(request("selected")) is not None
    monkeypatch.setattr(backend, "INTERPRETED", False)
    assert whole.capability is None and profiles.for_device(whole.device).name == "rocm"
    assert device_name(whole.device) == "rocm:gfx942"
    decision = chosen("selected")
    assert decision.backend == "torch" and decision.fallback
    assert decision.reason.startswith(
        "triton: kernels are written for NVIDIA GPUs, and this PyTorch is built for AMD's"
    )
    with pytest.raises(routing.RoutingError, match=r"cannot run this call: kernels are written for NVIDIA GPUs"):
        routing.decided(request("selected"), "triton")


def test_a_short_row_below_the_minimum_is_a_fallback_when_triton_was_asked_for(gpu: SimpleNamespace) -> None:
    gpu.capability = (8, 0)
    asked = chosen("selected", facts={"tokens": 96}, use_triton_sel=True)
    assert asked.backend == "torch" and asked.fallback
    assert "96 tokens, fewer than sel_triton_min_L=4096" in asked.reason
    lowered = chosen("selected", facts={"tokens": 96}, use_triton_sel=True, sel_triton_min_l=64)
    assert lowered.backend == "triton"


def test_gradients_can_keep_triton_selection_out(gpu: SimpleNamespace) -> None:
    needs_grad = {"needs_grad": True}
    assert chosen("selected", facts=needs_grad).backend == "triton"
    assert chosen("selected", facts=needs_grad, sel_triton_allow_grad=False).backend == "torch"
    assert chosen("selected", sel_triton_allow_grad=False).backend == "triton"


def test_fa2_is_opt_in_and_has_its_thresholds(gpu: SimpleNamespace) -> None:
    assert chosen("window", use_fa2=True).backend == "fa2"
    short = chosen("window", facts={"tokens": 10}, use_fa2=True)
    assert short.backend == "triton" and short.fallback and "fa2_min_len_win=16" in short.reason
    assert chosen("window", facts={"tokens": 10}, fa2_force=True).backend == "fa2"
    assert chosen("compressed", use_fa2=True, fa2_min_len_cmp=9000).backend == "triton"
    gpu.capability = (8, 9)
    assert "fa2_min_len_win=999999" in chosen("window", use_fa2=True).reason


def test_fused_attention_gives_way_to_a_part_asked_of_another(gpu: SimpleNamespace) -> None:
    assert decide(request("attention"), None, flags.Flags(use_fa2=True)) is None
    assert decide(request("attention"), {"selected": "torch"}, flags.Flags()) is None


def test_what_a_backend_cannot_do_is_its_reason(gpu: SimpleNamespace) -> None:
    gpu.reason = {"triton": "head dimension 300 is above 256"}
    decision = chosen("selected")
    assert decision.backend == "torch" and decision.fallback and "head dimension 300" in decision.reason


def test_argument_beats_flag_beats_profile(gpu: SimpleNamespace) -> None:
    assert chosen("selected", "torch", use_triton_sel=True).backend == "torch"
    assert chosen("selected", use_triton_sel=False).backend == "torch"
    assert chosen("window", backend="fa2", use_fa2=None).fallback  # the threshold policy still asks for NSA_USE_FA2


def test_profiles_name_their_measurements() -> None:
    for name in profiles.NAMES:
        profile = profiles.load(name)
        assert profile.name == name and profile.kernels_timed
        assert all(value.source for value in vars(profile).values() if not isinstance(value, str))
    with pytest.raises(ValueError, match="unknown hardware profile 'sm99'"):
        profiles.load("sm99")


def test_unknown_architectures_take_the_nearest_older_profile(gpu: SimpleNamespace) -> None:
    for capability, name in (((8, 6), "sm80"), ((10, 0), "sm90"), ((12, 1), "sm120"), ((7, 5), "sm80")):
        gpu.capability = capability
        assert profiles.for_device(torch.device("cuda")).name == name


def test_dense_crossover_takes_the_next_smaller_group() -> None:
    measured = profiles.Measured({4: 16384, 16: 8192}, "x"), profiles.Measured({4: 8192}, "x")
    profile = profiles.Profile("x", *[profiles.Measured(0, "")] * 3, *measured)
    assert [profile.dense_crossover(size) for size in (1, 4, 6, 16, 64)] == [0, 16384, 16384, 8192, 8192]
    assert [profile.dense_crossover(size, grad=True) for size in (1, 4, 16)] == [0, 8192, 8192]


@pytest.mark.parametrize(
    ("needs_grad", "words"),
    [(False, "forward: faster below 8200 tokens"), (True, "forward and backward: not faster from 5300 tokens on")],
)
def test_an_explanation_says_where_dense_attention_is_faster(needs_grad: bool, words: str) -> None:
    shape = {"tokens": 6000, "heads": 64, "kv_heads": 4, "dk": 128, "device": "cpu", "needs_grad": needs_grad}
    with flags.using(profile="sm90"):
        assert f"dense attention, {words}" in str(explain_routing(**shape)).splitlines()


# --- what ran ---


def test_record_sees_every_operation_in_order() -> None:
    with routing.record() as outer, routing.record() as inner:
        PROBLEM.attention(nsa_attention)(**PROBLEM.tensors())
    assert [route.operation for route in inner] == [
        "compress", "compress", "compressed", "select", "selected", "window", "combine"
    ]  # fmt: skip
    assert list(outer) == list(inner)
    assert {str(route) for route in inner} == {"torch@cpu"}


def test_a_fallback_is_recorded_and_strict_makes_it_an_error() -> None:
    x = PROBLEM.tensors()
    run = PROBLEM.attention(nsa_attention)
    with flags.using(use_fa2=True, fa2_min_len_win=1), routing.record() as recording:
        run(**x)
    (window,) = recording.of("window")
    assert (window.requested, window.backend, window.fallback) == ("fa2", "torch", True)
    assert window.reason.startswith("fa2: ")
    with (
        flags.using(use_fa2=True, fa2_min_len_win=1),
        pytest.raises(routing.RoutingError, match="on torch: fa2: flash"),
    ):
        PROBLEM.attention(nsa_attention, strict=True)(**x)
    with flags.using(strict=True, use_fa2=True), pytest.raises(routing.RoutingError):
        PROBLEM.attention(nsa_attention)(**x)


@pytest.mark.parametrize("backend", ["triton", {"selected": "triton"}, {"attention": "triton"}, "cuda"], ids=str)
def test_a_backend_that_the_call_names_and_that_cannot_run_is_an_error(
    backend: routing.BackendChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.load("triton"), "INTERPRETED", False)
    x = PROBLEM.tensors()
    with pytest.raises(
        routing.RoutingError, match=r"backend='(triton|cuda)' cannot run this call: .*would run on torch"
    ):
        PROBLEM.attention(nsa_attention, backend=backend)(**x)
    with pytest.raises(
        routing.RoutingError, match="decode: backend='triton' cannot run this call: kernels need a CUDA"
    ):
        token = Inputs.random(1)
        ops.nsa_decode(token.q, token.k, token.v, token.gates, token.cache(SMALL), backend="triton")
    said = explain_routing(CONFIG, tokens=100, heads=4, kv_heads=2, dk=16, device="cpu", backend=backend)
    assert "selected    -       REFUSED: " in str(said)
    PROBLEM.attention(nsa_attention)(**x)  # by itself it takes what can


def test_a_part_that_the_named_backend_lacks_is_none_that_it_was_asked_for() -> None:
    with routing.record() as recording:
        PROBLEM.attention(nsa_attention, backend="torch")(**PROBLEM.tensors())
        PROBLEM.attention(nsa_attention, backend={"attention": "torch"})(**PROBLEM.tensors())
    assert {route.backend for route in recording} == {"torch"}


def test_expect_route_fails_what_ran_elsewhere() -> None:
    x = PROBLEM.tensors()
    with expect_route(window="torch"):
        ops.sliding_window_attention(x["q"], x["k_win"], x["v_win"], 5)
    with pytest.raises(AssertionError, match="window ran on torch@cpu, expected triton"), expect_route(window="triton"):
        ops.sliding_window_attention(x["q"], x["k_win"], x["v_win"], 5)
    with pytest.raises(AssertionError, match="selected did not run"), expect_route(selected="torch"):
        pass
    with pytest.raises(AssertionError, match="expected it on cuda"), expect_route(window="torch", device="cuda"):
        ops.sliding_window_attention(x["q"], x["k_win"], x["v_win"], 5)


def test_debug_flags_record_error_and_time(caplog: pytest.LogCaptureFixture) -> None:
    with flags.using(debug_compare=True, debug_timing=True, log_limit=1), routing.record() as recording:
        PROBLEM.attention(nsa_attention)(**PROBLEM.tensors())
        PROBLEM.attention(nsa_attention)(**PROBLEM.tensors())
    (route, _) = recording.of("selected")
    assert route.seconds is not None and route.mean_abs_error is not None
    assert route.mean_abs_error < 1e-6
    assert len([line for line in caplog.messages if '"selected"' in line]) <= 1
    assert len(recording) == 14  # the oracle's own work is not recorded


@pytest.mark.parametrize("operation", ["attention", "compressed", "select", "selected", "window", "combine", "decode"])
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)])
def test_groups_of_64_heads_run_on_the_kernels(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], operation: str
) -> None:
    backend = registry.load("triton")
    monkeypatch.setattr(backend, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    for width in (64, 128, 192, 256):
        for grad in (False, True):
            facts = {"kv_heads": 1, "dk": width, "dv": width, "needs_grad": grad}
            assert backend.supports(request(operation, **facts)) is None
            too_many = backend.supports(request(operation, **facts | {"heads": 67}))  # nor any parts of them
            assert too_many is not None and too_many.startswith("67 query heads share a KV head, ")


def test_groups_of_64_heads_do_not_fit_in_fp32(monkeypatch: pytest.MonkeyPatch, gpu: SimpleNamespace) -> None:
    backend = importlib.import_module("nsa.kernels.backend")
    monkeypatch.setattr(backend, "INTERPRETED", False)
    wide = {"kv_heads": 1, "dtype": torch.float32}
    assert backend.supports(request("selected", heads=32, **wide)) is None
    found = backend.supports(request("selected", heads=33, **wide))
    assert found == "33 query heads share a KV head, more than a tile's 32"
    assert all(backend.supports(request("decode", heads=heads, **wide)) is None for heads in (64, 65, 80, 96, 128, 256))
    found = backend.supports(request("decode", heads=67, **wide))
    assert found == "67 query heads share a KV head, which make no 16 or fewer equal parts of at most 64 heads"


def test_a_step_takes_no_more_tokens_than_its_kernels(monkeypatch: pytest.MonkeyPatch, gpu: SimpleNamespace) -> None:
    backend = importlib.import_module("nsa.kernels.backend")
    monkeypatch.setattr(backend, "INTERPRETED", False)
    for config, most in ((CONFIG, 8), (replace(CONFIG, w=3), 3)):
        assert backend.supports(request("decode", config=config, tokens=most)) is None
        found = backend.supports(request("decode", config=config, tokens=most + 1))
        assert found == f"{most + 1} new tokens of a sequence are more than the {most} that one step takes"


def test_a_step_of_several_tokens_gives_way_where_a_part_of_it_is_asked_of_another(gpu: SimpleNamespace) -> None:
    asked = {"decode": "triton", "window": "torch"}
    assert chosen("decode", asked, facts={"tokens": 1}).backend == "triton"
    decision = chosen("decode", asked, facts={"tokens": 4})
    assert (decision.backend, decision.declined) == ("torch", (("triton", "window is asked of torch"),))


@pytest.mark.parametrize("operation", ["attention", "select", "decode"])
def test_no_more_blocks_are_chosen_than_the_kernels_put_in_order(
    monkeypatch: pytest.MonkeyPatch, gpu: SimpleNamespace, operation: str
) -> None:
    backend = importlib.import_module("nsa.kernels.backend")
    monkeypatch.setattr(backend, "INTERPRETED", False)
    many, more = replace(CONFIG, n_sel=128), replace(CONFIG, n_sel=129)
    assert backend.supports(request(operation, config=many)) is None
    found = backend.supports(request(operation, config=more))
    assert found == "a query selects 129 blocks, more than the 128 that the kernels put in order"
    assert backend.supports(request("selected", config=more)) is None  # which is given blocks


def test_explain_routing_answers_without_running() -> None:
    with routing.record() as recording:
        found = explain_routing(CONFIG, tokens=100, heads=4, kv_heads=2, dk=16, device="cpu", backend="triton")
    assert recording == []
    answer = found.as_json()
    assert {"compress", "compressed", "select", "selected", "window", "combine"} <= answer.keys()
    assert answer["selected"]["requested"] == "triton"
    assert "selected" in str(found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sm80", "never timed"),
        ("sm89", "never timed"),
        ("sm90", "H200"),
        ("sm120", "never timed"),
        ("rocm", "do not run"),
    ],
)
def test_an_explanation_says_whether_the_kernels_were_timed(name: str, words: str) -> None:
    with flags.using(profile=name):
        said = str(explain_routing(CONFIG, tokens=4096, heads=8, kv_heads=2, dk=64, device="cpu"))
    assert f"profile {name}" in said and words in said.splitlines()[-1]
    assert ("no crossover measured" in said) == (name != "sm90")
