"""What of a pod's workdir is in use, what can go, and how it goes."""
