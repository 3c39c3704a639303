"""The Delta tables of a load: their schemas, their creation, appends that happen exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from delta.tables import DeltaTable as SparkDeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from freshet.config import Definition
from freshet.delta import read_rows
from freshet.errors import LoadStateError
from freshet.home import LoadHome
from freshet.streaming.checkpoint import NONE, Checkpoint
from freshet.streaming.transactions import Commit, find_commit, last_transaction

FACT_COLUMNS = "_batch bigint, _loaded_at timestamp"
"""What Freshet adds to the columns of the definition."""

PARKED_SCHEMA = """
    id string, reason string, lookup string, key string, detail string,
    source_file string, source_position string, raw string,
    _batch bigint, _loaded_at timestamp
"""

BATCHES_SCHEMA = """
    batch bigint, stream_id string, started_at timestamp, finished_at timestamp, loaded_at timestamp,
    rows_in bigint, facts bigint, parked bigint, parked_by_reason map<string,bigint>,
    waiting_before bigint, waiting_after bigint, balanced boolean,
    seconds double, seconds_by_phase map<string,double>, rate double,
    facts_version bigint, parked_version bigint,
    max_event_time timestamp, freshness_seconds double, shift_score double,
    code_version string, offsets_digest string, tasks int,
    lookups array<struct<
        name string, algorithm string, memory bigint, snapshot bigint,
        tuples_in bigint, joined bigint, unmatched bigint, hot bigint, cold bigint,
        iterations bigint, page_reads bigint, bytes_read bigint, evictions bigint,
        peak_bytes bigint, memory_by_component map<string,bigint>, outside_by_component map<string,bigint>,
        seconds double, seconds_by_phase map<string,double>>>
"""

RACE_ERRORS = (
    "ConcurrentTransaction",
    "ConcurrentAppend",
    "MetadataChanged",
    "ProtocolChanged",
    "ALREADY_EXISTS",
)
RACE_ATTEMPTS = 5


class LoadTables:
    """The fact, parked and batches table of one load."""

    def __init__(self, definition: Definition) -> None:
        home = LoadHome(definition.load)
        self.load = definition.load
        self.partition_by = definition.facts.partition_by
        self.facts = home.facts(definition.facts.table)
        self.parked = home.parked
        self.batches = home.batches

    def all(self) -> dict[str, Path]:
        return {"facts": self.facts, "parked": self.parked, "batches": self.batches}

    def create(self, spark: SparkSession, facts: StructType) -> None:
        """Create the tables that are not there; let the fact table take up new columns."""
        _create(spark, self.facts, facts, self.partition_by)
        _create(spark, self.parked, _from_ddl(PARKED_SCHEMA))
        _create(spark, self.batches, _from_ddl(BATCHES_SCHEMA))
        self._evolve(spark, facts)

    def _evolve(self, spark: SparkSession, wanted: StructType) -> None:
        """Add the columns the definition has gained; refuse every other difference."""
        there = {
            field.name: field.dataType for field in spark.read.format("delta").load(str(self.facts)).schema
        }
        problems = [
            f"column {field.name!r} is {there[field.name].simpleString()} in the table and "
            f"{field.dataType.simpleString()} in the definition"
            for field in wanted
            if field.name in there and there[field.name] != field.dataType
        ]
        problems += [
            f"column {name!r} is no longer in the definition" for name in there if name not in wanted.names
        ]
        if problems:
            raise LoadStateError(
                f"The fact table {self.facts} does not fit the definition of load {self.load!r}: "
                f"{'; '.join(problems)}. Change the definition back, name another facts.table, "
                f"or start over with `freshet reset {self.load}`."
            )
        added = StructType([field for field in wanted if field.name not in there])
        if added:
            empty = spark.createDataFrame([], added)
            writer = empty.write.format("delta").mode("append").option("mergeSchema", "true")
            _through_races(lambda: writer.save(str(self.facts)))

    def carrying(self, stream_id: str, batch: int) -> list[str]:
        """The names of the tables that carry this batch."""
        return [name for name, path in self.all().items() if last_transaction(path, stream_id) >= batch]


def append(frame: DataFrame, table: Path, stream_id: str, batch: int) -> Commit:
    """Append a batch to a table unless the table carries it; the commit that does comes back."""
    writer = (
        frame.write.format("delta")
        .mode("append")
        .option("txnAppId", stream_id)
        .option("txnVersion", str(batch))
    )
    _through_races(lambda: writer.save(str(table)))
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
    planned, committed = checkpoint.planned(), checkpoint.committed()
    if last > planned:
        state = "has no batch" if planned == NONE else f"ends at batch {planned}"
        raise LoadStateError(
            f"The tables of load {tables.load!r} carry batch {last}, but the checkpoint "
            f"{checkpoint.folder} {state}: it was deleted or rolled back, and going on would lose records. "
            f"Restore the checkpoint of batch {last}, or empty the load and read the stream again with "
            f"`freshet reset {tables.load}`."
        )
    if carried["batches"] < committed:
        raise LoadStateError(
            f"The checkpoint {checkpoint.folder} has committed batch {committed}, but the table "
            f"{tables.batches} ends at batch {carried['batches']}: tables were deleted or rolled back. "
            f"Restore them, or empty the load and read the stream again with `freshet reset {tables.load}`."
        )
    _check_ledger(tables, stream_id, carried)


def _check_ledger(tables: LoadTables, stream_id: str, carried: dict[str, int]) -> None:
    """Refuse when a table has lost batches that the ledger says it was given."""
    if carried["batches"] == NONE:
        return
    ledger = read_rows(tables.batches, ["batch", "stream_id", "facts", "parked"])
    for name in ("facts", "parked"):
        given = [row["batch"] for row in ledger if row["stream_id"] == stream_id and row[name] > 0]
        if given and carried[name] < max(given):
            raise LoadStateError(
                f"The ledger of load {tables.load!r} has given batch {max(given)} to {name}, but the table "
                f"{tables.all()[name]} ends at batch {carried[name]}: it was deleted or rolled back. "
                f"Restore it, or empty the load and read the stream again with `freshet reset {tables.load}`."
            )


def _create(spark: SparkSession, path: Path, schema: StructType, partition_by: tuple[str, ...] = ()) -> None:
    if SparkDeltaTable.isDeltaTable(spark, str(path)):
        return
    nullable = StructType([StructField(field.name, field.dataType, True) for field in schema])
    builder = SparkDeltaTable.createIfNotExists(spark).location(str(path)).addColumns(nullable)
    if partition_by:
        builder = builder.partitionedBy(*partition_by)
    _through_races(builder.execute)


def _from_ddl(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


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
