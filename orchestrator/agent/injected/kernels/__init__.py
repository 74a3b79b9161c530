"""What this process has a device do."""
