"""A needle at 64k tokens is found by the selection path on a CPU, in memory that is far from T*T."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TOKENS, NEEDLE = 65536, 20000
LIMIT_BYTES = 1.5e9
"""Growth of the process over the whole operation. One fp32 matrix T*T would be 17 GB."""

SCRIPT = f"""
import json, resource
import torch
from nsa import NSAConfig, nsa_attention, ops

T, NEEDLE, CONFIG = {TOKENS}, {NEEDLE}, NSAConfig()
random = torch.Generator().manual_seed(0)
q, k, v = (0.05 * torch.randn(1, T, heads, 32, generator=random) for heads in (2, 1, 1))
q[:, -1, :, 0] = 30.0
k[:, NEEDLE - 32 : NEEDLE + 32, :, 0] += 5.0
v[:, NEEDLE - 32 : NEEDLE + 32] = 7.0
gates = torch.tensor([0.0, 1.0, 0.0]).expand(1, T, 2, 3)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
with torch.no_grad():
    o = nsa_attention(q, k, v, gates, CONFIG)
    chosen = ops.select_blocks(q[:, -1:], ops.compress(k, CONFIG), CONFIG, q_start=torch.tensor([T - 1]))
print(json.dumps({{"growth": peak() - before, "chosen": chosen[0, 0, 0].tolist(), "o": float(o[0, -1].mean())}}))
"""


def test_needle_is_found_in_bounded_memory() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=1200, check=True)
    found = json.loads(done.stdout)
    print(f"peak growth {found['growth'] / 1e9:.2f} GB")
    assert NEEDLE // 64 in found["chosen"]
    assert found["o"] > 6.9
    assert found["growth"] < LIMIT_BYTES
