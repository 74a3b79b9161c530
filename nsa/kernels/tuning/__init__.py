"""Launch configurations: the table, how it is looked up, and compiling it ahead of time."""
