"""From the host to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on the device; the host does not wait for what the device still has to do."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
