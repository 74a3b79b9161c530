"""What benches measured: every number of a run once, with its context; and what two of them say of each other."""

from orchestrator.figures.model import Clocks, Context, Figure, Figures, Identity
from orchestrator.figures.run import of_run

__all__ = ["Clocks", "Context", "Figure", "Figures", "Identity", "of_run"]
