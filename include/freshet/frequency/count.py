"""Counting how often the stream asks for each key of a lookup.

The facts know best: they are all that was loaded. Before there are any, a sample of the stream's newest
files stands in. The cost is bounded in both: the newest rows, up to a number, in DuckDB under a memory limit.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from freshet.errors import SnapshotError
from freshet.frequency.sample import take_sample
from freshet.home import LoadHome
from freshet.master.files import replacing, scratch
from freshet.master.snapshot import latest, read_pages, snapshot_path
from freshet.outofcore import WORK_MEMORY, bounded_database, ran_out
from freshet.queries import duckdb_name, query

if TYPE_CHECKING:
    from freshet.config import Definition, Lookup

FACTS = "facts"
STREAM = "stream"
COUNTED_FROM = b"freshet.counted_from"
"""The metadata of a file of counts that says where they come from."""

MOST_FACTS = 20_000_000
_FETCH_ROWS = 65_536

log = logging.getLogger(__name__)


def count_keys(definition: Definition, lookup: Lookup, memory: int = WORK_MEMORY) -> Path | None:
    """Count the keys of a lookup and keep the counts (Parquet: key, count); None when nothing is known."""
    target = LoadHome(definition.load).counts(lookup.name)
    with scratch("count") as work, bounded_database(work, memory) as database:
        source = _from_facts(database, definition, lookup)
        if source is None:
            source = _from_stream(database, definition, lookup)
        if source is None:
            return None
        _write(database, target, source)
    return target


def _from_facts(database: duckdb.DuckDBPyConnection, definition: Definition, lookup: Lookup) -> str | None:
    """Fill the table of counts from the facts, if they tell the key of each row; where they came from."""
    path = LoadHome(definition.load).facts(definition.facts.table)
    try:
        return FACTS if _count_facts(database, definition, lookup, path) else None
    except TableNotFoundError:
        return None
    except (SnapshotError, DeltaError, duckdb.Error) as error:
        if ran_out(error):  # of disk or memory: that is nobody's damaged snapshot
            raise
        # Sorting is the remedy for a damaged or outdated snapshot: it must not need a whole one.
        log.warning(
            "Lookup %s is not ranked by the facts in %s: %s", lookup.name, path, str(error).splitlines()[0]
        )
        return None


def _count_facts(
    database: duckdb.DuckDBPyConnection, definition: Definition, lookup: Lookup, path: Path
) -> bool:
    table = DeltaTable(str(path))
    files = _newest_files(table)
    if not files.num_rows:
        return False
    # Facts that were loaded under an earlier definition lack the columns that are new in this one.
    loaded = {field.name for field in table.schema().fields}
    columns = [name for name in definition.facts.columns if name in loaded]
    if lookup.stream_key in columns:
        _count_values(database, path, files, lookup.stream_key)
        database.execute(query("frequency/counts_by_key"))
        return True
    for added in (name for name in lookup.add if name in columns):
        if _map_to_keys(database, definition, lookup, lookup.add[added]):
            _count_values(database, path, files, added)
            database.execute(query("frequency/counts_by_added"))
            return True
    return False


def _newest_files(table: DeltaTable) -> pa.Table:
    """What the log says of the fact table's newest files, as many as hold a bounded number of rows."""
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by([("modification_time", "descending")])
    chosen = rows = 0
    for records in actions["num_records"].to_pylist():
        if rows >= MOST_FACTS:
            break
        chosen += 1
        rows += records or 0
    return actions.slice(0, chosen)


def _map_to_keys(
    database: duckdb.DuckDBPyConnection, definition: Definition, lookup: Lookup, column: str
) -> bool:
    """Bring in which key each value of a master column belongs to; false if it does not tell."""
    version = latest(definition.load, lookup.name)
    if version is None:
        return False
    path = snapshot_path(definition.load, lookup.name, version)
    pages = read_pages(path, {"key": lookup.key, "added": column})
    first = next(pages, None)
    if first is None:
        return False
    database.register("source", first)
    database.execute(query("frequency/create_keys"))
    for page in pages:
        database.register("source", page)
        database.execute(query("frequency/load_keys"))
    database.unregister("source")
    rows, values = _row(database, query("frequency/are_unique"))
    if rows != values:
        database.execute(query("frequency/drop_keys"))
    return rows == values


def _count_values(database: duckdb.DuckDBPyConnection, path: Path, files: pa.Table, column: str) -> None:
    """Count how many facts have each value of a column: in the files, or in the log if it partitions them."""
    partition = f"partition.{column}"
    if partition in files.column_names:  # then it is not in the files
        known = files.select([partition, "num_records"]).rename_columns(["value", "rows"])
        database.register("files", known)
        database.execute(query("frequency/values_of_partitions"))
        database.unregister("files")
    else:
        paths = [str(path / unquote(name)) for name in files["path"].to_pylist()]  # the log has them as URLs
        database.execute(query("frequency/values_of_files", column=duckdb_name(column)), [paths])


def _from_stream(database: duckdb.DuckDBPyConnection, definition: Definition, lookup: Lookup) -> str | None:
    """Fill the table of counts from the stream's newest files, if they have the key; where they came from."""
    if not take_sample(database, definition.stream, lookup.stream_key):
        return None
    database.execute(query("frequency/count_sample"))
    return STREAM


def _write(database: duckdb.DuckDBPyConnection, target: Path, source: str) -> None:
    with replacing(target) as hidden:
        reader = database.sql(query("frequency/counts")).to_arrow_reader(_FETCH_ROWS)
        schema = reader.schema.with_metadata({COUNTED_FROM: source.encode()})
        with pq.ParquetWriter(hidden, schema) as writer:
            for batch in reader:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def _row(database: duckdb.DuckDBPyConnection, statement: str) -> tuple[int, int]:
    (row,) = database.execute(statement).fetchall()  # all: nothing can be registered beside an open result
    return row[0], row[1]
