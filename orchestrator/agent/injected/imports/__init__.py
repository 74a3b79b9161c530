"""What this process imports."""
