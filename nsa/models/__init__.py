"""Small language models on bytes, with sparse or dense attention, and their generation."""

from nsa.models.generation import generate
from nsa.models.lm import ByteLM, LMConfig

__all__ = ["ByteLM", "LMConfig", "generate"]
