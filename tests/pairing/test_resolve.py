"""What another machine is to install, resolved here: by this machine's indexes first, and of torch's own build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from orchestrator.errors import EnvironmentFailed
from orchestrator.pairing import resolve as resolving
from orchestrator.pairing.environment import Environment
from orchestrator.shared.wheels.lockfile import Wheel, of_torchs_build

TABLE = "https://download.example.org/cpu"
TORCH, VISION = "torch-2.13.0+cpu", "torchvision-0.28.0"
CHOSEN = Environment(
    "newest", "3.12", None, ("torch==2.13.0+cpu", "torchvision"), pins={"torch": "2.13.0+cpu"}, indexes=(TABLE,)
)


def wheel(of: str) -> Wheel:
    return Wheel(of.partition("-")[0], f"https://example.org/{of}-py3-none-any.whl", None)


@pytest.mark.parametrize(("has_build", "vision"), [(True, f"{VISION}+cpu"), (False, VISION)])
def test_what_is_built_for_torch_is_of_its_build(monkeypatch: pytest.MonkeyPatch, has_build: bool, vision: str) -> None:
    def resolve(
        wanted: Sequence[str], platform: str, python: str, variables: Mapping[str, str], *_: object
    ) -> list[Wheel]:
        if "torchvision==0.28.0+cpu" not in wanted:
            return [wheel(TORCH), wheel(VISION)]
        if not has_build or TABLE not in " ".join(variables.values()):
            raise EnvironmentFailed("no version of torchvision==0.28.0+cpu")
        return [wheel(TORCH), wheel(f"{VISION}+cpu")]

    monkeypatch.setattr(resolving, "resolve", resolve)
    monkeypatch.setattr(resolving.Settings, "of", lambda python: resolving.Settings())
    found = resolving.resolve_environment(CHOSEN, "x86_64-manylinux_2_28")
    assert [w.filename.rpartition("-py3")[0] for w in found] == [TORCH, vision]


@pytest.mark.parametrize(
    ("torch", "wheels", "wanted"),
    [
        ("2.13.0+cpu", [TORCH, VISION, "torchaudio-2.13.0", "numpy-2.4.0"],
         ["torchvision==0.28.0+cpu", "torchaudio==2.13.0+cpu"]),
        ("2.13.0+cu126", ["torchvision-0.28.0+cu126"], []),
        ("2.13.0", [VISION], []),
        ("", [VISION], []),
    ],
)  # fmt: skip
def test_those_that_are_of_another_build(torch: str, wheels: list[str], wanted: list[str]) -> None:
    assert of_torchs_build([wheel(of) for of in wheels], torch) == wanted
