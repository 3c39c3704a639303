"""Quarantine: the rows that failed the last validation move from the facts to the parked table.

    quarantine.json (what moves, under which number) ─► facts removed ─► parked rows appended ─► done

The file is written first and removed last, and both writes carry its number as a Delta transaction. So a
quarantine that was killed is finished by the next quarantine or validation, and no row is lost or doubled.

The facts come first, because only rows that are still as they were validated may move: where somebody has
put some right since, nothing has happened yet, and the quarantine is given up. Until the rows are parked,
the file of failing rows has them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
)
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from freshet.config import Definition
from freshet.errors import LoadStateError, ValidationError
from freshet.home import LoadHome
from freshet.master.files import write_json
from freshet.progress import Progress, silent
from freshet.quality.changes import only_grown
from freshet.quality.failing import BATCH, CHECKS, COPIES, EVENT_ID, RAW, REASONS, row_as_json
from freshet.quality.files import locked, read_json
from freshet.quality.ledger import QUARANTINED
from freshet.quality.newrows import of_batches
from freshet.quality.result import ValidationResult, keep_result, last_validation
from freshet.streaming.lease import held_lease
from freshet.streaming.tables import append
from freshet.streaming.transactions import last_transaction

ATTEMPTS = 5
"""How often the facts are changed beside a running enrich job before its lease is waited for."""

RACES = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
)
"""What Delta raises when another writer came in between."""

_MOVED = "a row that failed is no longer in the facts as it was"
"""What the removal of the facts ends with when somebody was quicker."""

_TXN = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")


@dataclass(frozen=True)
class Pending:
    """A quarantine that has begun."""

    number: int
    failing: str
    validated: int
    """The version of the facts in which the rows failed."""
    begun_at: str
    rows: int


def quarantine(definition: Definition, spark: SparkSession, progress: Progress | None = None) -> int:
    """Move the rows that failed the last validation to the parked table; how many."""
    progress = progress or silent
    with locked(LoadHome(definition.load).validation_lock):
        finished = finish_quarantine(definition, spark, progress)
        if finished is not None:
            return finished
        result = last_validation(definition)
        if result is None or result.success or result.quarantined is not None:
            return 0
        _begin(definition, result)
        finished = finish_quarantine(definition, spark, progress)
        if finished is None:
            raise _outdated(definition)
        return finished


def why_nothing_moved(definition: Definition) -> str:
    """The reason, for people, why a quarantine had nothing to move."""
    result = last_validation(definition)
    again = f"freshet validate {definition.load}"
    if result is None:
        return f"Load {definition.load!r} has not been validated yet; nothing was moved. Validate it: {again}"
    if result.quarantined is not None:
        moved = f"All {result.quarantined:,} facts that failed have been moved already"
        return f"{moved}. Validate again: {again}"
    return "No facts failed the last validation; nothing was moved."


def finish_quarantine(definition: Definition, spark: SparkSession, progress: Progress = silent) -> int | None:
    """Do what is left of a quarantine that has begun; how many rows it moves.

    None when none has begun, or when it can only be given up: rows that failed are no longer what they were.
    """
    recorded = read_json(LoadHome(definition.load).pending_quarantine)
    if recorded is None:
        return None
    pending = Pending(**recorded)
    progress("removing the failing rows from the facts", 0, 2)
    if not _remove(definition, spark, pending):
        _forget(definition)
        return None
    progress("parking them", 1, 2)
    _park(definition, spark, pending)
    result = last_validation(definition)
    if result and result.failing == pending.failing:
        keep_result(replace(result, quarantined=pending.rows))
    _forget(definition)
    progress("quarantined", 2, 2)
    return pending.rows


def _begin(definition: Definition, result: ValidationResult) -> None:
    """Write down what moves, if it is there to be moved."""
    if not result.failing or not result.failing_count:
        failed = "; ".join(f"{one.check}: {one.error or one.description}" for one in result.failed)
        raise ValidationError(
            f"The last validation of load {definition.load!r} failed without failing rows, so "
            f"there is nothing to quarantine: {failed}. See {result.data_docs}; put right "
            "what it names, then validate again."
        )
    if not Path(result.failing).is_dir():
        raise ValidationError(
            f"The failing rows of load {definition.load!r} are no longer in {result.failing}. "
            f"Validate again first: freshet validate {definition.load}"
        )
    if not only_grown(_facts(definition), result.to_version):
        raise _outdated(definition)
    app = application(definition.load)
    tables = (LoadHome(definition.load).parked, _facts(definition))
    pending = Pending(
        number=max(last_transaction(table, app) for table in tables) + 1,
        failing=result.failing,
        validated=result.to_version,
        begun_at=datetime.now(UTC).isoformat(),
        rows=result.failing_count,
    )
    write_json(LoadHome(definition.load).pending_quarantine, asdict(pending))


def _outdated(definition: Definition) -> ValidationError:
    return ValidationError(
        f"Facts of load {definition.load!r} were changed or deleted since the last validation, so other rows "
        f"may fail now. Validate again first: freshet validate {definition.load}"
    )


def _forget(definition: Definition) -> None:
    LoadHome(definition.load).pending_quarantine.unlink()


def _facts(definition: Definition) -> Path:
    return LoadHome(definition.load).facts(definition.facts.table)


def application(load: str) -> str:
    """The id under which quarantines are recorded in the tables."""
    return f"freshet-quarantine-{load}"


def _park(definition: Definition, spark: SparkSession, pending: Pending) -> None:
    """Append the rows to the parked table, unless that is done.

    A row that no batch has written is parked without a batch: no batch's books count it.
    """
    table = LoadHome(definition.load).parked
    if last_transaction(table, application(definition.load)) >= pending.number:
        return
    if not Path(pending.failing).is_dir():
        raise LoadStateError(
            f"The quarantine begun at {pending.begun_at} has taken {pending.rows:,} rows out of the facts "
            f"and cannot park them without {pending.failing}, which is gone. Restore it from a backup; or "
            "restore the fact table to the version before, delete "
            f"{LoadHome(definition.load).pending_quarantine} and validate again."
        )
    failing = spark.read.parquet(pending.failing)
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
    append(parked, table, application(definition.load), pending.number)


def _remove(definition: Definition, spark: SparkSession, pending: Pending) -> bool:
    """Take the rows out of the facts, unless that is done; false when they are no longer what they were.

    Delta lets no other writer's append come between reading and removing. A load that never pauses could
    keep us from ever getting through: then its lease is waited for.
    """
    if last_transaction(_facts(definition), application(definition.load)) >= pending.number:
        return True
    for attempt in range(ATTEMPTS):
        if not _holds(definition, pending):
            return False
        if _removed(definition, spark, pending):
            return True
        time.sleep(0.5 * attempt)
    patience = definition.enrich.run_for + 60
    with held_lease(definition.load, patience):
        if not _holds(definition, pending):
            return False
        if _removed(definition, spark, pending):
            return True
    raise LoadStateError(
        f"Another writer changes the facts of load {definition.load!r} all the time. Stop it and run "
        f"`freshet quarantine {definition.load}` again: it goes on where it stopped."
    )


def _holds(definition: Definition, pending: Pending) -> bool:
    """Whether the rows that failed are known and still in the facts as they were."""
    return Path(pending.failing).is_dir() and only_grown(_facts(definition), pending.validated)


def _removed(definition: Definition, spark: SparkSession, pending: Pending) -> bool:
    """Try once; false when another writer came in between.

    It came after the log was read, and before Delta watches for conflicts, if a row that failed is not found:
    then the merge ends itself, with nothing changed.
    """
    failing = spark.read.parquet(pending.failing)
    target = DeltaTable.forPath(spark, str(_facts(definition)))
    columns = target.toDF().columns
    event_id = definition.stream.event_id
    counted = failing.groupBy(EVENT_ID, RAW).agg(F.sum(COPIES).alias(COPIES))
    batches = [row[BATCH] for row in failing.select(BATCH).distinct().collect()]
    facts = target.toDF().where(of_batches(batches))
    source = _leaving(counted, facts).unionByName(_staying(counted, facts, event_id))
    same = (
        of_batches(batches, "t._batch")
        & F.col(f"t.{event_id}").cast("string").eqNullSafe(F.col("s._id"))
        & (row_as_json(columns, "t.") == F.col("s._raw"))
    )
    merge = (
        target.alias("t")
        .merge(source.alias("s"), same)
        .whenMatchedDelete()
        .whenNotMatchedInsert("s._stays", {name: f"s.{name}" for name in columns})
        .whenNotMatchedInsert(values={"_batch": f"CAST(raise_error('{_MOVED}') AS BIGINT)"})
    )
    try:
        with _transaction(spark, application(definition.load), pending.number):
            merge.execute()
    except RACES:
        return False
    except (PySparkException, Py4JJavaError) as error:
        if _MOVED not in str(error):
            raise
        return False
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
