"""Artifacts: what may be asked of a file, kind by kind, and what is wrong with one."""
