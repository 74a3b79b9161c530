"""The memory of a cache that many sequences share."""
