"""The checks that ran, in which test, and whether they could fail."""
