"""Filling a table with many rows at once, as fast as its database allows."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import column, insert, text
from sqlalchemy import table as sql_table
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from freshet.errors import MasterError
from freshet.master.connections import MYSQL, database_errors
from freshet.master.database import TableName
from freshet.master.files import scratch
from freshet.progress import Progress, silent
from freshet.queries import query

BATCH_ROWS = 20_000
# The codes under which MySQL and MariaDB, server and client, say that files of the client are not taken.
_LOCAL_FILES_REFUSED = (1148, 2068, 3948, 4166)

log = logging.getLogger(__name__)


def bulk_load(engine: Engine, table: str, rows: pa.Table, progress: Progress = silent) -> None:
    """Add rows to an existing table, all or none.

    MySQL reads them from a file if the server allows it (and the engine was made with `local_infile`);
    otherwise they are inserted in batches.
    """
    with database_errors(engine, f"filling table {table!r}"), engine.begin() as connection:
        if engine.dialect.name == MYSQL and _load_file(connection, table, rows):
            progress(f"filling {table}", len(rows), len(rows))
        else:
            _insert(connection, table, rows, progress)


def _load_file(connection: Connection, table: str, rows: pa.Table) -> bool:
    """Let the server read the rows from a file; false if it does not take files."""
    quote = connection.dialect.identifier_preparer.quote
    columns = ", ".join(quote(name) for name in rows.column_names)
    statement = query("mysql/load_file", table=_quoted(connection, table), columns=columns)
    with scratch("bulk") as folder:
        file = folder / "rows.tsv"
        _write_file(file, rows)
        try:
            loaded = connection.execute(text(statement), {"file": str(file)}).rowcount
        except DBAPIError as error:
            if error.orig is not None and error.orig.args[:1] and error.orig.args[0] in _LOCAL_FILES_REFUSED:
                log.info(
                    "The server takes no files of its clients (local_infile); inserting in batches instead"
                )
                return False
            raise
    # With LOCAL the server turns errors of rows into warnings and goes on.
    warnings = connection.execute(text(query("mysql/warnings"))).all()
    if warnings or loaded != len(rows):
        shown = "; ".join(str(warning[2]) for warning in warnings) or "some were left out"
        raise MasterError(f"table {table!r} took {loaded:,} of {len(rows):,} rows as they are: {shown}")
    return True


def _write_file(file: Path, rows: pa.Table) -> None:
    with file.open("wb") as out:
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
            lines = pc.binary_join_element_wise(*[_field_text(c) for c in batch.columns], "\t")
            out.write("\n".join([*lines.to_pylist(), ""]).encode())


def _field_text(values: pa.Array) -> pa.Array:
    """A column as LOAD DATA reads it."""
    written = _plain(values).cast(pa.string())
    for character, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n")):
        written = pc.replace_substring(written, character, escaped)
    return written.fill_null("\\N")


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us"))  # sessions are in UTC
    return values


def _insert(connection: Connection, table: str, rows: pa.Table, progress: Progress) -> None:
    name = TableName.parse(table)
    target = sql_table(name.table, *[column(c) for c in rows.column_names], schema=name.schema)
    done = 0
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        prepared = [_as_driver_takes(c) for c in batch.columns]
        records = pa.RecordBatch.from_arrays(prepared, names=rows.column_names).to_pylist()
        connection.execute(insert(target), records)
        done += len(batch)
        progress(f"filling {table}", done, len(rows))


def _as_driver_takes(values: pa.Array) -> pa.Array:
    """Numbers, strings and bytes as they are; decimals and times as text, which every database takes."""
    kept = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_binary)
    plain = _plain(values)
    return plain if any(test(plain.type) for test in kept) else plain.cast(pa.string())


def _quoted(connection: Connection, table: str) -> str:
    name = TableName.parse(table)
    quote = connection.dialect.identifier_preparer.quote
    return ".".join(quote(part) for part in (name.schema, name.table) if part)
