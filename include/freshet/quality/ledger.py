"""The ledger against the tables: every batch has given out what it took in, and it is all there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import pandas as pd
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession

from freshet.delta import open_table, read_rows
from freshet.home import LoadHome
from freshet.quality.newrows import NewRows, Survey, of_batches

QUARANTINED = "quarantined"
"""The reason of parked rows that were facts until they failed validation."""

_COUNTS = ["rows_in", "facts", "parked", "waiting_before", "waiting_after"]
_COLUMNS = ["batch", "stream_id", *_COUNTS, "balanced", "max_event_time"]


@dataclass(frozen=True)
class Ledger:
    """Rows of the batches table: those of batches not yet validated, and others that were asked for."""

    load: str
    validated: int | None
    """The last batch that a successful validation has covered."""
    rows: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def batches(self) -> frozenset[int]:
        return frozenset(row["batch"] for row in self.rows)

    @property
    def last(self) -> int | None:
        """The last finished batch."""
        return max(self.batches, default=self.validated)

    @property
    def stream_ids(self) -> frozenset[str]:
        return frozenset(row["stream_id"] for row in self.rows)

    def is_new(self, batch: int) -> bool:
        return self.validated is None or batch > self.validated

    def unfinished(self, batch: int) -> bool:
        """Whether a batch whose facts are written has still to write its row here."""
        return self.last is None or batch > self.last

    def newest_event(self) -> datetime | None:
        """The newest event of the new batches, if they recorded any."""
        times = [row["max_event_time"] for row in self.rows if self.is_new(row["batch"])]
        return max((time for time in times if time is not None), default=None)

    def including(self, batches: Iterable[int]) -> Ledger:
        """The ledger with the rows of these batches as well."""
        missing = sorted(batch for batch in batches if not self.is_new(batch))
        older = _read(self.load, pc.field("batch").isin(missing)) if missing else ()
        return replace(self, rows=(*older, *self.rows))


def read_ledger(load: str, validated: int | None) -> Ledger:
    """The ledger of the batches after the last validated one."""
    return Ledger(load, validated, _read(load, pc.field("batch") > (-1 if validated is None else validated)))


def _read(load: str, where: pc.Expression) -> tuple[Mapping[str, Any], ...]:
    return tuple(read_rows(LoadHome(load).batches, _COLUMNS, where))


def ledger_frame(ledger: Ledger, new: NewRows, survey: Survey) -> pd.DataFrame:
    """One row for each batch that is new or has new rows: what the ledger says and what the tables hold.

    Batches that were validated before may have lost rows since (somebody deleted them) but have no more
    than the ledger gave them.
    """
    planned = {batch for batch in ledger.batches | _planned(ledger) if ledger.is_new(batch)}
    wanted = planned | set(survey.by_batch)
    facts = survey.by_batch + _among_old(ledger, new, survey)
    parked = _parked(new.spark, ledger.load, of_batches(wanted))
    records = _by_batch(ledger)
    previous = _previous(ledger)
    return pd.DataFrame(
        [
            _row(ledger, batch, records.get(batch, []), facts[batch], parked[batch], previous.get(batch))
            for batch in sorted(wanted)
        ]
    )


def _row(
    ledger: Ledger,
    batch: int,
    records: list[Mapping[str, Any]],
    facts: int,
    parked: Counter[str],
    previous: int | None,
) -> dict[str, Any]:
    said = {name: records[0][name] or 0 if records else 0 for name in _COUNTS}
    quarantined = parked[QUARANTINED]
    parked_in_table = parked.total() - quarantined
    surplus = facts + quarantined - said["facts"]
    given_out = said["facts"] + said["parked"] + said["waiting_after"]
    return {
        "batch": batch,
        "records": len(records),
        "missing_before": batch - previous - 1 if previous is not None else 0,
        "rows_in": said["rows_in"],
        "waiting_before": said["waiting_before"],
        "facts": said["facts"],
        "parked": said["parked"],
        "waiting_after": said["waiting_after"],
        "difference": said["rows_in"] + said["waiting_before"] - given_out,
        "balanced": all(record["balanced"] for record in records),
        "facts_in_table": facts,
        "quarantined": quarantined,
        "facts_difference": surplus if ledger.is_new(batch) else max(surplus, 0),
        "parked_in_table": parked_in_table,
        "parked_difference": parked_in_table - said["parked"] if ledger.is_new(batch) else 0,
    }


def _planned(ledger: Ledger) -> set[int]:
    """The batches that have a plan, up to the last of the ledger: a later one is not finished."""
    numbers = (int(file.stem) for file in LoadHome(ledger.load).plans.glob("*.json") if file.stem.isdigit())
    return {number for number in numbers if not ledger.unfinished(number)}


def _previous(ledger: Ledger) -> dict[int, int]:
    """For each new batch the one recorded before it."""
    new = sorted(batch for batch in ledger.batches if ledger.is_new(batch))
    before = [ledger.validated, *new] if ledger.validated is not None else new
    return {batch: earlier for earlier, batch in pairwise(before)}


def _by_batch(ledger: Ledger) -> dict[int, list[Mapping[str, Any]]]:
    grouped: dict[int, list[Mapping[str, Any]]] = {}
    for row in ledger.rows:
        grouped.setdefault(row["batch"], []).append(row)
    return grouped


def _among_old(ledger: Ledger, new: NewRows, survey: Survey) -> Counter[int]:
    """Rows by batch in the rest of the table, for the batches that can have any there.

    These are the ones that were validated before: a version is good only when the ledger has the batches of
    all its rows. So in the ordinary case nothing is read.
    """
    older = [batch for batch in survey.by_batch if not ledger.is_new(batch)]
    if not older or not new.has_rest:
        return Counter()
    counts = new.rest(survey).where(of_batches(older)).groupBy("_batch").count()
    return Counter({row["_batch"]: row["count"] for row in counts.collect()})


def _parked(spark: SparkSession, load: str, within: Column) -> dict[int, Counter[str]]:
    """Parked rows by batch and reason."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    table = LoadHome(load).parked
    if open_table(table) is not None:
        frame = spark.read.format("delta").load(str(table)).where(within)
        for row in frame.groupBy("_batch", "reason").count().collect():
            counts[row["_batch"]][row["reason"]] += row["count"]
    return counts
