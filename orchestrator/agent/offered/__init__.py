"""Modules that lie on the path of every stage, for those who want to import them: each is one file, to be copied."""
