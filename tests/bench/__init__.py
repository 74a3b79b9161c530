"""Measurements that are run by hand: `python -m tests.bench.NAME`."""
