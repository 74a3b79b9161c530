"""Inputs that are almost right, and how they are tried."""
