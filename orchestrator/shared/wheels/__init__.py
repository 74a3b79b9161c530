"""Wheels: which, from where, and how they are fetched."""
