"""Inputs of every kind, random and almost right: whatever comes, the tool ends with a sentence."""
