"""What the GPUs did over the run, as charts; what it comes to stands among the facts of the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.report.document import Chart, Section, Series, section
from orchestrator.results import StageResult
from orchestrator.shared.telemetry import FILE, Sample, read

_POINTS = 400  # of a line, in all stages together
_GAP = 1e-3  # of a second, behind the last sample of a stage: there the line ends


class _Moment(NamedTuple):
    """A sample, and when it was: seconds since the first one. None where a stage ended."""

    at: float
    sample: Sample | None


_MEASURES: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("SM clock", "MHz", lambda sample: sample.clock),
    ("Power", "W", lambda sample: sample.power),
    ("Temperature", "degrees Celsius", lambda sample: sample.temperature),
    ("Utilization", "%", lambda sample: sample.utilization),
)


def telemetry(stages: Sequence[StageResult], directory: Path) -> Section | None:
    """A chart for each measure, a line for each GPU, over the stages that had the GPUs for themselves."""
    by_stage = [(stage.name, read(directory / "stages" / stage.name / FILE)) for stage in stages]
    moments = [sample.moment for _, samples in by_stage for sample in samples if sample.moment is not None]
    if not moments:
        return None
    began = min(moments)
    marks = tuple((_began(samples, began), name) for name, samples in by_stage if samples)
    gpus = sorted({sample.gpu for _, samples in by_stage for sample in samples})
    lines = {gpu: _line([samples for _, samples in by_stage], gpu, began) for gpu in gpus}
    charts = (
        Chart(
            name,
            "seconds since the first sample",
            unit,
            tuple(
                Series(f"GPU {gpu}", tuple((at, of(sample) if sample else None) for at, sample in lines[gpu]))
                for gpu in gpus
            ),
            marks=marks,
        )
        for name, unit, of in _MEASURES
    )
    return section("Telemetry", *charts)


def _line(stages: Sequence[Sequence[Sample]], gpu: int, began: float) -> list[_Moment]:
    """The samples of a GPU, evenly thinned out, with a gap between stages."""
    found: list[_Moment] = []
    of_stages = [
        [sample for sample in samples if sample.gpu == gpu and sample.moment is not None] for samples in stages
    ]
    step = max(1, -(-sum(map(len, of_stages)) // _POINTS))
    for samples in filter(None, of_stages):
        found += [_Moment((sample.moment or 0.0) - began, sample) for sample in samples[::step]]
        found.append(_Moment(found[-1].at + _GAP, None))
    return found[:-1]


def _began(samples: Sequence[Sample], began: float) -> float:
    return min((sample.moment for sample in samples if sample.moment is not None), default=began) - began
