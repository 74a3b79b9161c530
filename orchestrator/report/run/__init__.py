"""The report of a run, as a document: the same for Markdown, HTML and a pull request."""

from orchestrator.report.run.page import document

__all__ = ["document"]
