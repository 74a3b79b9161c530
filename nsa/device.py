"""What a PyTorch device is, for routing and records."""

from __future__ import annotations

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""By the names that command lines take."""


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


def named_device(name: torch.device | str | None) -> torch.device:
    """The device of that name; without one the GPU, if there is one, else the CPU.

    Raises:
        ValueError: no device's name, or a GPU that this machine does not have.
    """
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name is None else name)
    except RuntimeError as error:
        raise ValueError(f"{name!r} is no device: {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"this machine has no device {device}")
    return device
