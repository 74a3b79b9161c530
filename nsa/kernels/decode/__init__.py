"""A decode step in three kernels."""
