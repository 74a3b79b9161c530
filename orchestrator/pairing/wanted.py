"""What a runbook's environment asks for: the packages that are paired, and all others as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from orchestrator.config.projects import as_requirement
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.errors import InputError

FLASH = "flash-attn"
PAIRED = ("torch", "triton", FLASH)


@dataclass(frozen=True)
class Wanted:
    """A runbook's needs: version limits of the paired packages it names, and everything else as written."""

    paired: Mapping[str, SpecifierSet]
    required: frozenset[str]
    others: tuple[str, ...]
    python: str | None

    def of(self, pythons: Sequence[str]) -> list[str]:
        """Those of these versions ("3.12") that the runbook allows."""
        return [minor for minor in pythons if is_python(minor, self.python)]

    @property
    def triton(self) -> bool:
        return "triton" in self.paired

    @property
    def flash(self) -> SpecifierSet | None:
        return self.paired.get(FLASH)


def wanted_by(spec: EnvironmentSpec) -> Wanted:
    """What a runbook needs; InputError for a requirement that is malformed, or that the pairing table decides."""
    paired: dict[str, SpecifierSet] = {}
    required: set[str] = set()
    others: list[str] = []
    for text in (*spec.requires, *spec.optional, *spec.extra):
        requirement = as_requirement(text, "environment")
        name = canonicalize_name(requirement.name)
        if name in PAIRED:
            if requirement.url or requirement.extras or requirement.marker or "+" in str(requirement.specifier):
                raise InputError(
                    f"environment: {text!r}: expected {name} with or without a version range and nothing else: "
                    f"its build comes from the pairing table"
                )
            paired[name] = paired.get(name, SpecifierSet()) & requirement.specifier
            required |= set() if text in spec.optional else {name}
        elif text in spec.optional:
            raise InputError(f"environment: optional {text!r}: expected {FLASH}, which not every pair has")
        else:
            others.append(text)
    if paired:
        paired.setdefault("torch", SpecifierSet())
    return Wanted(paired, frozenset(required), tuple(others), spec.python)


def is_python(version: str, wanted: str | None) -> bool:
    """Whether Python `version` ("3.12" or "3.12.4") is the one that is wanted, or within the range that is."""
    minor = ".".join(version.split(".")[:2])
    if wanted is None or wanted == minor:
        return True
    return not wanted[0].isdigit() and any(f"{minor}.{patch}" in SpecifierSet(wanted) for patch in (0, 99))
