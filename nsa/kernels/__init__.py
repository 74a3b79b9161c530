"""Triton kernels for each step of Native Sparse Attention; the oracle for all of them is `nsa.reference`."""
