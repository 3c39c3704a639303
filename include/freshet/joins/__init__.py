"""Semi-stream joins: one contract, a registry, one file for each algorithm."""
