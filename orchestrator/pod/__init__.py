"""A pod, seen from the laptop: its agent, the way to it, what it answers."""
