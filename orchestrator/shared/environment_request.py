"""Which environment a pod is asked for, and how it may be made: what `env check` and `env build` read."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict


class AskedPython(TypedDict):
    """`path` None: a managed one of this version."""

    version: str
    path: Optional[str]


class AskedSource(TypedDict):
    """How the pod compiles a package: its build's variables, the tools that it needs beside torch, the memory of one
    job. `version` has a local part, so that what was compiled is never taken for what was published.
    """

    version: str
    variables: Dict[str, str]
    tools: List[str]
    job_bytes: int


class AskedWheel(TypedDict):
    """A wheel outside the package index; left out if it is neither required nor to be had. Where `url` is None, or
    nothing is at it, the pod compiles `source`, if there is one.
    """

    name: str
    version: str
    url: Optional[str]
    required: bool
    source: Optional[AskedSource]


class _Asked(TypedDict):
    format: int
    profile: Optional[str]
    python: AskedPython
    requirements: List[str]
    indexes: List[str]
    wheels: List[AskedWheel]
    pins: Dict[str, str]
    cuda: Optional[str]
    disk_bytes: int


class Asked(_Asked, total=False):
    """What makes it this environment and no other, and the disk that it takes.

    `sdists` are packages that may be built from source, `hashes` the only ones that a locked package may have.
    """

    sdists: List[str]
    hashes: Dict[str, List[str]]


class Means(TypedDict, total=False):
    """How it is made, which does not change what comes out; `secrets` are those of the `variables` that are."""

    fresh: bool
    wheelhouse: Optional[str]
    offline: bool
    allow_source_build: bool
    source_build_s: float
    variables: Dict[str, str]
    secrets: List[str]


class EnvironmentRequest(Asked, Means):
    """What a pod is sent."""
