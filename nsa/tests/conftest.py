"""Routes as evidence in every test of the library."""

from __future__ import annotations

import os

import pytest
import torch

from nsa import routing, testing

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read where a kernel is defined, so before any is imported


def pytest_configure(config: pytest.Config) -> None:
    testing.install(config)
    for sentence in ("overflow", "invalid value"):  # of what kernels read and mask: a GPU computes with it in silence
        config.addinivalue_line("filterwarnings", f"ignore:{sentence} encountered:RuntimeWarning")
    torch.set_num_threads(1)  # the tensors are small: a second thread only spins, ten times slower on a busy machine


@pytest.fixture(autouse=True)
def undecided() -> None:
    """No decision of another test, whose machine may have been another one."""
    routing.decided.cache_clear()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same numbers in every run: PyTorch's own seed is another one each time."""
    torch.manual_seed(0)
