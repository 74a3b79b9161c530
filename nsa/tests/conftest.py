"""Routes as evidence in every test of the library."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return  # it hands out tests, and runs none: its processes would wait until it has imported PyTorch
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read where a kernel is defined, so before any is imported
    from nsa.tests import testing

    testing.install(config)
    if os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton"):
        from nsa.tests import interpreter  # not before the line above: Triton asks for the variable when it is imported

        interpreter.hasten()
    for sentence in ("overflow", "invalid value"):  # of what kernels read and mask: a GPU computes with it in silence
        config.addinivalue_line("filterwarnings", f"ignore:{sentence} encountered:RuntimeWarning")
    torch.set_num_threads(1)  # the tensors are small: a second thread only spins, ten times slower on a busy machine


# Where the interpreter takes long over what other cases of the same tests show as well. A GPU takes seconds over all.
_LONG = (
    "test_accuracy.py::test_the_kernels_pass[half]",
    "test_accuracy.py::test_the_kernels_pass[chunk]",
    "test_autotune.py::test_a_dry_run_names_every_kernel_of_the_architecture[sm_89]",
    "test_kernels_attention.py::test_matches_the_oracle[batch-float16]",
    "test_kernels_attention.py::test_matches_the_oracle[packed-float32]",
    "test_kernels_attention.py::test_matches_the_oracle[wide-group-float16]",
    "test_ahead_of_time.py::test_sample_fits[sm_80]",
    "test_kernels_fused.py::test_chunks_of_a_prefill[alike]",
    "test_kernels_fused.py::test_in_splits_of_the_queries_and_of_the_heads[batch]",
    "test_kernels_fused.py::test_the_whole_matches_the_oracle[batch-",
    "test_kernels_selected.py::test_loads_by_descriptor[mixed]",
    "test_kernels_selected.py::test_logits_out_of_range[-1-token]",
    "test_kernels_selected.py::test_one_kernel_alone_equals_the_oracle[plain-token]",
    "test_kernels_selected.py::test_sums_of_few_runs_at_once_are_those_of_all[tile]",
    "test_kernels_selected.py::test_runs_of_any_keys[64-40000]",
    "test_recorded.py::test_of_its_own_keys_the_compressed_branch_keeps_the_means",
    "test_recorded.py::test_trials_are_not_replayed",
    "test_recorded.py::test_without_gradients",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    import torch

    if torch.cuda.is_available():
        if hasattr(config, "workerinput"):
            items.sort(key=_place)
        return
    for item in items:
        if item.nodeid.rpartition("/")[2].startswith(_LONG):
            item.add_marker(pytest.mark.slow)


def _place(item: pytest.Item) -> bytes:
    """Behind the others, and far from their like: what lies side by side in a file launches the same kernels, and
    processes that begin them at once compile each of these several times.
    """
    return hashlib.sha256(item.nodeid.encode()).digest() if item.path.name.startswith("test_kernels_") else b""


@pytest.fixture(autouse=True)
def unplanned() -> None:
    """No plan of another test, whose machine may have been another one."""
    from nsa.plans import PLANS

    PLANS.clear()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same numbers in every run: PyTorch's own seed is another one each time."""
    import torch

    torch.manual_seed(0)
