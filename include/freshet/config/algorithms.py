"""The names a lookup's `algorithm` may have, each with the settings of that join.

They stand here, and not with the joins, so that a definition is checked without importing one.
"""

AUTO = "auto"
"""Lets Freshet choose the join."""
ALGORITHMS = {
    "hybridjoin": ("swappable_pages", "waiting_tuples"),
    "inlj": ("block_rows",),
    "meshjoin": ("swappable_pages", "waiting_tuples"),
    "r-meshjoin": ("swappable_pages", "waiting_tuples"),
    "rootjoin": ("age_bound", "swappable_pages", "waiting_tuples"),
    "x-hybridjoin": ("hot_rows", "swappable_pages", "waiting_tuples"),
    "x-rootjoin": ("age_bound", "hot_rows", "swappable_pages", "waiting_tuples"),
}
