"""A revision of a git repository -> an exact tree."""
