"""Small language models on bytes, with sparse or dense attention, and their generation."""

from nsa.models.lm import ByteLM, LMConfig, generate

__all__ = ["ByteLM", "LMConfig", "generate"]
