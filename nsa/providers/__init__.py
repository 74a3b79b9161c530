"""Kernels of other packages, and the experimental CUDA selection."""
