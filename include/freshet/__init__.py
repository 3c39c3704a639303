"""Freshet loads a fast stream of updates into a lakehouse, enriched under a byte budget."""

# Here and nowhere else: a checkout that was not installed has no metadata to ask.
__version__ = "0.1.0"
