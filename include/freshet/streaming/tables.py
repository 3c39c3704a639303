"""The Delta tables of a load: their schemas, their creation, appends that happen exactly once.

Spark writes the rows of a batch. What needs no cluster, making a table and appending the ledger's one row, is
done by delta-rs in this process: milliseconds, where a commit through Spark is a handful of Spark jobs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from freshet.config import Definition
from freshet.config.types import to_arrow
from freshet.delta import open_table, read_rows
from freshet.errors import LoadStateError
from freshet.home import LoadHome
from freshet.streaming.checkpoint import NONE, Checkpoint
from freshet.streaming.transactions import Commit, find_commit, last_batch, last_transaction

FACT_COLUMNS = "_batch bigint, _loaded_at timestamp"
"""What Freshet adds to the columns of the definition."""

PARKED_COLUMNS = {
    **dict.fromkeys(
        ("id", "reason", "lookup", "key", "detail", "source_file", "source_position", "raw"), "string"
    ),
    "_batch": "bigint",
    "_loaded_at": "timestamp",
}

BATCHES_COLUMNS = {
    "batch": "bigint",
    "stream_id": "string",
    **dict.fromkeys(("started_at", "finished_at", "loaded_at"), "timestamp"),
    **dict.fromkeys(("rows_in", "facts", "parked"), "bigint"),
    "parked_by_reason": "map<string,bigint>",
    **dict.fromkeys(("waiting_before", "waiting_after"), "bigint"),
    "balanced": "boolean",
    "seconds": "double",
    "seconds_by_phase": "map<string,double>",
    "rate": "double",
    **dict.fromkeys(("facts_version", "parked_version"), "bigint"),
    "max_event_time": "timestamp",
    **dict.fromkeys(("freshness_seconds", "shift_score"), "double"),
    **dict.fromkeys(("code_version", "offsets_digest"), "string"),
    "tasks": "int",
    "lookups": """array<struct<
        name: string, algorithm: string, memory: bigint, snapshot: bigint,
        tuples_in: bigint, joined: bigint, unmatched: bigint, hot: bigint, cold: bigint,
        iterations: bigint, page_reads: bigint, bytes_read: bigint, evictions: bigint,
        peak_bytes: bigint, memory_by_component: map<string,bigint>,
        outside_by_component: map<string,bigint>,
        seconds: double, seconds_by_phase: map<string,double>>>""",
}

RACE_ERRORS = (
    "ConcurrentTransaction",
    "ConcurrentAppend",
    "MetadataChanged",
    "ProtocolChanged",
    "Failed to commit transaction",  # delta-rs
)
RACE_ATTEMPTS = 5


class LoadTables:
    """The fact, parked and batches table of one load."""

    def __init__(self, definition: Definition) -> None:
        home = LoadHome(definition.load)
        self.load = definition.load
        self.lookups = definition.lookups
        self.partition_by = definition.facts.partition_by
        self.facts = home.facts(definition.facts.table)
        self.parked = home.parked
        self.batches = home.batches

    def all(self) -> dict[str, Path]:
        return {"facts": self.facts, "parked": self.parked, "batches": self.batches}

    def create(self, spark: SparkSession, facts: StructType) -> None:
        """Create the tables that are not there; let the fact table take up new columns."""
        nullable = StructType([StructField(field.name, field.dataType, True) for field in facts])
        _create(self.facts, Schema.from_json(nullable.json()), self.partition_by)
        _create(self.parked, _schema(PARKED_COLUMNS))
        _create(self.batches, _schema(BATCHES_COLUMNS))
        self._evolve(spark, facts)

    def _evolve(self, spark: SparkSession, wanted: StructType) -> None:
        """Add the columns the definition has gained; refuse every other difference."""
        there = self.check_columns(wanted)
        added = StructType([field for field in wanted if field.name not in there])
        if added:
            _enable_types(spark, self.facts, added)
            empty = spark.createDataFrame([], added)
            writer = empty.write.format("delta").mode("append").option("mergeSchema", "true")
            _through_races(lambda: writer.save(str(self.facts)))

    def check_columns(self, wanted: StructType) -> dict[str, DataType]:
        """The columns that the fact table has; refuse facts that it cannot take as it is."""
        table = open_table(self.facts)
        there = _columns(table) if table else {}
        problems = [
            f"column {field.name!r}{self._origin(field.name)} is {there[field.name].simpleString()} in the "
            f"table and would be {field.dataType.simpleString()}"
            for field in wanted
            if field.name in there and there[field.name] != field.dataType
        ]
        problems += [
            f"column {name!r} is no longer in the definition" for name in there if name not in wanted.names
        ]
        partitions = tuple(table.metadata().partition_columns) if table else self.partition_by
        if partitions != self.partition_by:
            problems.append(
                f"the table is partitioned by {list(partitions)}, not by {list(self.partition_by)}"
            )
        if problems:
            raise LoadStateError(
                f"The fact table {self.facts} does not fit load {self.load!r} any more: "
                f"{'; '.join(problems)}. Put the definition (or the master table, then `freshet sort "
                f"{self.load}`) back as it was, or start over with `freshet reset {self.load}`."
            )
        return there

    def _origin(self, column: str) -> str:
        """Where a column comes from, if not from the definition itself."""
        for lookup in self.lookups:
            if column in lookup.add:
                return f" (column {lookup.add[column]!r} of the master table {lookup.table})"
        return ""


def _columns(table: DeltaTable) -> dict[str, DataType]:
    """A table's columns, from its log: asking Spark takes seconds when it has just started."""
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    return {field.name: field.dataType for field in schema}


def carrying(load: str, stream_id: str, batch: int) -> list[str]:
    """The tables of the load that carry this batch, also one that the definition names no longer."""
    warehouse = LoadHome(load).warehouse
    tables = sorted(warehouse.iterdir()) if warehouse.exists() else []
    return [table.name for table in tables if last_transaction(table, stream_id) >= batch]


def append(frame: DataFrame, table: Path, stream_id: str, batch: int) -> Commit:
    """Append a batch to a table unless the table carries it; the commit that does comes back."""
    writer = (
        frame.write.format("delta")
        .mode("append")
        .option("txnAppId", stream_id)
        .option("txnVersion", str(batch))
    )
    return _append_once(lambda: writer.save(str(table)), table, stream_id, batch)


def append_row(row: Mapping[str, Any], table: Path, stream_id: str, batch: int) -> Commit:
    """Append a batch's one row to a table unless the table carries it; the commit that does comes back."""

    def write() -> None:
        # Of two writers of one transaction delta-rs lets the second fail, who then finds it carried.
        found = DeltaTable(str(table))
        if last_batch(found, stream_id) < batch:
            rows = pa.Table.from_pylist([dict(row)], pa.schema(found.schema().to_arrow()))
            once = CommitProperties(app_transactions=[Transaction(stream_id, batch)])
            write_deltalake(found, rows, mode="append", commit_properties=once)

    return _append_once(write, table, stream_id, batch)


def _append_once(write: Callable[[], None], table: Path, stream_id: str, batch: int) -> Commit:
    if last_transaction(table, stream_id) < batch:
        _through_races(write)
    commit = find_commit(table, stream_id, batch)
    if commit is None:
        raise LoadStateError(
            f"Table {table} was told to append batch {batch} and has no commit of it, only of later batches. "
            "Another stream has written under this load's name; see `freshet status`."
        )
    return commit


def check_fit(checkpoint: Checkpoint, tables: LoadTables, stream_id: str) -> None:
    """Refuse to run when the checkpoint and the tables tell different stories.

    Without this a deleted or rolled back checkpoint would have Delta take new batches for old ones and
    skip them, and lost tables would never get their batches again.
    """
    carried = {name: last_transaction(path, stream_id) for name, path in tables.all().items()}
    last = max(carried.values())
    ledger = read_rows(tables.batches, ["batch", "stream_id", "facts", "parked"])
    _check_stream(tables, stream_id, last, ledger)
    planned, committed = checkpoint.planned(), checkpoint.committed()
    if last > planned:
        raise LoadStateError(
            f"The tables of load {tables.load!r} carry batch {last}, but the checkpoint "
            f"{checkpoint.folder} {_end(planned)}: it was deleted or rolled back, and going on would lose "
            f"records. Restore the checkpoint of batch {last}, or empty the load and read the stream again "
            f"with `freshet reset {tables.load}`."
        )
    if carried["batches"] < committed:
        raise LoadStateError(
            f"The checkpoint {checkpoint.folder} has committed batch {committed}, but the table "
            f"{tables.batches} {_end(carried['batches'])}: tables were deleted or rolled back. "
            f"Restore them, or empty the load and read the stream again with `freshet reset {tables.load}`."
        )
    _check_ledger(tables, carried, ledger)


def _end(last: int) -> str:
    return "has no batch" if last == NONE else f"ends at batch {last}"


def _check_stream(tables: LoadTables, stream_id: str, last: int, ledger: list[dict[str, Any]]) -> None:
    """Refuse tables that were loaded under another stream id: the stream would be loaded into them again."""
    others = sorted({row["stream_id"] for row in ledger} - {stream_id})
    if others or (last == NONE and _has_rows(tables.facts)):
        raise LoadStateError(
            f"The tables of load {tables.load!r} were loaded as stream {', '.join(others) or 'unknown'}, and "
            f"the load is now stream {stream_id}: {LoadHome(tables.load).stream_id} was deleted or replaced, "
            "and going on would load records twice. Restore it with checkpoint and plans beside it, or empty "
            f"the load and read the stream again with `freshet reset {tables.load}`."
        )


def _has_rows(table: Path) -> bool:
    found = open_table(table)
    return found is not None and any(pa.table(found.get_add_actions())["num_records"].to_pylist())


def _check_ledger(tables: LoadTables, carried: dict[str, int], ledger: list[dict[str, Any]]) -> None:
    """Refuse when a table has lost batches that the ledger says it was given."""
    for name in ("facts", "parked"):
        given = [row["batch"] for row in ledger if row[name] > 0]
        if given and carried[name] < max(given):
            raise LoadStateError(
                f"The ledger of load {tables.load!r} has given batch {max(given)} to {name}, but the table "
                f"{tables.all()[name]} {_end(carried[name])}: it was deleted or rolled back, or the "
                "definition had another facts.table then. Restore it (or its name), or empty the load and "
                f"read the stream again with `freshet reset {tables.load}`."
            )


def _create(path: Path, schema: Schema, partition_by: tuple[str, ...] = ()) -> None:
    # Validation finds a batch's files by the statistics of `_batch`; Delta leaves those of later columns out.
    properties = {"delta.dataSkippingNumIndexedCols": "-1"}
    if partition_by:
        # A folder named after a value would be too long for the file system if the value is a long text.
        properties["delta.randomizeFilePrefixes"] = "true"
    DeltaTable.create(
        str(path),
        schema,
        mode="ignore",
        partition_by=list(partition_by),
        configuration=properties,
        raise_if_key_not_exists=False,  # it knows the properties of its own only
    )


def _enable_types(spark: SparkSession, path: Path, added: StructType) -> None:
    """Prepare a table for types that a new table takes by itself and an older one must be told of."""
    if "timestamp_ntz" in added.simpleString():
        table = SparkDeltaTable.forPath(spark, str(path))
        _through_races(lambda: table.addFeatureSupport("timestampNtz"))


def _schema(columns: Mapping[str, str]) -> Schema:
    return Schema.from_arrow(pa.schema([(name, to_arrow(ddl)) for name, ddl in columns.items()]))


def _through_races(action: Callable[[], object]) -> None:
    """Run a Delta write again when another driver's write came in between: then it is seen and skipped."""
    for attempt in range(1, RACE_ATTEMPTS + 1):
        try:
            action()
            return
        except Exception as error:
            if attempt == RACE_ATTEMPTS or not any(name in str(error) for name in RACE_ERRORS):
                raise
            time.sleep(0.2 * attempt)
