"""Native Sparse Attention (arXiv 2502.11089): compressed, selected and sliding-window attention under gates."""

from nsa import reference
from nsa.config import NSAConfig

__all__ = ["NSAConfig", "reference"]
