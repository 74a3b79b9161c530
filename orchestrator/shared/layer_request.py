"""Which of a repository's projects are installed over which environment: `env layer` and `env build-layer` read it."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict

from orchestrator.shared.plan import CommitParts, Environment


class AskedProject(TypedDict):
    """The project in the folder `path` of the tree, built with the variables `env`, and with nothing but its build
    requirements where it is `isolated`. `requires` are those that are known to be met: by the environment, or in the
    one at `tools`.
    """

    path: str
    isolated: bool
    env: Dict[str, str]
    requires: List[str]
    tools: Optional[str]


class LayerRequest(CommitParts):
    """What a pod is sent; `variables` are its own, of which `secrets` are that, and a build ends after `limit_s`."""

    environment: Environment
    projects: List[AskedProject]
    variables: Dict[str, str]
    secrets: List[str]
    limit_s: float
