"""Is an event in the table once? The new ids are compared with each other and with the rest of the table.

Only the event id column is read. Of the rest of the table Delta reads just the files whose smallest and
largest id leave room for a new one: none, when ids grow with time; all of them, when ids are random. Up to
BROADCAST_IDS new ids are sent to every task and the rest streams past them; more are joined by a sort
that spills to disk. So memory stays bounded either way.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from freshet.quality.checks import BATCH, UNIQUE
from freshet.quality.newrows import NewRows, Survey, from_text

BROADCAST_IDS = 1_000_000


class EventIds:
    """The new event ids that the table has more than once."""

    def __init__(self, new: NewRows, survey: Survey) -> None:
        self.event_id = new.definition.stream.event_id
        self._ids = new.frame.select(self.event_id).where(F.col(self.event_id).isNotNull())
        self._repeated = (
            self._ids.groupBy(self.event_id).count().where("count > 1").select(self.event_id).persist()
        )
        self._known = self._among_old(new, survey).persist()
        self._any_repeated = not self._repeated.isEmpty()
        self._any_known = not self._known.isEmpty()

    def _among_old(self, new: NewRows, survey: Survey) -> DataFrame:
        """The new ids that are in the rest of the table as well."""
        if not new.has_rest or survey.lowest_id is None or survey.highest_id is None:
            return self._ids.limit(0)
        ends = (from_text(end, new.id_type) for end in (survey.lowest_id, survey.highest_id))
        span = F.col(self.event_id).between(*ends)
        old = new.rest(survey).where(span).select(self.event_id)
        ids = F.broadcast(self._ids) if survey.rows <= BROADCAST_IDS else self._ids.hint("merge")
        return old.join(ids, self.event_id, "left_semi").distinct()

    def check(self, rows: DataFrame) -> DataFrame:
        """The rows with the check's column: of several rows with one id all but the earliest fail."""
        problem = F.lit(None).cast("string")
        if self._any_repeated:
            # A row that no batch has written never comes first; the row as text makes the order complete.
            order = (
                F.col(BATCH.column).isNotNull(),
                "_batch",
                "_loaded_at",
                F.to_json(F.struct(*_plain(rows))),
            )
            position = F.row_number().over(Window.partitionBy(self.event_id).orderBy(*order))
            is_later = F.col(self.event_id).isNotNull() & (position > 1)
            problem = F.when(is_later, F.lit("the event id occurs again among the new rows"))
        if self._any_known:
            known = self._known.select(self.event_id, F.lit(True).alias("_known"))
            rows = rows.join(known, self.event_id, "left")
            problem = F.when(F.col("_known"), F.lit("the event id was in the table before")).otherwise(
                problem
            )
        return rows.withColumn(UNIQUE.column, problem).drop("_known")

    def forget(self) -> None:
        """Give the memory back."""
        self._repeated.unpersist()
        self._known.unpersist()


def _plain(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if not name.startswith("_")]
