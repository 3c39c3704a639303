"""Stores of R, the master data: where its rows come from and how the joins read them."""
