"""The environment variables of a stage beside `inherited`: what the agent sets, and the plan's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Mapping, Sequence

from orchestrator.agent.injected.stage import MARK
from orchestrator.agent.layout import Layout

# Where compiled code goes: not into the tree, and not shared between trees or environments.
_CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
    "HYPOTHESIS_STORAGE_DIRECTORY": "hypothesis",
}
_ALWAYS = {
    "TERM": "dumb",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def stage_variables(
    planned: Mapping[str, str], places: Layout, bins: Sequence[str], tmp: Path, cache: Path
) -> dict[str, str]:
    """What a stage gets beside `inherited`: the plan's variables over the agent's defaults, not over its evidence."""
    defaults = {
        **_ALWAYS,
        "TMPDIR": str(tmp),
        **{name: str(cache / folder) for name, folder in _CACHES.items()},
        # The tree may belong to someone else than the stage's user: git is told that this is meant.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": str(places.tree),
    }
    fixed = {
        "PATH": os.pathsep.join([*bins, planned.get("PATH") or os.environ.get("PATH") or os.defpath]),
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(places.injected), planned.get("PYTHONPATH", "")])),
        "NSA_POD_ARTIFACTS": str(places.artifacts),
        MARK: places.run_dir.name,
    }
    return {**defaults, **planned, **fixed}
