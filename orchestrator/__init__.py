"""nsa-pod: one command from a laptop turns a bare GPU pod into a verdict that can be trusted."""

__version__ = "0.1.0"
