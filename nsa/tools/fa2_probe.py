"""`python -m nsa.fa2_probe`: whether FlashAttention-2 is available here, from where, and for which shapes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from nsa import NSAConfig
from nsa.device import named_device
from nsa.providers import fa2
from nsa.providers.flash import Flash, provider
from nsa.routing import Request

SHAPES = ((64, 64), (128, 128), (192, 128))


def lines() -> list[str]:
    flash = provider()
    if isinstance(flash, Flash):
        why = f" ({flash.reason})" if flash.reason else ""
        found = [f"provider: {flash.name}{why}", f"entry points: varlen{', dense' if flash.dense else ''}"]
    else:
        found = [f"no provider: {flash}"]
    device = named_device(None)
    for operation in ("window", "compressed"):
        for dk, dv in SHAPES:
            request = Request(operation, device, torch.bfloat16, 1, 4096, 4096, 64, 4, dk, dv, NSAConfig())
            found.append(f"{operation} bf16 dk={dk} dv={dv}: {fa2.supports(request) or 'available'}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; finding nothing is a finding too."""
    argparse.ArgumentParser(prog="python -m nsa.fa2_probe", description=__doc__).parse_args(argv)
    print("\n".join(lines()))
    return 0
