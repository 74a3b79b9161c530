"""A document as one page of HTML that needs nothing else."""

from orchestrator.report.html.page import render

__all__ = ["render"]
