"""Native Sparse Attention in other libraries."""
