"""The failing rows: each distinct one once, with the reasons and how many copies of it fail."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from freshet.home import LoadHome
from freshet.quality.prepare import FOREIGN, Prepared
from freshet.quality.result import SHOWN_IDS, FailingRow
from freshet.streaming.rows import EXACT_JSON

EVENT_ID, BATCH, RAW, COPIES, CHECKS, REASONS = "event_id", "batch", "raw", "copies", "checks", "reasons"
"""The columns of the file of failing rows, besides `foreign`."""


def row_as_json(columns: Iterable[str], prefix: str = "") -> Column:
    """A fact as JSON: to keep it, and to recognise it, as no column tells two copies of an event apart.

    Nulls are left out, so that it is still the same row when the table has gained a column.
    """
    return F.to_json(F.struct(*(F.col(f"{prefix}{name}").alias(name) for name in columns)), EXACT_JSON)


def write_failing(
    load: str, prepared: Prepared, event_id: str, failures: Mapping[str, tuple[DataFrame, Column]]
) -> Path:
    """Keep the rows that failed, given by check with what is wrong with each; the folder they are in."""
    parts = [_part(frame, prepared, event_id, check, reason) for check, (frame, reason) in failures.items()]
    rows = reduce(DataFrame.unionByName, parts)
    counted = rows.groupBy(EVENT_ID, BATCH, "foreign", RAW, CHECKS, REASONS).count()
    together = counted.groupBy(EVENT_ID, BATCH, "foreign", RAW).agg(
        F.max("count").alias(COPIES),
        F.collect_list(CHECKS).alias(CHECKS),
        F.collect_list(REASONS).alias(REASONS),
    )
    path = _folder(load) / uuid.uuid4().hex
    together.write.parquet(str(path))
    return path


def forget_failing(load: str, kept: str | None) -> None:
    """Remove the failing rows of earlier validations, once the result that names these is kept."""
    for path in _folder(load).glob("*"):
        if str(path) != kept:
            shutil.rmtree(path, ignore_errors=True)


def _folder(load: str) -> Path:
    return LoadHome(load).validation / "failing"


def first_failing(failing: DataFrame) -> tuple[int, tuple[FailingRow, ...]]:
    """How many rows fail, and the first of them."""
    total = failing.agg(F.sum(COPIES)).collect()[0][0]
    first = failing.orderBy(EVENT_ID).limit(SHOWN_IDS).collect()
    return int(total or 0), tuple(FailingRow(row[EVENT_ID], tuple(_reasons(row))) for row in first)


def _reasons(row: Any) -> list[str]:
    return [f"{check}: {reason}" for check, reason in zip(row[CHECKS], row[REASONS], strict=True)]


def _part(frame: DataFrame, prepared: Prepared, event_id: str, check: str, reason: Column) -> DataFrame:
    return frame.select(
        F.col(event_id).cast("string").alias(EVENT_ID),
        F.col("_batch").alias(BATCH),
        F.col(FOREIGN).alias("foreign"),
        row_as_json(prepared.facts).alias(RAW),
        F.lit(check).alias(CHECKS),
        reason.alias(REASONS),
    )
