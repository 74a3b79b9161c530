"""Compressed tokens."""
