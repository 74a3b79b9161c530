"""Files of benchmark programs, which say themselves what they measured: pytest-benchmark, nvbench, asv."""

from __future__ import annotations

import itertools
import math
import struct
from functools import partial
from typing import Any, BinaryIO, Callable, Dict, Iterator, Mapping, Optional, Tuple, TypedDict

from orchestrator.shared import strict_json
from orchestrator.shared.text import plain
from orchestrator.verdict.artifacts.cells import number_in, shown
from orchestrator.verdict.artifacts.figures import Measures, key_text
from orchestrator.verdict.artifacts.kind import Bad, Finding, Kind
from orchestrator.verdict.artifacts.reading import Beside, Reading
from orchestrator.verdict.artifacts.table import Count

_MOST_BYTES = 256 << 20
_FLOAT_BYTES = 4
_NVBENCH_SAMPLES = "nv/json/bin:nv/cold/sample_times"
_NVBENCH_MEANS = ("nv/cold/time/gpu/mean", "nv/batch/time/gpu/mean", "nv/cpu_only/time/cpu/mean")
# asv: "The prefix of the name tells the type of a benchmark"; each type has its unit.
_ASV_UNITS = {"time_": "s", "timeraw_": "s", "mem_": "bytes", "peakmem_": "bytes"}


class Asks(TypedDict, total=False):
    """How many figures at least."""

    min_rows: Count


class AsksOfAsv(Asks, total=False):
    """Units and directions of its `track_` benchmarks, by name: asv's file does not have them."""

    measures: Measures


_Figures = Callable[[Mapping[str, Any], Any, Beside], Iterator[Reading]]


def _pytest_benchmark(asked: Mapping[str, Any], content: Any, beside: Beside) -> Iterator[Reading]:
    """`stats` are in seconds."""
    for found in content["benchmarks"]:
        stats = found["stats"]
        row = (("benchmark", plain(found["fullname"], 200)),)
        yield Reading(row, "time", "s", "lower", _numbers(stats.get("data") or [stats["median"]]))


def _nvbench(asked: Mapping[str, Any], content: Any, beside: Beside) -> Iterator[Reading]:
    """Times of the GPU, in seconds, of the states that were not skipped."""
    devices = {device["id"]: device["name"] for device in content["devices"]}
    for benchmark in content["benchmarks"]:
        for state in benchmark["states"]:
            if state.get("is_skipped"):
                continue
            axes = ((axis["name"], key_text(axis["value"])) for axis in state.get("axis_values") or ())
            device = () if state.get("device") is None else (("device", plain(devices[state["device"]], 200)),)
            row = (("benchmark", plain(benchmark["name"], 200)), *axes, *device)
            yield Reading(row, "gpu_time", "s", "lower", _nvbench_samples(state, beside))


def _nvbench_samples(state: Mapping[str, Any], beside: Beside) -> Tuple[float, ...]:
    """Little-endian floats in a file of their own; without it the mean alone."""
    told: Dict[str, Dict[str, Any]] = {
        summary["tag"]: {item["name"]: item["value"] for item in summary["data"]} for summary in state["summaries"]
    }
    if _NVBENCH_SAMPLES in told:
        count = int(told[_NVBENCH_SAMPLES]["size"])
        data = beside(told[_NVBENCH_SAMPLES]["filename"])
        if data is not None:
            if len(data) != count * _FLOAT_BYTES:
                raise Bad(f"says that {count} samples lie beside it, which are not there")
            return _numbers(list(struct.unpack(f"<{count}f", data)))
    mean = next((told[tag]["value"] for tag in _NVBENCH_MEANS if tag in told), None)
    if mean is None:
        raise Bad(f"holds no time of the state {plain(state.get('name'), 80)}")
    return _numbers([mean])


def _asv(asked: Mapping[str, Any], content: Any, beside: Beside) -> Iterator[Reading]:
    """A list for each benchmark, whose places `result_columns` names; a result that is null did not work."""
    for name, values in content["results"].items():
        told = dict(zip(content["result_columns"], values))
        measure = _asv_measure(name, asked.get("measures") or {})
        results = told["result"]
        if measure is None or results is None:
            continue
        samples = told.get("samples") or [None] * len(results)
        for parameters, result, own in zip(itertools.product(*(told.get("params") or ())), results, samples):
            if result is not None:
                words = ", ".join(plain(word, 80) for word in parameters)
                row = (("benchmark", plain(name, 200)), *((("parameters", words),) if words else ()))
                yield Reading(row, *measure, _numbers(own or [result]))


def _asv_measure(name: str, measures: Mapping[str, Any]) -> Optional[Tuple[str, str, Any]]:
    """Column, unit and direction; None for one that nobody has said them of."""
    if name in measures:
        return "value", measures[name]["unit"], measures[name]["better"]
    last = name.rpartition(".")[2]
    prefix = next((prefix for prefix in _ASV_UNITS if last.startswith(prefix)), None)
    return ("time" if _ASV_UNITS[prefix] == "s" else "memory", _ASV_UNITS[prefix], "lower") if prefix else None


def _possible(reading: Reading) -> Reading:
    """Of a program for benches, a time is one that passed."""
    if reading.unit == "s" and min(reading.samples) <= 0:
        raise Bad(f"holds a time of {min(reading.samples):g} s, expected one above 0")
    return reading


def _numbers(values: Any) -> Tuple[float, ...]:
    if not isinstance(values, list):
        raise TypeError(f"expected a list of measured values, got {shown(values)}")
    found = [number_in(value) for value in values]
    if not found or any(number is None or not math.isfinite(number) for number in found):
        raise Bad("holds a measured value that is no finite number")
    return tuple(float(number) for number in found if number is not None)


def _figures(of: _Figures, name: str, asked: Mapping[str, Any], f: BinaryIO, beside: Beside) -> Iterator[Reading]:
    try:
        # asv writes NaN for what it has skipped.
        content = strict_json.loads(f.read(), parse_constant=lambda name: None)
        yield from map(_possible, of(asked, content, beside))
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as e:
        raise Bad(f"is not JSON: {plain(e, 120)}") from e
    except (LookupError, TypeError, AttributeError) as e:
        raise Bad(f"is no file of {name}: {plain(repr(e), 120)}") from e


def _read(of: _Figures, name: str, asked: Mapping[str, Any], f: BinaryIO) -> Iterator[Finding]:
    """Whether it holds figures at all; samples beside it are for those who have them."""
    count = sum(1 for _ in _figures(of, name, asked, f, lambda path: None))
    if count < asked.get("min_rows", 1):
        yield Finding(f"holds {count} figures, expected at least {asked.get('min_rows', 1)}")


def _kind(name: str, asks: Any, of: _Figures) -> Kind:
    return Kind(name, asks, partial(_read, of, name), most_bytes=_MOST_BYTES, figures=partial(_figures, of, name))


KINDS = (
    _kind("pytest-benchmark", Asks, _pytest_benchmark),
    _kind("nvbench", Asks, _nvbench),
    _kind("asv", AsksOfAsv, _asv),
)
