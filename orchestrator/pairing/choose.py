"""Facts about a pod + what a runbook needs -> Environment: exact versions, where they come from, and why.

Pure: nothing is asked of the pod or of a registry here. `python -m orchestrator.pairing.audit --check` compares the
table with the wheels' own metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from orchestrator.config.runbook import EnvironmentSpec, LockedSpec
from orchestrator.errors import EnvironmentFailed, InputError
from orchestrator.pairing.environment import GIB, Environment, Facts, Gpu
from orchestrator.pairing.table import CPU, Pair, Table, newer
from orchestrator.pairing.wanted import FLASH, Wanted, wanted_by
from orchestrator.shared.environment_request import AskedSource, AskedWheel
from orchestrator.text import nearest

SYSTEM = "system"
# Which managed Python, where none of the pod's fits, the best supported first.
_MANAGED = ("3.12", "3.11", "3.10", "3.13", "3.14")
_REASONS_SHOWN = 4


@dataclass(frozen=True)
class _Flash:
    """flash-attn for a pair: its wheel, whose `url` has {python} open, or its `source`, or both."""

    version: str
    pythons: Sequence[str]
    url: str | None
    source: AskedSource | None

    def wheel(self, python: str, required: bool) -> AskedWheel:
        tag = "cp" + python.replace(".", "")
        url = self.url and self.url.format(python=tag)
        return {"name": FLASH, "version": self.version, "url": url, "required": required, "source": self.source}


@dataclass(frozen=True)
class _Python:
    """`path` None: a managed one."""

    minor: str
    path: str | None

    @property
    def reason(self) -> str:
        return f"Python {self.minor}: {self.path or 'a managed one, as none of the pod fits'}"


@dataclass(frozen=True)
class _Fit:
    """How a pair fits a pod; `flash` is a clause where it has no wheel, `problem` None where it fits."""

    pair: Pair
    flash: _Flash | str
    python: _Python | None
    problem: str | None


def choose(table: Table, facts: Facts, spec: EnvironmentSpec, pin: str | None = None) -> Environment:
    """The environment for a pod: the pinned profile, or the first that fits.

    Raises InputError as `check` does, EnvironmentFailed when nothing fits the pod.
    """
    require_possible(table, spec, pin)
    chosen = _choose(table, facts, wanted_by(spec), pin)
    hashes = spec.hashes if isinstance(spec, LockedSpec) else {}
    return replace(chosen, sdists=tuple(spec.sdists), hashes=hashes)


def _choose(table: Table, facts: Facts, wanted: Wanted, pin: str | None) -> Environment:
    if not wanted.paired:
        return _unpaired(table, facts, wanted)
    tried: list[str] = []
    for pair in _candidates(table, facts, wanted, pin):
        fit = _examine(table, pair, facts, wanted)
        if fit.problem is None:
            newer_ones = () if pin else _not_newer(table, fit, facts, wanted)
            return _environment(table, fit, facts, wanted, (*tried, *newer_ones))
        tried.append(f"{pair.name}: {fit.problem}")
    if pin:
        raise EnvironmentFailed(f"the pinned environment does not fit the pod: {tried[0]}")
    raise EnvironmentFailed(f"no environment fits the pod: {'; '.join(tried[:_REASONS_SHOWN])}")


def require_environment(table: Table, pin: str) -> None:
    """InputError for a pin that is neither a profile of the table nor the pod's own Python."""
    if pin not in (*table.profiles, SYSTEM):
        raise InputError(f"unknown environment {pin!r}{nearest(pin, (*table.profiles, SYSTEM))}")


def require_possible(table: Table, spec: EnvironmentSpec, pin: str | None = None) -> None:
    """What needs no pod: InputError for an unknown pin, a malformed requirement, an impossible pair."""
    if pin is not None:
        require_environment(table, pin)
    wanted = wanted_by(spec)
    if spec.python != SYSTEM and not wanted.of(table.pythons()):
        known = table.pythons()
        raise InputError(f"environment: python: expected one of {', '.join(known)}, got {spec.python}")
    pairs = [table.profile(pin)] if pin in table.profiles else [*table.pairs(), *table.cpu_pairs()]
    reasons = [_other_versions(pair, wanted) for pair in pairs]
    if wanted.paired and all(reasons):
        torch = wanted.paired["torch"]
        closest = next((i for i, pair in enumerate(pairs) if pair.torch in torch), 0)
        raise InputError(f"environment: no torch and triton that belong together: {reasons[closest]}")


def _unpaired(table: Table, facts: Facts, wanted: Wanted) -> Environment:
    """Without torch, any Python that the table knows will do."""
    pythons = wanted.of(table.pythons())
    python = _python(facts, pythons)
    if python is None:
        raise EnvironmentFailed(f"no environment fits the pod: {_no_python(facts, pythons)}")
    reasons = ("nothing that has to be paired is asked for", python.reason)
    return Environment(None, python.minor, python.path, wanted.others, reasons=reasons)


def _candidates(table: Table, facts: Facts, wanted: Wanted, pin: str | None) -> Iterator[Pair]:
    if pin:
        yield table.profile(pin)
        return
    preferred = table.preference if facts.gpus else [CPU]
    rest = table.pairs() if facts.gpus else table.cpu_pairs()
    for pair in (*map(table.profile, preferred), *rest):
        if not _other_versions(pair, wanted):
            yield pair


def _examine(table: Table, pair: Pair, facts: Facts, wanted: Wanted) -> _Fit:
    flash = _flash(table, pair, facts, wanted)
    supported = pair.row.pythons if isinstance(flash, str) else flash.pythons
    pythons = wanted.of(supported)
    # Triton compiles its launchers in C, against Python's headers; so does whatever is built from source.
    headers = pair.cuda is not None and (wanted.triton or (isinstance(flash, _Flash) and flash.url is None))
    python = _python(facts, pythons, headers)
    problems = [_other_versions(pair, wanted), *_wrong_platform(pair, facts, wanted)]
    if pair.cuda:
        problems += _wrong_gpu(table, pair, pair.cuda, facts, wanted)
    if FLASH in wanted.required and isinstance(flash, str):
        problems.append(flash)
    if not pythons:
        problems.append(f"it is for Python {' or '.join(supported)}, and the runbook wants {wanted.python}")
    elif python is None:
        problems.append(_no_python(facts, pythons, headers))
    return _Fit(pair, flash, python, next(filter(None, problems), None))


def _other_versions(pair: Pair, wanted: Wanted) -> str | None:
    limits = wanted.paired
    torch, triton = (limits.get(name, SpecifierSet()) for name in ("torch", "triton"))
    if pair.torch not in torch:
        return f"it is torch {pair.torch}, and the runbook wants torch{torch}"
    if pair.triton not in triton:
        return f"torch {pair.torch} requires triton {pair.triton}, and the runbook wants triton{triton}"
    return None


def _wrong_platform(pair: Pair, facts: Facts, wanted: Wanted) -> Iterator[str]:
    if facts.system == "Linux":
        if facts.glibc is None:
            yield "its wheels need glibc, and the pod has another libc"
        elif _version(facts.glibc) < _version(pair.row.glibc):
            yield f"its wheels need glibc {pair.row.glibc}, the pod has {facts.glibc}"
        if facts.machine not in pair.row.pypi:
            yield f"torch has no wheels for {facts.machine}"
    elif pair.cuda:
        yield f"CUDA builds are for Linux, the pod runs {facts.system}"
    elif wanted.triton:
        yield f"triton has wheels for Linux only, the pod runs {facts.system}"


def _wrong_gpu(table: Table, pair: Pair, cuda: str, facts: Facts, wanted: Wanted) -> Iterator[str]:
    build = pair.build(facts.machine)
    least = table.runtime(cuda).driver
    if not facts.gpus:
        yield "it needs a CUDA GPU, and the pod has none"
    elif build is None:
        yield f"torch {pair.torch} has no CUDA {cuda} build for {facts.machine}"
    elif facts.driver is None or _version(facts.driver) < _version(least):
        yield f"CUDA {cuda} needs driver {least} or newer, the pod has {facts.driver or 'none'}"
    else:
        for gpu in facts.gpus:
            if not _serves(table.architectures[build.sm], gpu.sm):
                yield f"its CUDA {cuda} build has no code for {_described(gpu)}"
    if facts.compiler is False and wanted.triton:
        yield "Triton compiles with the pod's C compiler, and there is none: install gcc"


def _serves(code: Iterable[int], sm: int) -> bool:
    return any(have // 10 == sm // 10 and have <= sm for have in code)


def _flash(table: Table, pair: Pair, facts: Facts, wanted: Wanted) -> _Flash | str:
    """flash-attn's wheel for `pair`, or why there is none, as a clause."""
    flash, limit, build = table.flash_attn, wanted.flash, pair.build(facts.machine)
    if limit is None:
        return "the runbook does not ask for it"
    if pair.cuda is None or build is None:
        return f"{FLASH} needs CUDA"
    old = next((gpu for gpu in facts.gpus if gpu.sm < flash.sm), None)
    if old:
        return f"{FLASH} needs compute capability {_dotted(flash.sm)}, {old.name} has {_dotted(old.sm)}"
    minor, major = ".".join(pair.torch.split(".")[:2]), int(pair.cuda.split(".")[0])
    for release in flash.releases if facts.machine == "x86_64" else []:
        if minor in release.torch and major == release.cuda_major and release.version in limit:
            abi, version = str(build.abi).upper(), release.version
            url = flash.url.format(version=version, major=major, torch=minor, abi=abi, python="{python}")
            source = _source(table, pair, facts) if version == flash.from_source.version else None
            return _Flash(version, [p for p in release.pythons if p in pair.row.pythons], url, source)
    lacking = f"{FLASH}{limit} has no wheel for torch {minor} with CUDA {major} on {facts.machine}"
    if flash.from_source.version not in limit or not _compiles(table, facts):
        return lacking
    source = _source(table, pair, facts)
    if source is None:
        return f"{lacking} (--allow-source-build compiles it)"
    return _Flash(flash.from_source.version, pair.row.pythons, None, source)


def _compiles(table: Table, facts: Facts) -> bool:
    return all(_serves(table.flash_attn.from_source.archs, gpu.sm) for gpu in facts.gpus)


def _source(table: Table, pair: Pair, facts: Facts) -> AskedSource | None:
    """How flash-attn is compiled for the pod's GPUs, where that is allowed and possible."""
    if not facts.from_source or not _compiles(table, facts):
        return None
    how, sms = table.flash_attn.from_source, sorted({gpu.sm for gpu in facts.gpus})
    label = ".".join(["src", f"torch{pair.torch}", pair.tag, *(f"sm{sm}" for sm in sms)])
    return {
        "version": f"{how.version}+{label}",
        "variables": how.filled(sms, label),
        "tools": list(how.tools),
        "job_bytes": how.job_gib * GIB,
    }


def _python(facts: Facts, fitting: Sequence[str], headers: bool = False) -> _Python | None:
    """The pod's default Python if it fits, else its newest that does, else a managed one."""
    ranked = sorted(facts.pythons[1:], key=lambda p: _version(p.version), reverse=True)
    for interpreter in (*facts.pythons[:1], *ranked):
        if interpreter.minor in fitting and not (headers and interpreter.headers is False):
            return _Python(interpreter.minor, interpreter.path)
    return next((_Python(minor, None) for minor in _MANAGED if facts.managed and minor in fitting), None)


def _no_python(facts: Facts, fitting: Sequence[str], headers: bool = False) -> str:
    have = ", ".join(f"{p.minor} ({p.path})" for p in facts.pythons) or "none"
    return f"it needs Python {' or '.join(fitting)}{' with its C headers' if headers else ''}, the pod has {have}"


def _environment(table: Table, fit: _Fit, facts: Facts, wanted: Wanted, rejected: tuple[str, ...]) -> Environment:
    pair, flash, python = fit.pair, fit.flash, fit.python
    if python is None:
        raise ValueError("an environment is made of a pair that fits")
    local = _local_version(pair, facts)
    triton = wanted.triton or pair.cuda is not None
    pins = {"torch": pair.torch + local, **({"triton": pair.triton} if triton else {})}
    return Environment(
        profile=pair.name,
        python=python.minor,
        interpreter=python.path,
        requirements=(
            *(f"{name}=={version}" for name, version in pins.items()),
            *(pair.row.companions if triton else ()),
            *(() if isinstance(flash, str) else table.flash_attn.requires),
            *wanted.others,
        ),
        pins=pins,
        indexes=(table.index.format(build=pair.tag),) if local else (),
        wheels=() if isinstance(flash, str) else (flash.wheel(python.minor, FLASH in wanted.required),),
        cuda=pair.cuda,
        reasons=(*_reasons(table, pair, facts, wanted, flash), python.reason),
        rejected=rejected,
    )


def _local_version(pair: Pair, facts: Facts) -> str:
    """'+cu126' where the build is not the one that the package index serves under the plain version."""
    if facts.system != "Linux" or pair.row.pypi.get(facts.machine) == (pair.cuda or CPU):
        return ""
    return f"+{pair.tag}"


def _reasons(table: Table, pair: Pair, facts: Facts, wanted: Wanted, flash: _Flash | str) -> Iterator[str]:
    about = table.profiles[pair.name].about if pair.name in table.profiles else "the newest pair that fits"
    yield f"{pair.name}: torch {pair.torch}, triton {pair.triton}: {about}"
    if pair.cuda is None:
        yield f"the pod has {'a CUDA GPU, which it does not use' if facts.gpus else 'no CUDA GPU'}"
    else:
        yield from _gpu_reasons(table, pair.cuda, facts)
    if isinstance(flash, _Flash):
        how = "has a wheel for it" if flash.url else "has no wheel for it, and is compiled on the pod"
        yield f"{FLASH} {flash.version} {how}"
    elif wanted.flash is not None:
        own = Version(pair.torch) >= Version(table.torch_varlen.since) and pair.cuda is not None
        yield f"{FLASH} is left out: {flash}{'; torch.nn.attention.varlen can stand in' if own else ''}"


def _gpu_reasons(table: Table, cuda: str, facts: Facts) -> Iterator[str]:
    runtime = table.runtime(cuda)
    own = _version(facts.driver or "") >= _version(runtime.own_driver)
    how = "" if own else f", by minor-version compatibility (CUDA {cuda}'s own is {runtime.own_driver})"
    yield f"driver {facts.driver} runs CUDA {cuda}, which needs {runtime.driver}{how}"
    yield f"it has machine code for {', '.join(dict.fromkeys(map(_described, facts.gpus)))}"


def _not_newer(table: Table, chosen: _Fit, facts: Facts, wanted: Wanted) -> Iterator[str]:
    """Why each newer torch is not the one, a line for each release."""
    fits: dict[str, list[_Fit]] = {}
    for pair in table.pairs() if chosen.pair.cuda else table.cpu_pairs():
        if newer(pair.torch, chosen.pair.torch):
            fits.setdefault(pair.torch, []).append(_examine(table, pair, facts, wanted))
    for torch, found in fits.items():
        fitting = next((fit for fit in found if fit.problem is None), None)
        yield f"torch {torch}: {_less_good(fitting, chosen) if fitting else found[0].problem}"


def _less_good(fit: _Fit, chosen: _Fit) -> str:
    lacks_flash = isinstance(fit.flash, str) and not isinstance(chosen.flash, str)
    return f"it fits, but {fit.flash}" if lacks_flash else f"it fits, but {chosen.pair.name} is preferred"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _described(gpu: Gpu) -> str:
    return f"compute capability {_dotted(gpu.sm)} ({gpu.name})" if gpu.sm else f"{gpu.name}, a GPU that nobody knows"


def _dotted(sm: int) -> str:
    return f"{sm // 10}.{sm % 10}"
