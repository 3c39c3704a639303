"""The new rows prepared for Great Expectations: with a column for each of Freshet's own checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DatetimeType

from freshet.config import Definition
from freshet.quality.batches import Batches, Group
from freshet.quality.checks import BATCH, UNIQUE, Check, derived_check, key_check
from freshet.quality.derived import needed_columns, plan_derived
from freshet.quality.lookups import plan_check, version_column
from freshet.quality.masters import Master
from freshet.quality.newrows import FILE, NewRows
from freshet.quality.unique import EventIds

FOREIGN = "_foreign"
"""The column that says whether no batch of the load has written the row."""

EVENT = "_event"
"""The column that names the event of a row: its id, as text where Python does not have every value."""

_GROUP = "_group"
_TIME_ZONE = "spark.sql.session.timeZone"


@dataclass
class Prepared:
    """Rows ready to be validated, and what could not be checked on them."""

    frame: DataFrame
    facts: tuple[str, ...]
    """The columns of the fact table."""
    checks: list[Check] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)

    def add(self, check: Check) -> None:
        if check not in self.checks:
            self.checks.append(check)


def prepare(new: NewRows, batches: Batches, ids: EventIds) -> Prepared:
    """Check every new row for itself, without computing anything yet."""
    facts = tuple(new.whole.columns)
    rows = ids.check(_with_faults(new.frame, batches))
    groups = batches.groups()
    event_id = new.definition.stream.event_id
    rows = _with_keys(_with_plans(rows, groups), [event_id])
    prepared = Prepared(rows, facts, [key_check(event_id), BATCH, UNIQUE])
    planned = {batch for group in groups for batch in group.snapshots}
    if all(piece.batch in planned for piece in batches.survey.pieces) and len(groups) == 1:
        parts = [_checked(rows, groups[0], new, prepared)]
    else:
        parts = [
            _checked(rows.where(F.col(_GROUP) == n), group, new, prepared) for n, group in enumerate(groups)
        ]
        parts.append(rows.where(F.col(_GROUP).isNull()))
    together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    checks = (check.column for check in prepared.checks)
    prepared.frame = together.select(*facts, *checks, FOREIGN, _event(new).alias(EVENT))
    return prepared


def _event(new: NewRows) -> Column:
    event_id = F.col(new.definition.stream.event_id)
    return event_id.cast("string") if isinstance(new.id_type, DatetimeType) else event_id


def _with_faults(rows: DataFrame, batches: Batches) -> DataFrame:
    """The rows with the check of their batch, which was decided for whole files."""
    if not batches.faults:
        return rows.withColumns({BATCH.column: F.lit(None).cast("string"), FOREIGN: F.lit(False)})
    schema = f"_f_file string, _f_batch bigint, {BATCH.column} string, {FOREIGN} boolean"
    faults = rows.sparkSession.createDataFrame(
        [(fault.file, fault.batch, fault.problem, fault.foreign) for fault in batches.faults], schema
    )
    same = (F.col(FILE) == F.col("_f_file")) & F.col("_batch").eqNullSafe(F.col("_f_batch"))
    joined = rows.join(F.broadcast(faults), same, "left").drop("_f_file", "_f_batch")
    return joined.withColumn(FOREIGN, F.coalesce(FOREIGN, F.lit(False)))


def _with_plans(rows: DataFrame, groups: Sequence[Group]) -> DataFrame:
    """The rows with the number of their batch's group and its snapshot versions."""
    lookups = list(dict.fromkeys(lookup.name for group in groups for lookup in group.definition.lookups))
    versions = "".join(f", {version_column(name)} bigint" for name in lookups)
    known = [
        (batch, number, *(snapshots.get(name) for name in lookups))
        for number, group in enumerate(groups)
        for batch, snapshots in group.snapshots.items()
    ]
    plans = rows.sparkSession.createDataFrame(known, f"_p_batch bigint, {_GROUP} int{versions}")
    return rows.join(F.broadcast(plans), F.col("_batch") == F.col("_p_batch"), "left").drop("_p_batch")


def _checked(rows: DataFrame, group: Group, new: NewRows, prepared: Prepared) -> DataFrame:
    """The rows of one group with the checks of its keys, lookups and derived columns."""
    definition = group.definition
    # Columns that a later definition has added are null here, and nothing that this one knows of.
    later = {name: f"_later_{name}" for name in prepared.facts if _is_later(name, definition)}
    rows = rows.withColumnsRenamed(later)
    keys = _stream_keys(definition, rows)
    rows = _with_keys(rows, keys)
    for key in keys:
        prepared.add(key_check(key))
    for lookup in definition.lookups:
        master = Master(new.spark, definition.load, lookup, group.versions(lookup.name))
        check = plan_check(lookup, rows, needed_columns(definition), master)
        for name in check.incomparable:
            prepared.unchecked[f"{check.check.name}, column {name}"] = "maps cannot be compared"
        if check.possible:
            rows = check.applied(rows, master)
            prepared.add(check.check)
        else:
            prepared.unchecked[check.check.name] = (
                f"the facts carry neither {lookup.stream_key} nor a column that lookup {lookup.name} adds"
            )
    derived = plan_derived(definition, rows)
    prepared.unchecked |= {derived_check(name).name: reason for name, reason in derived.unchecked.items()}
    for name in derived.compared:
        prepared.add(derived_check(name))
    with _time_zone(new.spark, group.time_zone):
        rows = derived.applied(rows)
    return rows.withColumnsRenamed({hidden: name for name, hidden in later.items()})


def _stream_keys(definition: Definition, rows: DataFrame) -> list[str]:
    """The keys of lookups that come with the stream: never null, as records without them are parked."""
    stream = definition.stream
    keys = dict.fromkeys(lookup.stream_key for lookup in definition.lookups)
    return [key for key in keys if key in stream.columns and key in rows.columns and key != stream.event_id]


def _with_keys(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows with a check of each of these keys."""
    checks = {key_check(key).column: F.when(F.col(key).isNull(), F.lit("is null")) for key in keys}
    return rows.withColumns(checks)


def _is_later(column: str, definition: Definition) -> bool:
    return not column.startswith("_") and column not in definition.facts.columns


@contextmanager
def _time_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """The time zone of a plan for the expressions that are built in the block."""
    before = spark.conf.get(_TIME_ZONE)
    spark.conf.set(_TIME_ZONE, zone)
    try:
        yield
    finally:
        spark.conf.set(_TIME_ZONE, str(before))
