"""What a pod is: the agent's probe, and how it stands against what the inventory promises."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.config.inventory import Pod
from orchestrator.errors import PodError
from orchestrator.pairing.table import table
from orchestrator.pod.client import Agent
from orchestrator.shared.answers import Facts, Gpu
from orchestrator.shared.plan import Machine
from orchestrator.text import plain

# Words that make another model of a GPU's name: an `RTX 4090 D` is no `RTX 4090`, an `RTX 6000 Ada` no `RTX 6000`.
_MODEL_WORDS = frozenset("ada blackwell d laptop max mobile pro super ti".split())


def capability(gpu: Gpu) -> int:
    """A GPU's compute capability as 89 for 8.9: as the driver tells it, else by the GPU's name; 0 if neither does."""
    told = re.fullmatch(r"(\d{1,3})\.(\d)", str(gpu["compute_cap"]))
    return int(told[1] + told[2]) if told else table().sm_of(str(gpu["name"])) or 0


@dataclass(frozen=True)
class PodFacts:
    """What the agent found on the pod; `raw` is all of it."""

    raw: Facts

    @property
    def gpu(self) -> Gpu | None:
        """The first GPU, None without one."""
        return next(iter(self.raw["gpus"]), None)

    @property
    def sm(self) -> int | None:
        """Compute capability as 89 for 8.9; None without a GPU, 0 where nobody knows it."""
        return capability(self.gpu) if self.gpu else None

    @property
    def driver(self) -> str | None:
        """The driver's version; not the CUDA version that it supports, not torch's CUDA runtime."""
        return str(self.gpu["driver"]) if self.gpu else None

    @property
    def gpu_complaint(self) -> str | None:
        """Why there is no GPU although nvidia-smi is there, as it says itself; None with a GPU, or without it."""
        said = self.raw.get("gpu_complaint")
        return plain(said) if said else None

    def summary(self) -> Machine:
        """What a plan records of the pod: the machine's identity, its GPU and driver."""
        return Machine(
            hostname=self.raw["hostname"],
            boot_id=self.raw["boot_id"],
            arch=self.raw["arch"],
            cpu_model=self.raw["cpu_model"],
            cpus=self.raw["cpus"],
            memory_bytes=self.raw["memory_bytes"],
            gpus=[dict(gpu) for gpu in self.raw["gpus"]],
            driver=self.driver,
            driver_cuda=self.raw["driver_cuda"],
        )


def probe(agent: Agent) -> PodFacts:
    """The pod's facts."""
    return PodFacts(agent.call(Facts, "probe", "--workdir", agent.workdir))


def broken_promises(pod: Pod, facts: PodFacts, *, allow_different_gpu: bool) -> list[str]:
    """Sentences on what differs from the inventory; PodError for another GPU model than the promised one.

    A GPU that is absent is no error here: the stages that need it are blocked.
    """
    said = []
    other = [plain(gpu["name"]) for gpu in facts.raw["gpus"] if pod.gpu and not _is_model(pod.gpu, str(gpu["name"]))]
    if facts.gpu is None and (pod.gpu or facts.gpu_complaint):
        promise = f"promises {pod.gpu} and " if pod.gpu else ""
        why = f" that works: nvidia-smi: {facts.gpu_complaint}" if facts.gpu_complaint else ""
        said.append(f"pod {pod.name!r} {promise}has no CUDA GPU{why}")
    if other:
        sentence = f"pod {pod.name!r} promises {pod.gpu} and has {', '.join(other)}"
        if not allow_different_gpu:
            raise PodError(f"{sentence}: correct the inventory, or go on with --allow-different-gpu")
        said.append(sentence)
    if pod.driver and facts.driver and facts.driver != pod.driver:
        said.append(f"pod {pod.name!r} promises driver {pod.driver} and has {plain(facts.driver)}")
    return said


def _is_model(promised: str, found: str) -> bool:
    """Whether every word of the promise is in the GPU's name, and no further word makes another model of it."""
    wanted, words = (set(re.findall(r"[a-z0-9]+", name.lower())) for name in (promised, found))
    return wanted <= words and not (words - wanted) & _MODEL_WORDS
