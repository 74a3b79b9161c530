"""A pod behind SSH."""
