"""Stream sources: files of JSON lines, CSV or Parquet, read so that every record keeps its position.

Text formats are read as lines and parsed afterwards, so that a record that cannot be parsed is still
there to be parked. The parsed frame has the stream's columns and

    _raw      the record as it came (null for Parquet: there the columns are the record)
    _file     the URI of its file
    _block    the start of its split in the file (Parquet: the row's number in the file)
    _suspect  whether a worker must look at the record again before it is believed
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshet.config import Definition
from freshet.config.types import is_nested, to_arrow
from freshet.errors import FreshetError
from freshet.home import resolve

CORRUPT = "_corrupt"

SPLIT_SETTINGS = {
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.files.openCostInBytes": "4194304",
}


def split_settings(spark: SparkSession) -> dict[str, str]:
    """The settings that decide how files are cut into splits, with the parallelism at hand.

    A record's position counts from its split's start, so a retry must cut the files in the same way.
    """
    cores = str(spark.sparkContext.defaultParallelism)
    return {**SPLIT_SETTINGS, "spark.sql.files.minPartitionNum": cores}


def read_stream(spark: SparkSession, definition: Definition, max_files: int) -> DataFrame:
    """The stream of a definition: unparsed lines, or Parquet rows, with their file and block."""
    stream = definition.stream
    folder = resolve(stream.path)
    if not folder.is_dir():
        raise FreshetError(
            f"The stream of load {definition.load!r} reads the folder {folder} (stream.path), which does not "
            "exist. Create it, or correct the path."
        )
    reader = spark.readStream.option("maxFilesPerTrigger", max_files)
    if stream.max_bytes_per_batch:
        # Spark takes either limit, not both; the bytes say more about the size of a batch.
        reader = spark.readStream.option("maxBytesPerTrigger", stream.max_bytes_per_batch)
    if stream.format == "parquet":
        frame = reader.schema(_schema(definition)).format("parquet").load(str(folder))
        return frame.select("*", *_position(F.col("_metadata.row_index")))
    frame = reader.format("text").load(str(folder))
    return frame.select(F.col("value").alias("_raw"), *_position(F.col("_metadata.file_block_start")))


def _position(block: Column) -> list[Column]:
    return [F.col("_metadata.file_path").alias("_file"), block.alias("_block")]


def parse(frame: DataFrame, definition: Definition) -> DataFrame:
    """The records of a batch as typed columns, none dropped."""
    stream = definition.stream
    columns = [F.col(name) for name in stream.columns]
    if stream.format == "parquet":
        missing = F.lit(None).cast("string").alias("_raw")
        return frame.select(*columns, missing, "_file", "_block", F.lit(False).alias("_suspect"))
    schema = f"{_schema(definition)}, {CORRUPT} string"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "timeZone": "UTC"}
    if stream.format == "json":
        parsed = F.from_json("_raw", schema, options)
        suspect = _suspect_json(definition)
    else:
        parsed = F.from_csv("_raw", schema, {**options, **_csv_options(definition)})
        suspect = F.lit(False)
    fields = [F.col(f"_parsed.{_quote(name)}").alias(name) for name in stream.columns]
    broken = F.col("_parsed").isNull() | F.col(f"_parsed.{CORRUPT}").isNotNull() | ~F.is_valid_utf8("_raw")
    return frame.withColumn("_parsed", parsed).select(
        *fields, "_raw", "_file", "_block", F.coalesce(broken | suspect, F.lit(True)).alias("_suspect")
    )


def _suspect_json(definition: Definition) -> Column:
    """Lines that may hold more than one JSON value: Spark's parser reads the first and ignores the rest."""
    nested = any(is_nested(ddl) for ddl in definition.stream.columns.values())
    between = r"\}\s*\{" if nested else r"\}[\s,;]*\{"
    return F.col("_raw").rlike(between) | ~F.rtrim("_raw").endswith("}")


def _csv_options(definition: Definition) -> dict[str, str]:
    options = dict(definition.stream.options)
    options.pop("header", None)
    return options


def has_header(definition: Definition) -> bool:
    """Whether the first line of each file names the columns."""
    return (
        definition.stream.format == "csv"
        and definition.stream.options.get("header", "false").lower() == "true"
    )


def delimiter(definition: Definition) -> str:
    """What separates the fields of a CSV line."""
    options = definition.stream.options
    return options.get("delimiter") or options.get("sep") or ","


def _schema(definition: Definition) -> str:
    return ", ".join(f"{_quote(name)} {ddl}" for name, ddl in definition.stream.columns.items())


def _quote(name: str) -> str:
    return f"`{name}`"


def refused_files(definition: Definition, files: tuple[str, ...]) -> dict[str, str]:
    """The files of a batch that cannot be read record by record, each with what is wrong with it."""
    if definition.stream.format == "parquet":
        problems = {uri: _parquet_problem(definition, local_path(uri)) for uri in files}
    elif has_header(definition):
        problems = {uri: _header_problem(definition, local_path(uri)) for uri in files}
    else:
        problems = {}
    return {uri: problem for uri, problem in problems.items() if problem}


def local_path(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))


def spellings(uris: Iterable[str]) -> frozenset[str]:
    """The ways Spark writes the same files: with one slash or three, encoded or not."""
    paths = [str(local_path(uri)) for uri in uris]
    return frozenset(
        f"file:{slashes}{form}" for slashes in ("", "//") for path in paths for form in (path, quote(path))
    )


def _parquet_problem(definition: Definition, file: Path) -> str | None:
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        return f"not a readable Parquet file: {error}"
    wrong = [
        f"column {name!r} is {schema.field(name).type}, not {ddl}"
        for name, ddl in definition.stream.columns.items()
        if name in schema.names and not _readable_as(schema.field(name).type, to_arrow(ddl))
    ]
    return "; ".join(wrong) or None


def _readable_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads a Parquet column of one type as the other without loss."""
    if pa.types.is_integer(found) and pa.types.is_integer(wanted):
        return bool(pa.types.is_signed_integer(found) and found.bit_width <= wanted.bit_width)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return found.unit in ("ms", "us")
    if pa.types.is_large_string(found):
        return bool(pa.types.is_string(wanted))
    if pa.types.is_dictionary(found):
        return _readable_as(found.value_type, wanted)
    if pa.types.is_nested(found):
        return bool(found.id == wanted.id)
    return bool(found == wanted)


def _header_problem(definition: Definition, file: Path) -> str | None:
    with file.open(encoding="utf-8", errors="replace", newline="") as lines:
        first = next(csv.reader(lines, delimiter=delimiter(definition)), [])
    names = [name.strip() for name in first]
    if not names or names == list(definition.stream.columns):
        return None
    return f"the header names {', '.join(names)}; the definition names {', '.join(definition.stream.columns)}"
