"""The scores of blocks and the best of them."""
