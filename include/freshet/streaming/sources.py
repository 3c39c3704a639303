"""Stream sources: files of JSON lines, CSV or Parquet, read so that every record keeps its position.

Text formats are read as lines and parsed afterwards, so that a record that cannot be parsed is still
there to be parked. The parsed frame has the stream's columns and

    _raw      the record as it came (null for Parquet: there the columns are the record)
    _file     the URI of its file
    _block    the start of its split in the file (Parquet: the row's number in the file)
    _suspect  how far the record may be believed: SOUND, SUSPECT (a worker looks at it again) or BROKEN
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from freshet.config import Definition
from freshet.config.types import is_nested
from freshet.errors import FreshetError
from freshet.home import local_path, resolve
from freshet.streaming.derive import try_eval
from freshet.streaming.records import BROKEN, SOUND, SUSPECT

CORRUPT = "_corrupt"

MAX_FILE_AGE = "36500d"
"""Spark forgets files older than this and passes over them; a file that was moved in late must be loaded."""

SPLIT_SETTINGS = {
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.files.openCostInBytes": "4194304",
}


_BEHIND_A_VALUE = r"""\}[\s,\]}]*+[^\s,\]}"']"""
"""A closed object behind which neither the line ends nor a name follows, as behind a nested value."""

_GLOB_SIGNS = re.compile(r"([\\*?\[\]{},])")
_Reader = TypeVar("_Reader", DataFrameReader, DataStreamReader)


def split_settings(spark: SparkSession) -> dict[str, str]:
    """The settings that decide how files are cut into splits, with the parallelism at hand.

    A record's position counts from its split's start, so a retry must cut the files in the same way.
    """
    cores = str(spark.sparkContext.defaultParallelism)
    return {**SPLIT_SETTINGS, "spark.sql.files.minPartitionNum": cores}


def read_stream(spark: SparkSession, definition: Definition, max_files: int | None = None) -> DataFrame:
    """The stream of a definition: unparsed lines, or Parquet rows, with their file and block.

    `max_files` takes the place of the definition's limits of a micro-batch.
    """
    stream = definition.stream
    folder = resolve(stream.path)
    if not folder.is_dir():
        raise FreshetError(
            f"The stream of load {definition.load!r} reads the folder {folder} (stream.path), which "
            f"{'is no folder' if folder.exists() else 'does not exist'}. Create it, or correct the path."
        )
    reader = spark.readStream.option("maxFileAge", MAX_FILE_AGE)
    if stream.max_bytes_per_batch and max_files is None:
        # Spark takes either limit, not both; the bytes say more about the size of a batch.
        reader = reader.option("maxBytesPerTrigger", stream.max_bytes_per_batch)
    else:
        reader = reader.option("maxFilesPerTrigger", max_files or stream.max_files_per_batch)
    return _positioned(_of_format(reader, definition).load(str(folder)), definition)


def read_files(spark: SparkSession, definition: Definition, files: Iterable[str]) -> DataFrame:
    """Some files of a stream, given by URI, in the shape in which `read_stream` gives all."""
    reader = spark.read.option("basePath", str(resolve(definition.stream.path)))
    paths = [literal_path(local_path(uri)) for uri in files]
    return _positioned(_of_format(reader, definition).load(paths), definition)


def literal_path(file: Path) -> str:
    """A path for Spark's readers, which take the signs of a pattern in a file's name for one."""
    return _GLOB_SIGNS.sub(r"\\\1", str(file))


def _of_format(reader: _Reader, definition: Definition) -> _Reader:
    if definition.stream.format == "parquet":
        return reader.schema(_schema(definition)).format("parquet")
    return reader.format("text")


def _positioned(frame: DataFrame, definition: Definition) -> DataFrame:
    if definition.stream.format == "parquet":
        return frame.select("*", *_position(F.col("_metadata.row_index")))
    return frame.select(F.col("value").alias("_raw"), *_position(F.col("_metadata.file_block_start")))


def _position(block: Column) -> list[Column]:
    return [F.col("_metadata.file_path").alias("_file"), block.alias("_block")]


def parse(frame: DataFrame, definition: Definition) -> DataFrame:
    """The records of a batch as typed columns, none dropped."""
    stream = definition.stream
    columns = [F.col(name) for name in stream.columns]
    if stream.format == "parquet":
        missing = F.lit(None).cast("string").alias("_raw")
        return frame.select(*columns, missing, "_file", "_block", _trust(SOUND).alias("_suspect"))
    schema = f"{_schema(definition)}, {CORRUPT} string"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "timeZone": "UTC"}
    if stream.format == "json":
        parsed = F.from_json("_raw", schema, options)
        suspect = _suspect_json(definition)
    else:
        # Of a line with more fields than the parser takes, Spark makes an error and no broken record.
        parsed = try_eval(F.from_csv("_raw", schema, {**options, **_csv_options(definition)}))
        suspect = _blank(definition)
    fields = [F.col(f"_parsed.{_quote(name)}").alias(name) for name in stream.columns]
    broken = F.col("_parsed").isNull() | F.col(f"_parsed.{CORRUPT}").isNotNull() | ~F.is_valid_utf8("_raw")
    trust = F.when(F.coalesce(broken, F.lit(True)), _trust(BROKEN)).when(suspect, _trust(SUSPECT))
    return frame.withColumn("_parsed", parsed).select(
        *fields, "_raw", "_file", "_block", trust.otherwise(_trust(SOUND)).alias("_suspect")
    )


def _trust(level: int) -> Column:
    return F.lit(level).cast("tinyint")


def _suspect_json(definition: Definition) -> Column:
    """Lines that may hold more than one JSON value: Spark's parser reads the first and ignores the rest."""
    raw = F.rtrim("_raw")
    if any(is_nested(ddl) for ddl in definition.stream.columns.values()):
        return F.col("_raw").rlike(_BEHIND_A_VALUE) | ~raw.endswith("}")
    return F.instr("_raw", "}") != F.length(raw)  # a record without parts has one brace, its last character


def _blank(definition: Definition) -> Column:
    """Lines without a record: with `nullValue` Spark's parser takes one for a record of nulls."""
    blanks_separate = definition.stream.options.get("delimiter") == " "
    return (F.col("_raw") if blanks_separate else F.trim("_raw")) == ""


def _csv_options(definition: Definition) -> dict[str, str]:
    options = dict(definition.stream.options)
    options.pop("header", None)
    return options


def _schema(definition: Definition) -> str:
    return ", ".join(f"{_quote(name)} {ddl}" for name, ddl in definition.stream.columns.items())


def _quote(name: str) -> str:
    return f"`{name}`"
