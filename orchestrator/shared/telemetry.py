"""telemetry.csv: what the GPUs did while a stage ran, as one nvidia-smi prints it, and what it comes to."""

from __future__ import annotations

import statistics
from datetime import datetime
from pathlib import Path
from typing import List, NamedTuple, Optional

FILE = "telemetry.csv"
FIELDS = (
    "timestamp,index,clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu,memory.used,"
    "clocks_throttle_reasons.active"
)
"""What nvidia-smi is asked for, a line for each GPU and moment."""
MOST_BYTES = 4 << 20
_EPOCH = datetime(1970, 1, 1)

# Bits of NVML's clocksEventReasons: those that take speed away, not those that a person or an idle GPU asks for.
_POWER_CAP = 0x4
_THROTTLING = {
    _POWER_CAP: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat, by software",
    0x40: "heat, by hardware",
    0x80: "power brake",
}


class Sample(NamedTuple):
    """One GPU at one moment: MHz, degrees Celsius, W, percent, and the bits of what held the clocks down.

    `moment` is in seconds by the pod's wall clock, only to be compared with that of other samples; None if untold.
    """

    gpu: int
    clock: int
    temperature: int
    power: float
    utilization: int
    reasons: int
    moment: Optional[float]

    @property
    def is_capped(self) -> bool:
        """Whether the power limit held the clocks down: usual at full work."""
        return bool(self.reasons & _POWER_CAP)

    @property
    def is_throttled(self) -> bool:
        """Whether heat, hardware or a power brake did."""
        return any(self.reasons & bit for bit in _THROTTLING if bit != _POWER_CAP)


def read(path: Path) -> List[Sample]:
    """The samples in a telemetry file; lines that are none are passed over. Empty if there is no file."""
    try:
        with path.open(errors="replace") as f:
            lines = f.read(MOST_BYTES).splitlines()
    except OSError:
        return []
    return [sample for sample in map(_parse, lines) if sample is not None]


def summaries(samples: List[Sample]) -> List[str]:
    """A sentence for each GPU that was at work, by the samples in which it was."""
    busy = [sample for sample in samples if sample.utilization > 0]
    return [_summary([s for s in busy if s.gpu == index]) for index in sorted({sample.gpu for sample in busy})]


def _summary(samples: List[Sample]) -> str:
    clocks = [sample.clock for sample in samples]
    throttled = [sample for sample in samples if any(sample.reasons & bit for bit in _THROTTLING)]
    why = ", ".join(name for bit, name in _THROTTLING.items() if any(sample.reasons & bit for sample in throttled))
    held = f"throttled in {len(throttled)} of {len(samples)} samples ({why})" if throttled else "not throttled"
    return (
        f"GPU {samples[0].gpu} at work: SM clock median {statistics.median(clocks):.0f} MHz, lowest {min(clocks)}, "
        f"highest {max(clocks)}; at most {max(s.temperature for s in samples)} degrees and "
        f"{max(s.power for s in samples):.0f} W; {held}"
    )


def _parse(line: str) -> Optional[Sample]:
    cells = [cell.strip() for cell in line.split(",")]
    try:
        at, index, clock, _, temperature, power, utilization, _, reasons = cells
        watts = float(power) if not power.startswith("[") else 0.0
        return Sample(int(index), int(clock), int(temperature), watts, int(utilization), int(reasons, 16), _moment(at))
    except ValueError:
        return None


def _moment(text: str) -> Optional[float]:
    """Of `2026/11/21 10:15:00.000`."""
    try:
        return (datetime.fromisoformat(text.replace("/", "-")) - _EPOCH).total_seconds()
    except ValueError:
        return None
