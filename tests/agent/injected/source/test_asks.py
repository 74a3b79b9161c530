"""Programs of one line that only ask what there is, and such as check something."""

from __future__ import annotations

import pytest

from orchestrator.agent.injected.source.asks import only_asks

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "program",
    [
        "import torch; assert torch.cuda.is_available()",
        "import torch, sys; sys.exit(not torch.cuda.is_available())",
        "import torch\nassert torch.cuda.get_device_capability() >= (8, 0), 'too old'",
        "import sys; sys.exit(sys.version_info < (3, 8))",
        "from importlib.util import find_spec; raise SystemExit(0 if find_spec('triton') else 1)",
        "import torch; assert hasattr(torch, 'compile')",
    ],
)
def test_what_only_asks(program: str) -> None:
    assert only_asks(program.encode(), {"ours"})


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "import sys; sys.exit(1)",
        "import ours; assert ours.works()",
        "from ours.ops import f; assert f()",
        "import numpy as np; assert np.allclose(np.load('a.npy'), np.load('b.npy'))",
        "import json; assert json.load(open('results.json'))['ok']",
        "assert open('log').read()",
        "x = 1; assert x",
        "import torch; print(torch.__version__)",
        "import (",
    ],
)
def test_what_checks_or_asks_nothing(program: str) -> None:
    assert not only_asks(program.encode(), {"ours"})
