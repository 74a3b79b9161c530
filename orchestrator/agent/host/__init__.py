"""The pod's machine: processes, GPUs, Pythons."""
