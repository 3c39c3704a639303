"""The names a lookup's `algorithm` may have, each with the settings of that join.

They stand here, and not with the joins, so that a definition is checked without importing one.
"""

AUTO = "auto"
"""Lets Freshet choose the join."""
ALGORITHMS = {
    "inlj": ("block_rows",),
    "x-hybridjoin": ("hot_rows", "swappable_pages", "waiting_tuples"),
}
