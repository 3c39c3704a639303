"""Quarantine: the rows that failed the last validation move from the facts to the parked table.

    quarantine.json (what moves, under which number) ─► parked rows appended ─► facts removed ─► done

The file is written first and removed last, and both writes carry its number as a Delta transaction. So a
quarantine that was killed is finished by the next quarantine or validation, and no row is lost or doubled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from freshet.config import Definition
from freshet.errors import LoadStateError, ValidationError
from freshet.home import LoadHome
from freshet.progress import Progress, silent
from freshet.quality.failing import BATCH, CHECKS, COPIES, EVENT_ID, RAW, REASONS, row_as_json
from freshet.quality.files import locked, read_json, write_json
from freshet.quality.ledger import QUARANTINED
from freshet.quality.result import keep_result, last_validation
from freshet.streaming.lease import held_lease
from freshet.streaming.tables import RACE_ERRORS, append
from freshet.streaming.transactions import last_transaction

ATTEMPTS = 5
"""How often the facts are changed beside a running enrich job before its lease is waited for."""

_TXN = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
_MOST_LITERALS = 1000


@dataclass(frozen=True)
class Pending:
    """A quarantine that has begun."""

    number: int
    failing: str
    begun_at: str
    rows: int


def state_lock(load: str) -> Path:
    """The lock that lets one validation or quarantine of a load work at a time."""
    return LoadHome(load).validation / "state.lock"


def quarantine(definition: Definition, spark: SparkSession, progress: Progress | None = None) -> int:
    """Move the rows that failed the last validation to the parked table; how many."""
    progress = progress or silent
    with locked(state_lock(definition.load)):
        finished = finish_quarantine(definition, spark, progress)
        if finished is not None:
            return finished
        result = last_validation(definition)
        if result is None or result.success or result.quarantined is not None:
            return 0
        if not result.failing or not result.failing_count:
            failed = "; ".join(f"{one.check}: {one.description}" for one in result.failed)
            raise ValidationError(
                f"The last validation of load {definition.load!r} failed without failing rows, so "
                f"there is nothing to quarantine: {failed}. See {result.data_docs}; put right "
                "what it names, then validate again."
            )
        number = last_transaction(LoadHome(definition.load).parked, application(definition.load)) + 1
        begun_at = datetime.now(UTC).isoformat()
        pending = Pending(number, result.failing, begun_at, result.failing_count)
        write_json(_pending_file(definition.load), asdict(pending))
        return finish_quarantine(definition, spark, progress) or 0


def finish_quarantine(definition: Definition, spark: SparkSession, progress: Progress = silent) -> int | None:
    """Do what is left of a quarantine that has begun; how many rows it moves, or None when there is none."""
    recorded = read_json(_pending_file(definition.load))
    if recorded is None:
        return None
    pending = Pending(**recorded)
    if not Path(pending.failing).is_dir():
        raise LoadStateError(
            f"The quarantine begun at {pending.begun_at} needs {pending.failing}, which is gone. Restore it, "
            f"or delete {_pending_file(definition.load)} and validate again."
        )
    failing = spark.read.parquet(pending.failing)
    progress("parking the failing rows", 0, 2)
    _park(definition, pending, failing)
    progress("removing them from the facts", 1, 2)
    _remove(definition, spark, pending, failing)
    result = last_validation(definition)
    if result and result.failing == pending.failing:
        keep_result(replace(result, quarantined=pending.rows))
    _pending_file(definition.load).unlink()
    progress("quarantined", 2, 2)
    return pending.rows


def application(load: str) -> str:
    """The id under which quarantines are recorded in the tables."""
    return f"freshet-quarantine-{load}"


def _pending_file(load: str) -> Path:
    return LoadHome(load).validation / "quarantine.json"


def _park(definition: Definition, pending: Pending, failing: DataFrame) -> None:
    """Append the rows to the parked table, unless that is done.

    A row that no batch has written is parked without a batch: no batch's books count it.
    """
    copies = failing.withColumn("_copy", F.explode(F.sequence(F.lit(1), F.col(COPIES).cast("int"))))
    told = F.transform(
        F.arrays_zip(CHECKS, REASONS), lambda one: F.concat(one[CHECKS], F.lit(": "), one[REASONS])
    )
    of_event = Window.partitionBy(EVENT_ID).orderBy(BATCH, RAW, "foreign", "_copy")
    name = F.concat(F.lit("facts#"), F.coalesce(EVENT_ID, F.lit("null")), F.lit(f"#{pending.number}."))
    parked = copies.select(
        F.concat(name, F.row_number().over(of_event).cast("string")).alias("id"),
        F.lit(QUARANTINED).alias("reason"),
        F.lit(None).cast("string").alias("lookup"),
        F.lit(None).cast("string").alias("key"),
        F.array_join(told, "; ").alias("detail"),
        F.lit(None).cast("string").alias("source_file"),
        F.lit(None).cast("string").alias("source_position"),
        F.col(RAW).alias("raw"),
        F.when(~F.col("foreign"), F.col(BATCH)).alias("_batch"),
        F.lit(pending.begun_at).cast("timestamp").alias("_loaded_at"),
    )
    append(parked, LoadHome(definition.load).parked, application(definition.load), pending.number)


def _remove(definition: Definition, spark: SparkSession, pending: Pending, failing: DataFrame) -> None:
    """Take the rows out of the facts, unless that is done.

    Delta lets no other writer's append come between reading and removing. A load that never pauses could
    keep us from ever getting through: then its lease is waited for.
    """
    for attempt in range(ATTEMPTS):
        if _removed(definition, spark, pending, failing):
            return
        time.sleep(0.5 * attempt)
    patience = definition.enrich.run_for + 60
    with held_lease(definition.load, patience):
        if not _removed(definition, spark, pending, failing):
            raise LoadStateError(
                f"Another writer changes the facts of load {definition.load!r} all the time. Stop it and run "
                f"`freshet quarantine {definition.load}` again: it goes on where it stopped."
            )


def _removed(definition: Definition, spark: SparkSession, pending: Pending, failing: DataFrame) -> bool:
    """Try once; false when another writer came in between."""
    table = LoadHome(definition.load).facts(definition.facts.table)
    target = DeltaTable.forPath(spark, str(table))
    columns = target.toDF().columns
    event_id = definition.stream.event_id
    counted = failing.groupBy(EVENT_ID, RAW).agg(F.sum(COPIES).alias(COPIES))
    batches = [row[BATCH] for row in failing.select(BATCH).distinct().collect()]
    facts = target.toDF().where(_within(batches, F.col("_batch")))
    source = _leaving(counted, facts).unionByName(_staying(counted, facts, event_id))
    same = (
        _within(batches, F.col("t._batch"))
        & F.col(f"t.{event_id}").cast("string").eqNullSafe(F.col("s._id"))
        & (row_as_json(columns, "t.") == F.col("s._raw"))
    )
    merge = (
        target.alias("t")
        .merge(source.alias("s"), same)
        .whenMatchedDelete()
        .whenNotMatchedInsert("s._stays", {name: f"s.{name}" for name in columns})
    )
    try:
        with _transaction(spark, application(definition.load), pending.number):
            merge.execute()
    except Exception as error:
        if any(name in str(error) for name in RACE_ERRORS):
            return False
        raise
    return True


def _leaving(counted: DataFrame, facts: DataFrame) -> DataFrame:
    """What tells the merge which rows to delete: all copies of each failing row."""
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in facts.schema]
    return counted.select(
        F.col(EVENT_ID).alias("_id"), F.col(RAW).alias("_raw"), F.lit(False).alias("_stays"), *nothing
    )


def _staying(counted: DataFrame, facts: DataFrame, event_id: str) -> DataFrame:
    """The copies that the merge must put back: of an event loaded twice one stays."""
    known = facts.withColumns({"_id": F.col(event_id).cast("string"), "_raw": row_as_json(facts.columns)})
    copies = known.join(counted, known["_id"].eqNullSafe(counted[EVENT_ID]) & (known["_raw"] == counted[RAW]))
    position = F.row_number().over(Window.partitionBy("_id", "_raw").orderBy(F.lit(1)))
    return (
        copies.withColumn("_position", position)
        .where(F.col("_position") > F.col(COPIES))
        .select(
            F.lit(None).cast("string").alias("_id"),
            F.lit(None).cast("string").alias("_raw"),
            F.lit(True).alias("_stays"),
            *(F.col(f"`{name}`") for name in facts.columns),
        )
    )


def _within(batches: list[int | None], column: Column) -> Column:
    """A condition by which Delta skips the files that hold none of the failing rows' batches."""
    numbers = [batch for batch in batches if batch is not None]
    condition = column.isNull() if None in batches else F.lit(False)
    if len(numbers) > _MOST_LITERALS:
        return condition | column.between(min(numbers), max(numbers))
    return condition | column.isin(numbers) if numbers else condition


@contextmanager
def _transaction(spark: SparkSession, app: str, version: int) -> Iterator[None]:
    """Have the Delta write in the block happen once under this name."""
    for name, value in zip(_TXN, (app, str(version)), strict=True):
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in _TXN:
            spark.conf.unset(name)
