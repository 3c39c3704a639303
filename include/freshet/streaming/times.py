"""Event times as producers send them: any year, also one that Python cannot hold."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

OLDEST_YEAR, NEWEST_YEAR = 2, 9998
"""What Python's datetime has in every time zone."""


def newest_time(column: Column) -> Column:
    """The newest of the times, those aside that Python cannot hold: PySpark cannot bring them out."""
    sane = F.year(column).between(OLDEST_YEAR, NEWEST_YEAR)
    return F.max(F.when(sane, column))
