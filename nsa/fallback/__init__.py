"""The PyTorch path, for any device."""
