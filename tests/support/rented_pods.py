"""The pods that people rent (data/rented_pods.yaml), as the choice of an environment sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.pairing.choose import choose
from orchestrator.pairing.environment import Environment, Facts, Gpu, Interpreter
from orchestrator.pairing.table import table
from tests.support import ROOT

PODS = yaml.safe_load((ROOT / "tests/data/rented_pods.yaml").read_text())
WHOLE = {"requires": ["torch", "triton"], "optional": ["flash-attn"], "extra": ["pytest", "numpy<2.3"]}


@dataclass(frozen=True)
class Asked:
    """A pod of the file and what is wanted of it."""

    driver: str | None = None
    gpu: str | None = None
    sm: int = 0
    gpus: int = 1
    beside: tuple[str, int] | None = None
    pythons: tuple[str, ...] = ("3.10.12",)
    headers: bool | None = None
    managed: bool = True
    machine: str = "x86_64"
    system: str = "Linux"
    glibc: str | None = "2.35"
    compiler: bool | None = True
    pin: str | None = None
    spec: dict[str, list[str]] = field(default_factory=lambda: WHOLE)

    @property
    def facts(self) -> Facts:
        return Facts(
            system=self.system,
            machine=self.machine,
            glibc=self.glibc,
            pythons=tuple(Interpreter(f"/usr/bin/python{v}", v, self.headers) for v in self.pythons),
            managed=self.managed,
            driver=self.driver,
            gpus=(
                *((Gpu(self.gpu, self.sm),) * self.gpus if self.gpu else ()),
                *([Gpu(*self.beside)] if self.beside else []),
            ),
            compiler=self.compiler,
        )

    def choose(self) -> Environment:
        return choose(table(), self.facts, EnvironmentSpec.model_validate(self.spec), self.pin)


def asked(pod: dict[str, Any]) -> Asked:
    return Asked(**{name: value for name, value in pod.items() if name in Asked.__dataclass_fields__})


def named(name: str) -> Asked:
    return asked(next(pod for pod in PODS["chosen"] if pod["name"] == name))
