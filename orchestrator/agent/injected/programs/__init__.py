"""Programs of the tree that drop what says that something is wrong, or that do nothing."""
