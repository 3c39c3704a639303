"""The new rows of a fact table: read from just the files that hold them, and surveyed in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType, TimestampType

from freshet.config import Definition
from freshet.home import local_path
from freshet.quality.changes import Changes, Origin
from freshet.streaming.sources import literal_path
from freshet.streaming.times import newest_time

FILE = "_file"
"""The column with the URI of the file a row is in."""

_MOST_LITERALS = 1000


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
    lowest_id: str | None = None
    highest_id: str | None = None
    """The ends of the event ids as text (see `as_text`)."""
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
        files = self.changes.files
        rows = self.whole.select("*", F.col("_metadata.file_path").alias(FILE))
        if files is None:
            return rows
        if not files:
            return rows.where(F.lit(False))
        if self._are_plain(files):
            return self._read_directly(files)
        return rows.where(
            F.col(FILE).isin([uri for uri in self.whole.inputFiles() if local_path(uri) in files])
        )

    def _are_plain(self, files: Mapping[Path, Origin]) -> bool:
        """Whether the files can be read without Delta, whose reader would read the whole table.

        Not with deletion vectors, nor if the files have other names for the columns than the table.
        """
        configuration = DeltaTable(str(self.table)).metadata().configuration
        renamed = configuration.get("delta.columnMapping.mode", "none") != "none"
        return self.changes.plain and not renamed and len({file.name for file in files}) == len(files)

    def _read_directly(self, files: Mapping[Path, Origin]) -> DataFrame:
        """The rows of the files, with the partition columns that only the log has."""
        types = {field.name: field.dataType for field in self.whole.schema}
        partitioned = sorted({name for origin in files.values() for name in origin.partition})
        stored = StructType([field for field in self.whole.schema if field.name not in partitioned])
        paths = [literal_path(file) for file in sorted(files)]
        rows = self.spark.read.schema(stored).parquet(*paths)
        rows = rows.select(
            "*", F.col("_metadata.file_path").alias(FILE), F.col("_metadata.file_name").alias("_name")
        )
        if partitioned:
            values = [
                (file.name, *(origin.partition.get(name) or None for name in partitioned))
                for file, origin in files.items()
            ]
            schema = ", ".join(f"`{name}` string" for name in ("_name", *partitioned))
            known = self.spark.createDataFrame(values, schema)
            known = known.withColumns({name: F.col(name).cast(types[name]) for name in partitioned})
            rows = rows.join(F.broadcast(known), "_name")
        return rows.select(*types, FILE)

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
        newest_event = newest_time(F.col(timed)) if timed else F.lit(None)
        groups = frame.groupBy(FILE, "_batch").agg(
            F.count("*").alias("rows"),
            F.min(stream.event_id).alias("lowest"),
            F.max(stream.event_id).alias("highest"),
            newest_event.cast("timestamp").alias("newest_event"),
            newest_time(F.col("_loaded_at")).alias("newest_load"),
        )
        (all_rows,) = groups.agg(
            F.collect_list(F.struct(FILE, "_batch", "rows")).alias("pieces"),
            as_text(F.min("lowest"), self.id_type).alias("lowest"),
            as_text(F.max("highest"), self.id_type).alias("highest"),
            F.max("newest_event").alias("newest_event"),
            F.max("newest_load").alias("newest_load"),
        ).collect()
        origins = self.changes.files or {}
        return Survey(
            tuple(
                Piece(piece[FILE], piece["_batch"], piece["rows"], origins.get(local_path(piece[FILE])))
                for piece in all_rows["pieces"]
            ),
            all_rows["lowest"],
            all_rows["highest"],
            all_rows["newest_event"],
            all_rows["newest_load"],
        )

    @property
    def id_type(self) -> DataType:
        """The type of the event id."""
        return self.whole.schema[self.definition.stream.event_id].dataType


def as_text(value: Column, kind: DataType) -> Column:
    """An event id as text from which `from_text` makes the very same value.

    Python has no such thing for every value: not for dates and times of any year, and a time without a zone
    would be taken for one in the driver's zone.
    """
    if isinstance(kind, BinaryType):
        return F.hex(value)
    if isinstance(kind, TimestampType):
        # Where a clock is set back, one date and time is two moments.
        return F.unix_micros(value).cast("string")
    return value.cast("string")


def from_text(text: str, kind: DataType) -> Column:
    """The event id that `as_text` has written down."""
    if isinstance(kind, BinaryType):
        return F.unhex(F.lit(text))
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.lit(int(text)))
    return F.lit(text).cast(kind)


def of_batches(batches: Iterable[int | None], column: str = "_batch") -> Column:
    """The condition that a row claims one of these batches (None: no batch), by which Delta skips files."""
    wanted = set(batches)
    numbers = [batch for batch in wanted if batch is not None]
    condition = F.col(column).isNull() if None in wanted else F.lit(False)
    if len(numbers) > _MOST_LITERALS:
        return condition | F.col(column).between(min(numbers), max(numbers))
    return condition | F.col(column).isin(numbers) if numbers else condition
