"""A run's .git, made without git: its objects, its index, its references."""
