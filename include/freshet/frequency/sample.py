"""A sample of the stream: the newest files that wait in, or went through, its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.home import resolve

if TYPE_CHECKING:
    from freshet.config import Stream

MOST_ROWS = 1_000_000
MOST_BYTES = 512 * 1024 * 1024
_LONGEST_LINE = 4 * 1024 * 1024  # DuckDB holds several of this size in memory


def sample(
    database: duckdb.DuckDBPyConnection, stream: Stream, column: str
) -> duckdb.DuckDBPyRelation | None:
    """The newest records of a stream with at least the given column; None when there are none.

    Of JSON and CSV all is read as text, and what cannot be read is left out: a record that will be parked
    asks for no master row.
    """
    if stream.source != "files" or column not in stream.columns:
        return None
    files = newest_files(resolve(stream.path))
    if stream.format == "parquet":
        files = [file for file in files if _has_column(file, column)]
    if not files:
        return None
    return _READERS[stream.format](database, stream, column, [str(file) for file in files])


def newest_files(folder: Path) -> list[Path]:
    """The newest files of a folder, hidden ones aside, as many as have a bounded number of bytes."""
    if not folder.is_dir():
        return []
    found = [
        (entry.stat().st_mtime, entry.stat().st_size, entry)
        for entry in folder.iterdir()
        if entry.is_file() and not entry.name.startswith((".", "_"))
    ]
    chosen: list[Path] = []
    total = 0
    for _, size, file in sorted(found, reverse=True):
        if chosen and total + size > MOST_BYTES:
            break
        chosen.append(file)
        total += size
    return chosen


def _has_column(file: Path, column: str) -> bool:
    try:
        return column in pq.read_schema(file).names
    except (pa.ArrowException, OSError):
        return False


def _json(
    database: duckdb.DuckDBPyConnection, stream: Stream, column: str, files: list[str]
) -> duckdb.DuckDBPyRelation:
    return database.read_json(
        files,  # type: ignore[arg-type]  # lists are taken too, the stubs do not know it
        format="newline_delimited",
        columns={column: "VARCHAR"},
        ignore_errors=True,
        maximum_object_size=_LONGEST_LINE,
    )


def _csv(
    database: duckdb.DuckDBPyConnection, stream: Stream, column: str, files: list[str]
) -> duckdb.DuckDBPyRelation:
    options = stream.options
    return database.read_csv(
        files,  # type: ignore[arg-type]
        columns=dict.fromkeys(stream.columns, "VARCHAR"),
        header=options.get("header", "false").lower() == "true",
        sep=options.get("delimiter", ","),
        quotechar=options.get("quote", '"'),
        escapechar=options.get("escape", "\\"),
        na_values=options.get("nullValue", ""),
        auto_detect=False,
        null_padding=True,
        ignore_errors=True,
    )


def _parquet(
    database: duckdb.DuckDBPyConnection, stream: Stream, column: str, files: list[str]
) -> duckdb.DuckDBPyRelation:
    return database.read_parquet(files, union_by_name=True)


_READERS = {"json": _json, "csv": _csv, "parquet": _parquet}
