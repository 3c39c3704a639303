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
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from freshet.config import Definition, Lookup
from freshet.config.types import to_arrow, to_ddl
from freshet.errors import BatchError, LoadStateError, SnapshotError
from freshet.home import LoadHome
from freshet.master.snapshot import latest, open_snapshot, snapshot_path
from freshet.streaming import records, sources
from freshet.streaming.checkpoint import BatchInput, Checkpoint
from freshet.streaming.derive import with_derived
from freshet.streaming.ledger import ledger_row
from freshet.streaming.plan import Plan, create_plan, now, read_plan
from freshet.streaming.tables import BATCHES_SCHEMA, LoadTables, append
from freshet.streaming.transactions import Commit
from freshet.streaming.worker import FACT, META_FIELDS, PARKED, REFUSED, LookupTask, PartitionTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SHOWN_KEYS = 5

Listener = Callable[[str, int], None]
"""Told the name of each step of a batch just before it is taken, and the batch's number."""


@dataclass(frozen=True)
class Settings:
    """What a run may override of its definition."""

    algorithm: str | None = None
    memory: int | None = None


@dataclass
class Tally:
    """What a joined batch holds, counted before anything is written."""

    rows_in: int = 0
    facts: int = 0
    refused: int = 0
    parked_by_reason: Counter[str] = field(default_factory=Counter)
    max_event_time: datetime | None = None
    tasks: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def parked(self) -> int:
        return sum(self.parked_by_reason.values())


class BatchLoader:
    """Loads the micro-batches of one stream."""

    def __init__(
        self,
        spark: SparkSession,
        definition: Definition,
        stream_id: str,
        settings: Settings,
        splits: Mapping[str, str],
        listener: Listener,
    ) -> None:
        self.spark = spark
        self.definition = definition
        self.stream_id = stream_id
        self.settings = settings
        self.splits = splits
        self.step = listener
        self.checkpoint = Checkpoint(LoadHome(definition.load).checkpoint)

    def load(self, frame: DataFrame, batch: int) -> Mapping[str, Any]:
        """Load a micro-batch; its row of the ledger comes back."""
        clock = _Clock()
        started = datetime.now(UTC)
        batch_input = self.checkpoint.batch_input(batch)
        self.step("plan", batch)
        plan = self.planned(batch, batch_input)
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
        ledger = self.spark.createDataFrame([row], BATCHES_SCHEMA)  # type: ignore[type-var]
        append(ledger, tables.batches, self.stream_id, batch)
        self.step("commit", batch)
        return row

    def planned(self, batch: int, batch_input: BatchInput) -> Plan:
        """The batch's plan: the one it has, or a new one from what is in force now."""
        plan = read_plan(self.definition.load, batch) or create_plan(
            self.definition.load, self._proposal(batch, batch_input)
        )
        if plan.offsets_digest != batch_input.digest:
            raise LoadStateError(
                f"Batch {batch} of load {self.definition.load!r} was planned for other input than the checkpoint "
                f"{self.checkpoint.folder} gives it: the checkpoint was replaced. Restore the one that belongs to "
                f"the tables, or start over with `freshet reset {self.definition.load}`."
            )
        if plan.splits != self.splits or plan.time_zone != self.time_zone():
            raise LoadStateError(
                f"Batch {batch} of load {self.definition.load!r} was planned by a driver with other settings "
                f"({dict(plan.splits)}, {plan.time_zone}). Run enrich again: it takes the plan's settings over."
            )
        return plan

    def time_zone(self) -> str:
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    def _proposal(self, batch: int, batch_input: BatchInput) -> Plan:
        lookups = self.definition.lookups
        return Plan(
            batch=batch,
            stream_id=self.stream_id,
            definition=self.definition.as_dict(),
            snapshots={lookup.name: published_version(self.definition, lookup) for lookup in lookups},
            algorithms={lookup.name: self.settings.algorithm or lookup.algorithm for lookup in lookups},
            memory={lookup.name: self.settings.memory or lookup.memory for lookup in lookups},
            code_version=version("freshet"),
            loaded_at=now(),
            time_zone=self.time_zone(),
            offsets_digest=batch_input.digest,
            splits=dict(self.splits),
        )

    def _joined(
        self, frame: DataFrame, plan: Plan, batch_input: BatchInput, refused: Mapping[str, str]
    ) -> DataFrame:
        """The batch after the lookups, with the derived columns; rows of every kind."""
        from pyspark.sql import functions as F

        if refused and self.definition.stream.format == "parquet":
            frame = self._parquet_rows(frame, [uri for uri in batch_input.files if uri not in refused])
        task = partition_task(self.definition, plan, frozenset(refused))
        enriched = sources.parse(frame, self.definition).mapInArrow(task, spark_schema(task.schema))
        derived = with_derived(enriched, self.definition)
        failed = (F.col("_kind") == FACT) & F.col("_failed").isNotNull()
        return derived.withColumns(
            {
                "_reason": F.when(failed, records.DERIVE_FAILED).otherwise(F.col("_reason")),
                "_detail": F.when(failed, _failure_text(self.definition)).otherwise(F.col("_detail")),
                "_kind": F.when(failed, PARKED).otherwise(F.col("_kind")),
            }
        )

    def _parquet_rows(self, frame: DataFrame, files: list[str]) -> DataFrame:
        """The rows of a Parquet batch from some of its files only, in the shape of the whole batch."""
        from pyspark.sql import functions as F

        if not files:
            return self.spark.createDataFrame([], frame.schema)
        columns = frame.select(*self.definition.stream.columns).schema
        rows = self.spark.read.schema(columns).parquet(*(str(sources.local_path(uri)) for uri in files))
        return rows.select(
            "*", F.col("_metadata.file_path").alias("_file"), F.col("_metadata.row_index").alias("_block")
        )

    def _tally(self, joined: DataFrame, refused_files: int) -> Tally:
        from pyspark.sql import functions as F

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
        if tally.refused:
            refused = joined.where(f"_kind = {REFUSED}").select("_lookup", "_key").distinct().limit(SHOWN_KEYS)
            keys = ", ".join(f"{row['_lookup']}: {row['_key']}" for row in refused.collect())
            raise BatchError(
                f"Batch {plan.batch} of load {plan.definition['load']!r} has {tally.refused} records that a lookup "
                f"with `unmatched: fail` does not know ({keys}). Nothing of the batch was written. Add the rows to "
                f"the master table, run `freshet sort` and `freshet replan {plan.definition['load']}`, and enrich again."
            )
        given = tally.facts + tally.parked
        if tally.rows_in != given:
            raise BatchError(
                f"Batch {plan.batch} of load {plan.definition['load']!r} took {tally.rows_in} records in and would "
                f"give {given} out; nothing of it was written. This is a defect of Freshet: please report it."
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
            parked = parked.unionByName(self._parked_files(refused, plan))
        return append(parked, tables.parked, self.stream_id, plan.batch)

    def _parked_files(self, refused: Mapping[str, str], plan: Plan) -> DataFrame:
        """One parked row for each file that cannot be read; the file itself is the raw record."""
        schema = "id string, detail string, source_file string"
        files = self.spark.createDataFrame([(f"{uri}#", why, uri) for uri, why in refused.items()], schema)
        nothing = {name: "string" for name in ("lookup", "key", "source_position", "raw")}
        return _stamped(_with_nulls(files, nothing), plan, records.MALFORMED_FILE)


def published_version(definition: Definition, lookup: Lookup) -> int:
    """The newest snapshot of a lookup; refused when there is none."""
    found = latest(definition.load, lookup.name)
    if found is None:
        raise SnapshotError(
            f"Lookup {lookup.name!r} of load {definition.load!r} has no snapshot. Run `freshet sort {definition.load}`."
        )
    return found


def partition_task(definition: Definition, plan: Plan, refused_files: frozenset[str]) -> PartitionTask:
    """What the workers must know of a batch, all of it from the plan."""
    stream = definition.stream
    fields = [pa.field(name, to_arrow(ddl)) for name, ddl in stream.columns.items()]
    lookups = []
    for lookup in definition.lookups:
        path = snapshot_path(definition.load, lookup.name, plan.snapshots[lookup.name])
        master = _snapshot_schema(path, tuple(lookup.add.values()))
        # The type by way of Spark's name for it: what Arrow has and Spark has not is cast to what Spark has.
        fields += [pa.field(new, to_arrow(to_ddl(master.field(old).type))) for new, old in lookup.add.items()]
        lookups.append(
            LookupTask(
                name=lookup.name,
                stream_key=lookup.stream_key,
                key_may_be_null=lookup.stream_key not in stream.columns,
                add=lookup.add,
                defaults=lookup.defaults,
                unmatched=lookup.unmatched,
                snapshot=str(path),
                version=plan.snapshots[lookup.name],
                algorithm=plan.algorithms[lookup.name],
                memory=plan.memory[lookup.name],
                settings=lookup.settings,
            )
        )
    return PartitionTask(
        load=definition.load,
        format=stream.format,
        columns=stream.columns,
        event_id=stream.event_id,
        header=sources.has_header(definition),
        delimiter=stream.options.get("delimiter", stream.options.get("sep", ",")),
        refused_files=refused_files,
        lookups=tuple(lookups),
        schema=pa.schema([*fields, *META_FIELDS]),
    )


@lru_cache(maxsize=64)
def _snapshot_schema(path: Path, columns: tuple[str, ...]) -> pa.Schema:
    return open_snapshot(path, list(dict.fromkeys(columns))).schema


def spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def fact_schema(spark: SparkSession, definition: Definition, plan: Plan) -> StructType:
    """The columns and types of the fact table under a plan."""
    task = partition_task(definition, plan, frozenset())
    empty = spark.createDataFrame([], spark_schema(task.schema))
    return fact_rows(with_derived(empty, definition), definition, plan).schema


def fact_rows(joined: DataFrame, definition: Definition, plan: Plan) -> DataFrame:
    from pyspark.sql import functions as F

    facts = joined.where(F.col("_kind") == FACT).select(*definition.facts.columns)
    return facts.withColumns(_stamp(plan))


def parked_rows(joined: DataFrame, definition: Definition, plan: Plan) -> DataFrame:
    from pyspark.sql import functions as F

    is_parquet = definition.stream.format == "parquet"
    row = F.col("_row").cast("string")
    position = row if is_parquet else F.concat(F.col("_block").cast("string"), F.lit(":"), row)
    raw = F.to_json(F.struct(*definition.stream.columns)) if is_parquet else F.col("_raw")
    parked = joined.where(F.col("_kind") == PARKED).select(
        F.concat(F.col("_file"), F.lit("#"), position).alias("id"),
        F.col("_reason").alias("reason"),
        F.col("_lookup").alias("lookup"),
        F.col("_key").alias("key"),
        F.col("_detail").alias("detail"),
        F.col("_file").alias("source_file"),
        position.alias("source_position"),
        raw.alias("raw"),
    )
    return parked.withColumns(_stamp(plan))


def _stamp(plan: Plan) -> dict[str, Any]:
    from pyspark.sql import functions as F

    return {
        "_batch": F.lit(plan.batch).cast("bigint"),
        "_loaded_at": F.lit(plan.loaded_at).cast("timestamp"),
    }


def _stamped(frame: DataFrame, plan: Plan, reason: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.withColumn("reason", F.lit(reason)).withColumns(_stamp(plan))


def _with_nulls(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.withColumns({name: F.lit(None).cast(ddl) for name, ddl in columns.items()})


def _failure_text(definition: Definition) -> Any:
    """Which derived column failed, with its expression."""
    from pyspark.sql import functions as F

    text = F.col("_failed")
    for name, expression in definition.derive.items():
        text = F.when(F.col("_failed") == name, F.lit(f"{name}: {expression}")).otherwise(text)
    return text


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        moment = time.perf_counter()
        self.laps[phase] = moment - self._last
        self._last = moment
