"""Attention in which every query reads one range of keys: the window and the compressed branch."""
