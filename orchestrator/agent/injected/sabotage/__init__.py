"""Sessions in which the code is wrong on purpose."""
