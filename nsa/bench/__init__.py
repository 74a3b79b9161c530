"""Measurements: `python -m nsa.bench COMMAND`, each with its device, versions, repetitions, spread and limits."""
