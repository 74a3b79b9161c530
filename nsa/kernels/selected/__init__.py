"""Attention to the selected blocks."""
