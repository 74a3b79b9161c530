"""What a choice of an environment depends on, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.shared.environment_request import Asked, AskedWheel

GIB = 2**30
# Room for torch with its NVIDIA packages and flash-attn, for torch alone, and for no torch.
_DISK_CUDA, _DISK_CPU, _DISK_PLAIN = 10 * GIB, 2 * GIB, GIB // 4


@dataclass(frozen=True)
class Interpreter:
    """A Python of the pod: absolute path, full version, whether it has C headers (None: unknown)."""

    path: str
    version: str
    headers: bool | None = None

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True)
class Gpu:
    """`sm` is the compute capability: 89 for 8.9."""

    name: str
    sm: int


@dataclass(frozen=True)
class Facts:
    """What the choice depends on.

    `pythons` begins with the pod's default; `managed` says whether uv may fetch another one; `glibc` is None
    where there is another libc; `compiler` is None where it is not known; `from_source` says whether flash-attn may be
    compiled, or was compiled there before.
    """

    system: str
    machine: str
    glibc: str | None
    pythons: tuple[Interpreter, ...]
    managed: bool = True
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    compiler: bool | None = None
    from_source: bool = False


@dataclass(frozen=True)
class Environment:
    """What is to be built, and why. `interpreter` None: a managed Python `python`; `cuda` None: no CUDA.

    `pins` are versions as importlib.metadata must report them; `indexes` are asked when the pod's own have not
    got the build; `rejected` says of each preferred or newer pair why it is not this one.
    """

    profile: str | None
    python: str
    interpreter: str | None
    requirements: tuple[str, ...]
    pins: Mapping[str, str] = field(default_factory=dict)
    indexes: tuple[str, ...] = ()
    wheels: tuple[AskedWheel, ...] = ()
    cuda: str | None = None
    reasons: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    sdists: tuple[str, ...] = ()
    hashes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def request(self) -> Asked:
        """What the pod is asked to build; the pod finds the finished environment again by it."""
        asked: Asked = {
            "format": 1,
            "profile": self.profile,
            "python": {"version": self.python, "path": self.interpreter},
            "requirements": list(self.requirements),
            "indexes": list(self.indexes),
            "wheels": list(self.wheels),
            "pins": dict(self.pins),
            "cuda": self.cuda,
            "disk_bytes": _DISK_CUDA if self.cuda else _DISK_CPU if self.pins else _DISK_PLAIN,
        }
        if self.sdists:
            asked["sdists"] = sorted(self.sdists)
        if self.hashes:
            asked["hashes"] = {name: sorted(known) for name, known in sorted(self.hashes.items())}
        return asked
