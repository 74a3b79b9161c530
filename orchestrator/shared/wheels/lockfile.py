"""A lockfile: every wheel of an environment with its address and hash, as a requirements file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from orchestrator.shared.failure import Failure
from orchestrator.shared.vendor import tomli
from orchestrator.shared.wheels.addresses import filename, without_credentials

# Begins the local version of a wheel that was compiled on the pod.
LABEL = "+src."
_KEY_DIGITS = 16
_LINE = re.compile(r"^(?P<name>\S+) @ (?P<url>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})$")
# What comes with a CUDA build of torch and with no other.
_CUDA_PACKAGE = re.compile(r"^(nvidia-.+|cuda-.+)$")
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)")
_ARCHIVE = re.compile(r"\.(tar\.gz|tar\.bz2|tar\.xz|tgz|zip)$")
# What PyTorch's own indexes have for each build of torch, and the package index only for that which it serves.
_BUILT_FOR_TORCH = ("torchvision", "torchaudio")
ANY: Mapping[str, Sequence[str]] = {}
"""Of every package, any file."""
# uv's command that reads requirements and prints what `from_pylock` reads.
RESOLVE = ("pip", "compile", "-", "--format", "pylock.toml", "--only-binary", ":all:")


@dataclass(frozen=True)
class Wheel:
    """One wheel; `sha256` is None as long as its index has not told it. The version is read off the file's name."""

    name: str
    url: str
    sha256: str | None

    @property
    def filename(self) -> str:
        return filename(self.url)

    @property
    def version(self) -> str:
        if self.is_sdist:
            return _ARCHIVE.sub("", self.filename).rpartition("-")[2]
        return self.filename.split("-")[1]

    @property
    def is_sdist(self) -> bool:
        """Whether it is no wheel, but what one is built from."""
        return _ARCHIVE.search(self.filename) is not None

    @property
    def path(self) -> Path | None:
        """Where it lies on this machine, if its address is a file's."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def from_source(self) -> bool:
        """Whether it was compiled on the pod: its version says so."""
        return LABEL in self.version

    def line(self) -> str:
        return f"{self.name} @ {self.url} --hash=sha256:{self.sha256}"


@dataclass(frozen=True)
class Lockfile:
    """All wheels, for one Python ("3.11.7") on one platform ("linux-x86_64")."""

    wheels: tuple[Wheel, ...]
    python: str
    platform: str

    @property
    def key(self) -> str:
        """The environment's name: which wheels, Python and platform; not where the wheels were found.

        It ends in `-src` when something in it was compiled on the pod.
        """
        parts = [f"{w.name}=={w.version} {w.sha256}" for w in self.wheels]
        digest = hashlib.sha256("\n".join([*parts, self.python, self.platform]).encode()).hexdigest()
        return digest[:_KEY_DIGITS] + ("-src" if any(w.from_source for w in self.wheels) else "")

    @property
    def packages(self) -> dict[str, str]:
        return {w.name: w.version for w in self.wheels}

    @property
    def sha256(self) -> str:
        """Of the text."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    @property
    def lost(self) -> list[str]:
        """Wheels that lay on the pod as files, and are gone."""
        return [w.name for w in self.wheels if w.path and not w.path.is_file()]

    def without(self, package: str) -> Lockfile:
        return replace(self, wheels=tuple(w for w in self.wheels if w.name != package))

    def text(self) -> str:
        return "\n".join([f"# CPython {self.python} on {self.platform}", *(w.line() for w in self.wheels), ""])


def canonical(name: str) -> str:
    """A distribution's name as indexes write it: flash_attn -> flash-attn."""
    return re.sub(r"[-_.]+", "-", name).lower()


def make_lockfile(wheels: Iterable[Wheel], python: str, platform: str) -> Lockfile:
    """A lockfile in its canonical order; addresses lose the credentials that an index's own address may carry."""
    clean = [replace(w, name=canonical(w.name), url=without_credentials(w.url)) for w in wheels]
    return Lockfile(tuple(sorted(clean, key=lambda w: w.name)), python, platform)


def parse_lockfile(text: str, python: str, platform: str) -> Lockfile:
    """The lockfile whose text this is; Failure for text that no lockfile has."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    matches = [_LINE.match(line) for line in lines]
    wheels = [Wheel(m["name"], m["url"], m["sha256"]) for m in matches if m]
    if len(wheels) != len(lines):
        raise Failure(
            f"the lockfile kept for this environment has a line that is none: {lines[matches.index(None)][:200]}"
        )
    return make_lockfile(wheels, python, platform)


def from_pylock(text: str, hashes: Mapping[str, Sequence[str]] = ANY) -> list[Wheel]:
    """The wheels of a pylock.toml (PEP 751) as uv writes it for one platform, the best of each package.

    Of a package that `hashes` names, only those files count. Failure for what is no such text, and for a package
    without a wheel, unless uv was allowed to take its source distribution.
    """
    try:
        return [_best(package, hashes) for package in tomli.loads(text).get("packages", ())]
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        raise Failure(f"uv's lockfile cannot be read: {type(e).__name__}: {e}") from e


def from_sdists(names: Sequence[str]) -> list[str]:
    """uv's arguments by which these packages are built from source."""
    return [word for name in names for word in ("--no-binary", name)]


def cuda_packages(lockfile: Sequence[Wheel]) -> list[str]:
    """Packages that only a CUDA build of torch brings."""
    return [w.name for w in lockfile if is_cuda_package(w.name)]


def of_torchs_build(wheels: Sequence[Wheel], torch: str) -> list[str]:
    """Requirements of those that are built for another build of torch than `torch`, such as 2.13.0+cpu."""
    build = torch.partition("+")[2]
    strays = (w for w in wheels if canonical(w.name) in _BUILT_FOR_TORCH and "+" not in w.version) if build else ()
    return [f"{wheel.name}=={wheel.version}+{build}" for wheel in strays]


def is_cuda_package(name: str) -> bool:
    """Whether it comes with a CUDA build of torch."""
    return _CUDA_PACKAGE.match(canonical(name)) is not None


def _best(package: Mapping[str, Any], hashes: Mapping[str, Sequence[str]]) -> Wheel:
    name = package["name"]
    source = [package["sdist"]] if "sdist" in package else []
    files = package.get("wheels") or source
    wheels = [Wheel(name, file["url"], file.get("hashes", {}).get("sha256")) for file in files]
    if not wheels:
        raise Failure(f"uv's lockfile has no wheel of {name}")
    known = hashes.get(canonical(name))
    if known is not None:
        wheels = [wheel for wheel in wheels if wheel.sha256 in (*known, None)]  # not told: its file does
    if not wheels:
        raise Failure(f"{name} {package.get('version')}: none of the files that fit has a hash that the lock knows")
    return max(wheels, key=_rank)


def _rank(wheel: Wheel) -> tuple[bool, tuple[int, ...]]:
    """All of a package's wheels fit: those for just this Python before stable-ABI ones, newer platforms first."""
    tags = wheel.filename[: -len(".whl")].split("-")[-3:]
    glibc = max((tuple(map(int, found)) for found in _GLIBC.findall(tags[-1])), default=(0, 0))
    return tags[0] == tags[1], glibc
