"""The files of a micro-batch: which of them cannot be read, and whether they are as they were planned.

A file is refused for what is wrong with it, never for what is wrong with the machine: it would be left out
for good.
"""

from __future__ import annotations

import errno
import re
import string
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshet.config import Definition
from freshet.config.types import to_arrow
from freshet.errors import LoadStateError
from freshet.home import local_path
from freshet.streaming.csv_lines import CsvFormat
from freshet.streaming.plan import Plan, read_damaged
from freshet.streaming.records import DETAIL_LENGTH
from freshet.streaming.sources import read_files
from freshet.streaming.tables import carrying

GONE = "the file is gone"

_COMPRESSED = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst")
"""Endings of text files that Spark unpacks."""
_NOT_BLANK = r"_raw RLIKE '\\S'"
_OF_THE_FILE = (None, errno.EINVAL)
"""The numbers of errors that come from what a file holds: none, or that of a place that cannot be."""

_Found = TypeVar("_Found")


class _DamagedError(Exception):
    """A file that Spark cannot read."""


def marks(files: tuple[str, ...]) -> dict[str, list[int]]:
    """Size and time of every file that is there, by which a plan knows it again."""
    found = {uri: _mark(local_path(uri)) for uri in files}
    return {uri: mark for uri, mark in found.items() if mark}


def _mark(file: Path) -> list[int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return []
    return [status.st_size, int(status.st_mtime)]  # whole seconds: a backup may keep no more


def check_files(definition: Definition, plan: Plan) -> None:
    """Refuse a batch whose files are not those that it was planned with."""
    load, batch = definition.load, plan.batch
    left_out = {**plan.refused, **read_damaged(load, batch)}
    for uri, planned in plan.files.items():
        mark = _mark(local_path(uri))
        if uri in left_out or mark == planned:
            continue
        written = carrying(load, plan.stream_id, batch)
        way = (
            f": the batch is in {', '.join(written)} already, and the rest of it is in that file."
            if written
            else f", or have the batch planned with what is there now: `freshet replan {load}`."
        )
        raise LoadStateError(
            f"The stream file {local_path(uri)} {'has changed' if mark else 'is gone'} since batch {batch} "
            f"of load {load!r} was planned. Put it back as it was{way}"
        )


def refused_files(definition: Definition, files: tuple[str, ...]) -> dict[str, str]:
    """The files of a batch that cannot be read record by record, each with what is wrong with it."""
    look = {"parquet": _parquet_problem, "csv": _header_problem}.get(definition.stream.format, _no_problem)
    return _problems(definition, files, look)


def damaged_files(definition: Definition, files: tuple[str, ...]) -> dict[str, str]:
    """The files of a batch that break when they are read to the end, each with what is wrong with it.

    Reads all of them: only worth it when a batch could not be read.
    """
    return _problems(definition, files, _reading_problem)


_Look = Callable[[Definition, str], str | None]
"""Looks at a file, given by its URI, and says what is wrong with it."""


def _problems(definition: Definition, files: tuple[str, ...], look: _Look) -> dict[str, str]:
    problems = {uri: _problem(definition, uri, look) for uri in files}
    return {uri: problem for uri, problem in problems.items() if problem}


def _problem(definition: Definition, uri: str, look: _Look) -> str | None:
    file = local_path(uri)
    try:
        with file.open("rb"):
            pass
        return look(definition, uri)
    except FileNotFoundError:
        return GONE
    except (pa.ArrowException, OSError, _DamagedError) as error:
        if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
            raise LoadStateError(
                f"The stream file {file} cannot be read ({error.strerror or error}); it may be sound. "
                "Put that right, or move the file away, and run enrich again."
            ) from error
        return f"not a readable {definition.stream.format} file: {error}"


def _no_problem(definition: Definition, uri: str) -> None:
    return None


def _reading_problem(definition: Definition, uri: str) -> None:
    with local_path(uri).open("rb") as raw:  # what the disk cannot give is not the file's fault
        while raw.read(1 << 20):
            pass
    _by_spark(definition, uri, lambda frame: frame.write.format("noop").mode("append").save())


def _by_spark(definition: Definition, uri: str, look: Callable[[DataFrame], _Found]) -> _Found | None:
    """What Spark finds in a file alone; nothing when it fails for another reason than the file."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    try:
        return look(read_files(spark, definition, [uri]))
    except (PySparkException, Py4JJavaError) as error:
        told = str(error)
        if "FAILED_READ_FILE" not in told or "FILE_NOT_EXIST" in told:
            return None
        causes = re.findall(r"Caused by: (.+)", told) or told.splitlines()[:1]
        raise _DamagedError(causes[-1][:DETAIL_LENGTH]) from error


def _parquet_problem(definition: Definition, uri: str) -> str | None:
    # Spark writes times in twelve bytes by default, and reads them to the microsecond.
    with pq.ParquetFile(local_path(uri), coerce_int96_timestamp_unit="us") as opened:
        found = _by_name(opened.schema_arrow)
    wrong = []
    for name, ddl in definition.stream.columns.items():
        fields = found.get(name.lower(), [])
        if len(fields) > 1:
            wrong.append(f"column {name!r} is there {len(fields)} times")
        elif fields and not _readable_as(fields[0].type, to_arrow(ddl)):
            wrong.append(f"column {fields[0].name!r} is {fields[0].type}, not {ddl}")
    return "; ".join(wrong) or None


def _by_name(fields: Iterable[pa.Field]) -> dict[str, list[pa.Field]]:
    """Fields by their names, in which case makes no difference to Spark."""
    found: dict[str, list[pa.Field]] = {}
    for field in fields:
        found.setdefault(field.name.lower(), []).append(field)
    return found


def _readable_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads a Parquet column of one type as the other without loss."""
    if pat.is_integer(found) and pat.is_integer(wanted):
        return bool(pat.is_signed_integer(found) and found.bit_width <= wanted.bit_width)
    if pat.is_timestamp(found) and pat.is_timestamp(wanted):
        return found.unit in ("ms", "us")
    if pat.is_large_string(found):
        return bool(pat.is_string(wanted))
    if pat.is_large_binary(found):
        return bool(pat.is_binary(wanted))
    if pat.is_dictionary(found):
        return _readable_as(found.value_type, wanted)
    if pat.is_nested(found):
        same = found.id == wanted.id or (pat.is_large_list(found) and pat.is_list(wanted))
        return same and _parts_readable_as(found, wanted)
    return bool(found == wanted)


def _parts_readable_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the parts of a nested type are readable; of a struct's fields Spark takes those it knows."""
    if pat.is_struct(wanted):
        there = _by_name(found)
        pairs = [(there.get(field.name.lower(), []), field.type) for field in wanted]
        return all(not same or (len(same) == 1 and _readable_as(same[0].type, kind)) for same, kind in pairs)
    if pat.is_map(wanted):
        return _readable_as(found.key_type, wanted.key_type) and _readable_as(
            found.item_type, wanted.item_type
        )
    return _readable_as(found.value_type, wanted.value_type)


def _header_problem(definition: Definition, uri: str) -> str | None:
    csv = CsvFormat.of(definition.stream.options)
    header = _header(definition, uri) if csv.header else ""
    names = [field.text.strip() for field in csv.fields(header)]
    if not header or names == list(definition.stream.columns):
        return None
    return f"the header names {', '.join(names)}; the definition names {', '.join(definition.stream.columns)}"


def _header(definition: Definition, uri: str) -> str:
    """The first line of a file that is not blank; empty when there is none."""
    file = local_path(uri)
    if file.suffix in _COMPRESSED:
        rows = _by_spark(definition, uri, lambda frame: frame.where(_NOT_BLANK).select("_raw").take(1))
        return rows[0]["_raw"] if rows else ""
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        return next((line.rstrip("\n") for line in lines if line.strip(string.whitespace)), "")
