"""What a PyTorch device is, for routing and records."""

from __future__ import annotations

import torch


def capability(device: torch.device) -> tuple[int, int] | None:
    """Compute capability (major, minor) of an NVIDIA GPU; None elsewhere, on AMD's too, which PyTorch calls cuda."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" and torch.version.hip is None else None


def device_name(device: torch.device) -> str:
    """`cpu`, or `cuda:sm_90` for any NVIDIA GPU of that architecture, or `rocm:gfx942` for any of AMD's."""
    if device.type != "cuda":
        return device.type
    found = capability(device)
    if found is None:
        return "rocm:" + torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
    return "cuda:sm_{}{}".format(*found)
