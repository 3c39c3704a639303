"""Validation of the facts: what is new is checked, the last good version moves, failing rows are quarantined.

`pointer` and `result` need neither Spark nor Great Expectations, and nothing here imports those for you.
"""

import os

# Great Expectations reads it when it is imported.
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
