"""The marks that a file of tests gets beside its assertions, and what its source tells of them."""
