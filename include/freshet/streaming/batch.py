"""One micro-batch, from its plan to its row in the ledger.

    plan (created if absent) ─► parse ─► lookups in the workers ─► derive ─► kept in memory
        ─► conservation checked ─► facts ─► parked ─► batches row

Each of the three appends carries the batch's number as a Delta transaction, and everything the result
depends on stands in the plan. So the batch can be run again from the start after a kill at any point,
by any driver: what is already written is skipped, and the rest is what the first run would have written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshet.errors import BatchError
from freshet.home import LoadHome
from freshet.streaming import records, sources
from freshet.streaming.checkpoint import BatchInput, Checkpoint
from freshet.streaming.derive import with_derived
from freshet.streaming.ledger import Tally, ledger_row
from freshet.streaming.plan import Plan
from freshet.streaming.planning import Planner
from freshet.streaming.rows import fact_rows, kept_columns, parked_files, parked_rows
from freshet.streaming.tables import BATCHES_SCHEMA, LoadTables, append
from freshet.streaming.task import partition_task, spark_schema
from freshet.streaming.transactions import Commit
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

    def load(self, frame: DataFrame, batch: int) -> Mapping[str, Any]:
        """Load a micro-batch; its row of the ledger comes back."""
        clock = _Clock()
        started = datetime.now(UTC)
        batch_input = self.checkpoint.batch_input(batch)
        self.step("plan", batch)
        plan = self.planner.plan(batch, batch_input)
        self.step("join", batch)
        refused = sources.refused_files(self.definition, batch_input.files)
        clock.lap("plan")
        joined = self._joined(frame, plan, batch_input, refused).persist()
        try:
            tally = self._tally(joined, len(refused))
            clock.lap("join")
            self._check(tally, joined, plan)
            tables = LoadTables(self.definition)
            self.step("facts", batch)
            facts = self._append_facts(joined, tally, plan, tables)
            clock.lap("facts")
            self.step("parked", batch)
            parked = self._append_parked(joined, tally, plan, tables, refused)
            clock.lap("parked")
        finally:
            joined.unpersist()
        self.step("ledger", batch)
        row = ledger_row(plan, tally, facts, parked, started, clock.laps)
        ledger = self.spark.createDataFrame([row], BATCHES_SCHEMA)
        append(ledger, tables.batches, self.stream_id, batch)
        self.step("commit", batch)
        return row

    def _joined(
        self, frame: DataFrame, plan: Plan, batch_input: BatchInput, refused: Mapping[str, str]
    ) -> DataFrame:
        """The batch after the lookups, with the derived columns; rows of every kind."""
        if refused and self.definition.stream.format == "parquet":
            frame = self._parquet_rows(frame, [uri for uri in batch_input.files if uri not in refused])
        task = partition_task(self.definition, plan, sources.spellings(refused))
        enriched = sources.parse(frame, self.definition).mapInArrow(task, spark_schema(task.schema))
        return kept_columns(with_derived(enriched, self.definition), self.definition)

    def _parquet_rows(self, frame: DataFrame, files: list[str]) -> DataFrame:
        """The rows of a Parquet batch from some of its files only, in the shape of the whole batch."""
        if not files:
            return self.spark.createDataFrame([], frame.schema)
        columns = frame.select(*self.definition.stream.columns).schema
        rows = self.spark.read.schema(columns).parquet(*(str(sources.local_path(uri)) for uri in files))
        return rows.select(
            "*", F.col("_metadata.file_path").alias("_file"), F.col("_metadata.row_index").alias("_block")
        )

    def _tally(self, joined: DataFrame, refused_files: int) -> Tally:
        event_time = self.definition.stream.event_time
        newest = F.max(event_time) if event_time else F.lit(None)
        groups = joined.groupBy("_kind", "_reason").agg(
            F.count("*").alias("rows"),
            newest.cast("timestamp").alias("newest"),
            F.collect_list("_stats").alias("stats"),
        )
        tally = Tally()
        for group in groups.collect():
            if group["_kind"] == FACT:
                tally.facts = group["rows"]
                tally.max_event_time = group["newest"]
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

    def _append_facts(self, joined: DataFrame, tally: Tally, plan: Plan, tables: LoadTables) -> Commit | None:
        if not tally.facts:
            return None
        facts = fact_rows(joined, self.definition, plan)
        return append(facts, tables.facts, self.stream_id, plan.batch)

    def _append_parked(
        self, joined: DataFrame, tally: Tally, plan: Plan, tables: LoadTables, refused: Mapping[str, str]
    ) -> Commit | None:
        if not tally.parked:
            return None
        parked = parked_rows(joined, self.definition, plan)
        if refused:
            parked = parked.unionByName(parked_files(self.spark, refused, plan))
        return append(parked, tables.parked, self.stream_id, plan.batch)


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        moment = time.perf_counter()
        self.laps[phase] = moment - self._last
        self._last = moment
