"""A sample of the stream: the newest files that wait in, or went through, its folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

import duckdb

from freshet.home import resolve
from freshet.queries import duckdb_name, query

if TYPE_CHECKING:
    from freshet.config import Stream

MOST_ROWS = 1_000_000
MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 256

log = logging.getLogger(__name__)


def take_sample(database: duckdb.DuckDBPyConnection, stream: Stream, column: str) -> bool:
    """Fill the table `sample` with the keys of the stream's newest records; false when there are none.

    What cannot be read is left out: a record that will be parked asks for no master row.
    """
    if stream.source != "files" or column not in stream.columns:
        return False
    database.execute(query("frequency/create_sample"))
    rows = 0
    # One file after the other: DuckDB takes its buffers for all files of a statement at once.
    for file in newest_files(resolve(stream.path)):
        if rows >= MOST_ROWS:
            break
        try:
            _READERS[stream.format](database, stream, column, str(file)).create_view("records", replace=True)
            statement = query("frequency/load_sample", column=duckdb_name(column), rows=str(MOST_ROWS - rows))
            rows += database.execute(statement).fetchall()[0][0]
        except duckdb.Error as error:
            # Ranks are an optimisation: a file that cannot be sampled must not keep its load from starting.
            log.warning("%s cannot be sampled: %s", file, str(error).splitlines()[0])
    return rows > 0


def newest_files(folder: Path) -> list[Path]:
    """The newest files of a folder, hidden ones aside, bounded in number and bytes."""
    chosen: list[Path] = []
    total = 0
    for _, size, file in sorted(_files(folder), reverse=True)[:MOST_FILES]:
        if chosen and total + size > MOST_BYTES:
            break
        chosen.append(file)
        total += size
    return chosen


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """The files of a folder, each with its age and size."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        try:
            status = entry.stat()
        except FileNotFoundError:  # moved away since it was listed
            continue
        if S_ISREG(status.st_mode):
            yield status.st_mtime, status.st_size, entry


def _json(
    database: duckdb.DuckDBPyConnection, stream: Stream, column: str, file: str
) -> duckdb.DuckDBPyRelation:
    return database.read_json(
        file,
        format="newline_delimited",
        columns={column: "VARCHAR"},
        ignore_errors=True,
    )


def _csv(
    database: duckdb.DuckDBPyConnection, stream: Stream, column: str, file: str
) -> duckdb.DuckDBPyRelation:
    options = stream.options
    return database.read_csv(
        file,
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
    database: duckdb.DuckDBPyConnection, stream: Stream, column: str, file: str
) -> duckdb.DuckDBPyRelation:
    return database.read_parquet(file)


_READERS = {"json": _json, "csv": _csv, "parquet": _parquet}
