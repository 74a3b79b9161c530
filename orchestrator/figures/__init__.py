"""What benches measured: every number of a run once, with its context; and what two of them say of each other."""

from orchestrator.figures.comparison import Comparison, compare
from orchestrator.figures.model import Clocks, Context, Figure, Figures, Identity
from orchestrator.figures.run import of_run
from orchestrator.figures.trials import comparison_of

__all__ = ["Clocks", "Comparison", "Context", "Figure", "Figures", "Identity", "compare", "comparison_of", "of_run"]
