"""Freshet loads a fast stream of updates into a lakehouse, enriched under a byte budget."""
