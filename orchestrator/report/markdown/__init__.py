"""report.md of a run."""

from orchestrator.report.markdown.page import render

__all__ = ["render"]
