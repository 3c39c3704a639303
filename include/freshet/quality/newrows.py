"""The new rows of a fact table: read from just the files that hold them, and surveyed in one pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshet.config import Definition
from freshet.quality.changes import Changes, Origin, local_path

FILE = "_file"
"""The column with the URI of the file a row is in."""

_GLOB_SIGNS = re.compile(r"([\\*?\[\]{},])")


@dataclass(frozen=True)
class Piece:
    """The rows of one file that claim to be of one batch."""

    file: str
    batch: int | None
    rows: int
    origin: Origin | None
    """None when the log no longer tells."""


@dataclass(frozen=True)
class Survey:
    """What one pass over the new rows tells."""

    pieces: tuple[Piece, ...] = ()
    lowest_id: Any = None
    highest_id: Any = None
    newest_event: datetime | None = None
    newest_load: datetime | None = None

    @cached_property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @cached_property
    def files(self) -> list[str]:
        return sorted({piece.file for piece in self.pieces})

    @cached_property
    def by_batch(self) -> Counter[int]:
        """Rows by the batch they claim, without those that claim none."""
        counts: Counter[int] = Counter()
        for piece in self.pieces:
            if piece.batch is not None:
                counts[piece.batch] += piece.rows
        return counts


@dataclass(frozen=True)
class NewRows:
    """The new rows of a fact table, and the rest of the table at the same version."""

    spark: SparkSession
    definition: Definition
    table: Path
    changes: Changes

    @cached_property
    def whole(self) -> DataFrame:
        """The table as it is at the version under validation."""
        return (
            self.spark.read.format("delta")
            .option("versionAsOf", self.changes.to_version)
            .load(str(self.table))
        )

    @cached_property
    def frame(self) -> DataFrame:
        """The new rows with the file each is in."""
        whole = self.whole
        columns = [*map(F.col, whole.columns), F.col("_metadata.file_path").alias(FILE)]
        files = self.changes.files
        if files is None:
            return whole.select(*columns)
        if not files:
            return whole.select(*columns).where(F.lit(False))
        if self.changes.plain and not self._renames_columns():
            # Delta's own reader cannot be told which files to read: it would read the whole table.
            paths = [_GLOB_SIGNS.sub(r"\\\1", str(file)) for file in sorted(files)]
            reader = self.spark.read.schema(whole.schema).option("basePath", str(self.table))
            return reader.parquet(*paths).select(*columns)
        wanted = [uri for uri in whole.inputFiles() if local_path(uri) in files]
        return whole.select(*columns).where(F.col(FILE).isin(wanted))

    def rest(self, survey: Survey) -> DataFrame:
        """The rows of the table that are not new."""
        return self.whole.where(~F.col("_metadata.file_path").isin(survey.files))

    @property
    def has_rest(self) -> bool:
        return self.changes.files is not None and self.changes.from_version is not None

    def survey(self) -> Survey:
        """Count the new rows by file and batch, and find the ends of their ids and times."""
        stream = self.definition.stream
        frame = self.frame
        timed = stream.event_time if stream.event_time in frame.columns else None
        newest_event = F.max(timed) if timed else F.lit(None)
        groups = (
            frame.groupBy(FILE, "_batch")
            .agg(
                F.count("*").alias("rows"),
                F.min(stream.event_id).alias("lowest"),
                F.max(stream.event_id).alias("highest"),
                newest_event.cast("timestamp").alias("newest_event"),
                F.max("_loaded_at").alias("newest_load"),
            )
            .collect()
        )
        origins = self.changes.files or {}
        return Survey(
            tuple(Piece(g[FILE], g["_batch"], g["rows"], origins.get(local_path(g[FILE]))) for g in groups),
            _least(g["lowest"] for g in groups),
            _most(g["highest"] for g in groups),
            _most(g["newest_event"] for g in groups),
            _most(g["newest_load"] for g in groups),
        )

    def _renames_columns(self) -> bool:
        """Whether the files name the columns otherwise than the table does."""
        configuration = DeltaTable(str(self.table), without_files=True).metadata().configuration
        return configuration.get("delta.columnMapping.mode", "none") != "none"


def _least(values: Iterable[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _most(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)
