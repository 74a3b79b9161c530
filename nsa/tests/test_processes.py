"""A layer in two processes that share their gradients: by gloo on a CPU, by NCCL where there are two GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist

from nsa import NativeSparseAttention
from nsa.tests.kernel_cases import SMALL


def _train(rank: int, device: str, kind: str, address: str, found: Any) -> None:
    """The gradient of a layer's input projection over two processes, of which each has one of two sequences."""
    torch.set_num_threads(1)
    where = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(where)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=f"file://{address}", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    layer: Any = NativeSparseAttention(64, 4, 2, SMALL, phi="weighted").to(where)
    x = torch.rand(2, 20, 64).to(where)
    if kind == "whole":
        layer(x).square().mean().backward()
    elif kind == "ddp":
        layer = torch.nn.parallel.DistributedDataParallel(layer)
    else:
        from torch.distributed.fsdp import fully_shard

        mesh = dist.init_device_mesh(device, (2,))
        for part in (*layer.children(), layer):  # each whole only while it is called
            fully_shard(part, mesh=mesh)
    if kind != "whole":
        layer(x[rank : rank + 1]).square().mean().backward()
    grads = [p.grad for p in layer.parameters()]
    grads = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in grads]
    if rank == 0:
        torch.save([g.cpu() for g in grads], found)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_two_processes(device: str, kind: str, tmp_path: Path) -> None:
    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("two GPUs are needed")
    both = []
    for each in ("whole", kind):
        found = tmp_path / f"{each}.pt"
        torch.multiprocessing.spawn(_train, (device, each, str(tmp_path / f"{each}.store"), str(found)), nprocs=2)
        both.append(torch.load(found))
    for x, y in zip(*both, strict=True):
        assert x.abs().max() > 0
        torch.testing.assert_close(x, y)
