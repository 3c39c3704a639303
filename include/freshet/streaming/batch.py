"""One micro-batch, from its plan to its row in the ledger.

    plan (created if absent) ─► parse ─► lookups in the workers ─► derive ─► kept in memory
        ─► conservation checked ─► facts ─► parked ─► batches row

Each of the three appends carries the batch's number as a Delta transaction, and everything the result
depends on stands in the plan. So the batch can be run again from the start after a kill at any point,
by any driver: what is already written is skipped, and the rest is what the first run would have written.
Once its row is in the ledger, all of it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshet.errors import BatchError, LoadStateError
from freshet.home import LoadHome
from freshet.streaming import records, sources
from freshet.streaming.checkpoint import BatchInput, Checkpoint
from freshet.streaming.derive import with_derived
from freshet.streaming.files import damaged_files
from freshet.streaming.ledger import Tally, ledger_row, written_row
from freshet.streaming.partitions import without_null_texts
from freshet.streaming.plan import Plan, is_current, read_damaged, read_plan, settle_damaged
from freshet.streaming.planning import Planner
from freshet.streaming.rows import fact_rows, kept_columns, parked_files, parked_rows
from freshet.streaming.tables import LoadTables, append, append_row, carrying
from freshet.streaming.task import partition_task, spark_schema
from freshet.streaming.times import newest_time
from freshet.streaming.transactions import Commit, find_commit
from freshet.streaming.worker import FACT, PARKED, REFUSED

SHOWN_KEYS = 5

Listener = Callable[[str, int], None]
"""Told the name of each step of a batch just before it is taken, and the batch's number."""


class BatchLoader:
    """Loads the micro-batches of one stream."""

    def __init__(self, spark: SparkSession, planner: Planner, listener: Listener) -> None:
        self.spark = spark
        self.planner = planner
        self.definition = planner.definition
        self.stream_id = planner.stream_id
        self.step = listener
        self.checkpoint = Checkpoint(LoadHome(self.definition.load).checkpoint)
        self.tables = LoadTables(self.definition)

    def load(self, frame: DataFrame, batch: int) -> Mapping[str, Any]:
        """Load a micro-batch; its row of the ledger comes back."""
        clock = _Clock()
        started = datetime.now(UTC)
        batch_input = self.checkpoint.batch_input(batch)
        self.step("plan", batch)
        plan = self.planner.plan(batch, batch_input)
        written = written_row(self.tables.batches, self.stream_id, batch)
        if written:  # its files and snapshots may be gone by now
            self.step("commit", batch)
            return written
        self.planner.require_as_planned(plan)
        self.step("join", batch)
        clock.lap("plan")
        joined, tally, refused = self._join(frame, plan, batch_input)
        try:
            clock.lap("join")
            self._check(tally, joined, plan)
            self.step("facts", batch)
            facts = self._append_facts(joined, tally, plan)
            clock.lap("facts")
            self.step("parked", batch)
            parked = self._append_parked(joined, tally, plan, refused)
            clock.lap("parked")
        finally:
            joined.unpersist()
        self.step("ledger", batch)
        row = ledger_row(plan, tally, facts, parked, started, clock.laps)
        ledger = self.tables.batches
        self._append(lambda: append_row(row, ledger, self.stream_id, batch), ledger, plan, 1)
        self.step("commit", batch)
        return row

    def _join(
        self, frame: DataFrame, plan: Plan, batch_input: BatchInput
    ) -> tuple[DataFrame, Tally, Mapping[str, str]]:
        """The joined batch, held in memory, what it holds, and the files it leaves out as a whole."""
        refused = {**plan.refused, **read_damaged(self.definition.load, plan.batch)}
        try:
            return *self._join_without(refused, frame, plan, batch_input), refused
        except Exception:
            damaged = self._damaged(plan, batch_input, refused)
            if not damaged:
                raise
        refused |= damaged
        return *self._join_without(refused, frame, plan, batch_input), refused

    def _damaged(self, plan: Plan, batch_input: BatchInput, refused: Mapping[str, str]) -> dict[str, str]:
        """The files that made reading the batch fail; none once any of the batch is written."""
        if carrying(self.definition.load, self.stream_id, plan.batch):
            return {}
        files = tuple(uri for uri in batch_input.files if uri not in refused)
        damaged = damaged_files(self.definition, files)
        return settle_damaged(self.definition.load, plan.batch, damaged) if damaged else {}

    def _join_without(
        self, refused: Mapping[str, str], frame: DataFrame, plan: Plan, batch_input: BatchInput
    ) -> tuple[DataFrame, Tally]:
        joined = self._joined(frame, plan, batch_input, refused).persist()
        try:
            return joined, self._tally(joined, len(refused))
        except Exception:
            joined.unpersist()
            raise

    def _joined(
        self, frame: DataFrame, plan: Plan, batch_input: BatchInput, refused: Mapping[str, str]
    ) -> DataFrame:
        """The batch after the lookups, with the derived columns; rows of every kind."""
        if refused:
            frame = self._rows_of(frame, [uri for uri in batch_input.files if uri not in refused])
        task = partition_task(self.definition, plan)
        enriched = sources.parse(frame, self.definition).mapInArrow(task, spark_schema(task.schema))
        derived = with_derived(enriched, self.definition)
        return kept_columns(without_null_texts(derived, self.definition), self.definition)

    def _rows_of(self, frame: DataFrame, files: list[str]) -> DataFrame:
        """The records of some files of the batch only, in the shape of the whole batch."""
        if not files:
            return self.spark.createDataFrame([], frame.schema)
        return sources.read_files(self.spark, self.definition, files)

    def _tally(self, joined: DataFrame, refused_files: int) -> Tally:
        event_time = self.definition.stream.event_time
        newest = newest_time(F.col(event_time)) if event_time else F.lit(None)
        groups = joined.groupBy("_kind", "_reason").agg(
            F.count("*").alias("rows"),
            newest.cast("timestamp").alias("newest"),
            F.collect_list("_stats").alias("stats"),
        )
        tally = Tally()
        for group in groups.collect():
            if group["_kind"] == FACT:
                tally.facts = group["rows"]
                # PySpark hands timestamps over without a zone, in the driver's local time.
                tally.max_event_time = group["newest"] and group["newest"].astimezone(UTC)
            elif group["_kind"] == PARKED:
                tally.parked_by_reason[group["_reason"]] = group["rows"]
            elif group["_kind"] == REFUSED:
                tally.refused = group["rows"]
            else:
                tally.tasks = [json.loads(text) for text in group["stats"]]
        tally.rows_in = sum(task["rows_in"] for task in tally.tasks) + refused_files
        if refused_files:
            tally.parked_by_reason[records.MALFORMED_FILE] = refused_files
        return tally

    def _check(self, tally: Tally, joined: DataFrame, plan: Plan) -> None:
        """Refuse the batch, before its first write, when records got lost or a lookup's `fail` says so."""
        load = self.definition.load
        if tally.refused:
            refused = (
                joined.where(f"_kind = {REFUSED}").select("_lookup", "_key").distinct().limit(SHOWN_KEYS)
            )
            keys = ", ".join(f"{row['_lookup']}: {row['_key']}" for row in refused.collect())
            raise BatchError(
                f"Batch {plan.batch} of load {load!r} has {tally.refused} records that a lookup with "
                f"`unmatched: fail` does not know ({keys}). Nothing of it was written. Add the rows to "
                f"the master table, run `freshet sort {load}` and `freshet replan {load}`, and enrich again."
            )
        given = tally.facts + tally.parked
        if tally.rows_in != given:
            raise BatchError(
                f"Batch {plan.batch} of load {load!r} took {tally.rows_in} records in and would give {given} "
                "out; nothing of it was written. This is a defect of Freshet: please report it."
            )

    def _append_facts(self, joined: DataFrame, tally: Tally, plan: Plan) -> Commit | None:
        def write() -> Commit:
            facts = fact_rows(joined, self.definition, plan)
            return append(facts, self.tables.facts, self.stream_id, plan.batch)

        return self._append(write, self.tables.facts, plan, tally.facts)

    def _append_parked(
        self, joined: DataFrame, tally: Tally, plan: Plan, refused: Mapping[str, str]
    ) -> Commit | None:
        def write() -> Commit:
            parked = parked_rows(joined, self.definition, plan)
            if refused:
                parked = parked.unionByName(parked_files(self.spark, refused, plan))
            return append(parked, self.tables.parked, self.stream_id, plan.batch)

        return self._append(write, self.tables.parked, plan, tally.parked)

    def _append(self, write: Callable[[], Commit], table: Path, plan: Plan, rows: int) -> Commit | None:
        """Have so many rows appended to a table, unless it carries the batch; the commit, if there is one."""
        load, batch = self.definition.load, plan.batch
        if not is_current(load, self.stream_id):
            raise LoadStateError(
                f"Load {load!r} was reset while this driver was loading batch {batch}; this driver stops."
            )
        if read_plan(load, batch) != plan:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} was given another plan while this driver was loading it; "
                "this driver stops. Run enrich again."
            )
        commit = write() if rows else find_commit(table, self.stream_id, batch)
        written = commit.rows if commit else 0
        if written != rows:
            raise LoadStateError(
                f"Batch {batch} of load {load!r} gives {rows:,} rows for {table.name}, and {written:,} were "
                "written when it was begun: the files it reads have changed since. Put them back as they "
                f"were, or empty the load and read the stream again with `freshet reset {load}`."
            )
        return commit


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        moment = time.perf_counter()
        self.laps[phase] = moment - self._last
        self._last = moment
