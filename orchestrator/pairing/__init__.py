"""Which torch, triton, CUDA, Python and flash-attn belong together."""
