"""The names a lookup's `algorithm` may have.

They stand here, and not with the joins, so that a definition is checked without importing one.
"""

AUTO = "auto"
ALGORITHMS = ("inlj", "x-hybridjoin")
