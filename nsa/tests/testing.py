"""Test support for the library: problems, tolerances, judgement against the oracle, and routes as evidence.

`install(config)`, called from a conftest's `pytest_configure`, makes every test write the routes that its body took
into the JUnit properties: `route.<compressed|selected|window|decode>` = `<backend>@<device>[:interpreted]`, one for
each distinct route. The oracle is never recorded, so a parity test shows only what it judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nsa import reference, routing
from nsa.bench.judge import gradients
from nsa.config import NSAConfig
from nsa.ops import nsa_attention

BRANCHES = ("compressed", "selected", "window", "decode")

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Absolute and relative, against the fp64 oracle on the same inputs: values and gradients of order one."""


# --- problems ---


@dataclass(frozen=True)
class Problem:
    """A shape, and the random tensors that belong to it. `lengths` packs sequences and then sets `tokens`; so many
    keys are `before` the queries of each.
    """

    config: NSAConfig
    tokens: int = 0
    batch: int = 1
    kv_heads: int = 1
    group_size: int = 1
    dk: int = 16
    dv: int = 16
    lengths: tuple[int, ...] | None = None
    before: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    seed: int = 0

    @property
    def total(self) -> int:
        """Length of the T axis."""
        return self.tokens if self.lengths is None else sum(self.lengths)

    @property
    def key_lengths(self) -> tuple[int, ...]:
        """Keys of each sequence of a batch entry."""
        lengths = (self.tokens,) if self.lengths is None else self.lengths
        return tuple(map(sum, zip(lengths, self.before or (0,) * len(lengths), strict=True)))

    @property
    def cu_seqlens(self) -> Tensor | None:
        """Borders of the packed sequences, int32 [N+1]."""
        return None if self.lengths is None else self._borders(self.lengths)

    @property
    def cu_seqlens_of_keys(self) -> Tensor | None:
        """Those of their keys."""
        return None if self.lengths is None else self._borders(self.key_lengths)

    def _borders(self, lengths: tuple[int, ...]) -> Tensor:
        return torch.tensor([0, *lengths]).cumsum(0).to(self.device, torch.int32)

    @property
    def where(self) -> dict[str, Tensor | None]:
        """Arguments that say where queries stand."""
        of_keys = {} if self.before is None else {"cu_seqlens_k": self.cu_seqlens_of_keys}
        return {"cu_seqlens": self.cu_seqlens, **of_keys}

    def tensors(self) -> dict[str, Tensor]:
        """q, k_cmp_in, k_sel, k_win, v_cmp_in, v_sel, v_win and gates, normal (gates: in (0, 1))."""
        random = torch.Generator().manual_seed(self.seed)
        queries, keys = (self.batch, self.total), (self.batch, sum(self.key_lengths))
        shapes = {
            "q": (*queries, self.kv_heads * self.group_size, self.dk),
            **{f"k_{branch}": (*keys, self.kv_heads, self.dk) for branch in ("cmp_in", "sel", "win")},
            **{f"v_{branch}": (*keys, self.kv_heads, self.dv) for branch in ("cmp_in", "sel", "win")},
            "gates": (*queries, self.kv_heads * self.group_size, 3),
        }
        made = {name: torch.randn(shape, generator=random, dtype=torch.float64) for name, shape in shapes.items()}
        made["gates"] = made["gates"].sigmoid()
        return {name: x.to(self.device, self.dtype) for name, x in made.items()}

    def attention(self, function: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
        """`function`, an `nsa_attention`, as a function of `tensors()` by name."""

        def call(
            q: Tensor, k_cmp_in: Tensor, k_sel: Tensor, k_win: Tensor, v_cmp_in: Tensor, v_sel: Tensor, v_win: Tensor,
            gates: Tensor,
        ) -> Tensor:  # fmt: skip
            keys, values = (k_cmp_in, k_sel, k_win), (v_cmp_in, v_sel, v_win)
            return function(q, keys, values, gates, self.config, **self.where, **options)

        return call

    def oracle_blocks(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The oracle's selection in fp64: both sides of a parity test use it, so that near-ties cannot differ.

        On the CPU: it looks at every score, for which a GPU that several processes share lets each wait.
        """
        here = replace(self, device="cpu")
        q, k = (tensors[name].detach().cpu().double() for name in ("q", "k_cmp_in"))
        keys = reference.compress(k, self.config, cu_seqlens=here.cu_seqlens_of_keys)
        return reference.select_blocks(q, keys, self.config, **here.where).to(self.device)


def assert_parity(problem: Problem, **options: Any) -> None:
    """`nsa_attention(**options)` equals the fp64 oracle, forward and every gradient, on the problem's tensors."""
    tensors = problem.tensors()
    blocks = problem.oracle_blocks(tensors)
    wide = {name: x.double() for name, x in tensors.items()}
    expected = outcome(problem.attention(reference.nsa_attention, block_indices=blocks), wide)
    actual = outcome(problem.attention(nsa_attention, block_indices=blocks, **options), tensors)
    assert_outcome(actual, expected, problem.dtype)


Outcome = dict[str, Tensor]


def outcome(function: Callable[..., Tensor], tensors: Mapping[str, Tensor], *, seed: int = 1) -> Outcome:
    """Output and gradients of `function(**tensors)` under a random upstream gradient.

    Returns:
        `o`, and `grad.<name>` for each tensor (zeros where nothing flows).
    """
    leaves = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
    o = function(**leaves)
    upstream = torch.randn(o.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = gradients(o, list(leaves.values()), upstream.to(o))
    return {"o": o.detach(), **{f"grad.{name}": grad for name, grad in zip(leaves, found, strict=True)}}


# --- judgement ---


def assert_outcome(actual: Outcome, expected: Outcome, dtype: torch.dtype) -> None:
    """Every value and gradient within the dtype's tolerance of the fp64 oracle's."""
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        assert_close(value, expected[name], dtype, name)


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype, name: str = "value") -> None:
    """Within the dtype's tolerance; infinities must agree, NaNs never do.

    By numpy: PyTorch's imports its distributed tensors first (2.13), and sympy, which take longer than all else.
    """
    tolerance = TOLERANCES[dtype]
    found, wanted = (x.detach().double().cpu().numpy() for x in (actual, expected))
    np.testing.assert_allclose(
        found, wanted, rtol=tolerance, atol=tolerance, equal_nan=False, err_msg=name, strict=True
    )


def assert_selection(
    block_indices: Tensor, scores: list[list[Tensor]], positions: Tensor, config: NSAConfig, *, regret: float = 1e-5
) -> None:
    """The chosen blocks are as good as the oracle's: near-ties may differ, nothing else.

    Args:
        block_indices: int [B,R,Hkv,n_sel] under test.
        scores: `reference.block_scores` of the same queries.
        positions: int [B,R], the queries' positions.
        config: the sizes.
        regret: largest allowed loss of the sum of scores, relative to the oracle's choice.
    """
    found = reference.selection_regret(block_indices, scores, positions, config)
    assert found <= regret, f"the selection loses {found:.1e} of the oracle's score, more than {regret:.0e}"


# --- routes ---


@contextmanager
def expect_route(*, device: str | None = None, **backends: str) -> Iterator[routing.Recording]:
    """Fail unless each named operation ran in the block, always on the named backend and never as a fallback.

    Args:
        device: beginning of the route's device, such as `cuda`; an interpreted route then fails too.
        backends: operation=backend, such as selected="triton".
    """
    with routing.record() as recording:
        yield recording
    for operation, backend in backends.items():
        routes = recording.of(operation)
        assert routes, f"{operation} did not run at all; expected {backend}"
        for route in routes:
            wrong = route.backend != backend or route.fallback
            assert not wrong, f"{operation} ran on {route}, expected {backend} ({route.reason})"
            misplaced = device is not None and (not route.device.startswith(device) or route.interpreted)
            assert not misplaced, f"{operation} ran on {route}, expected it on {device}"


def need_cuda(flag: bool | None, name: str) -> None:
    """Skip where there is no CUDA device, or fail if the flag (NSA_TEST_*) demands one; skip if it is off."""
    if flag is False:
        pytest.skip(f"{name}=0")
    if not torch.cuda.is_available():
        (pytest.fail if flag else pytest.skip)("no CUDA device")


class RoutePlugin:
    """Writes each test's routes into its JUnit properties."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with routing.record() as recording:
            yield
        for branch in BRANCHES:
            for route in sorted(recording.backends(branch)):
                item.user_properties.append((f"route.{branch}", route))


def install(config: pytest.Config) -> None:
    """Activate the plugin and the library's markers; for `pytest_configure` in a conftest."""
    if not config.pluginmanager.has_plugin("nsa-routes"):
        config.pluginmanager.register(RoutePlugin(), "nsa-routes")
    for marker in ("slow: left out unless asked for", "cuda: needs a CUDA device", "triton: runs a Triton kernel"):
        config.addinivalue_line("markers", marker)
