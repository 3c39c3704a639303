"""Sorting master data by access frequency, out of core, into a published snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.errors import MasterError
from freshet.frequency.count import COUNTED_FROM, count_keys
from freshet.home import LoadHome
from freshet.master.connections import describe, engine_for
from freshet.master.database import lookup_schema, read_batches
from freshet.master.files import scratch
from freshet.master.publish import SnapshotWriter, choose_page_rows
from freshet.master.retention import retain
from freshet.outofcore import WORK_MEMORY, OutOfMemoryError, bounded_database
from freshet.progress import Progress, silent
from freshet.queries import duckdb_name, query

if TYPE_CHECKING:
    from freshet.config import Definition, Lookup

NOTHING = "nothing"
"""What rows are ranked by when nothing is known of their use: they stand in the order of their keys."""

_COUNT = "_freshet_count"
_FETCH_ROWS = 16_384


def sort(definition: Definition, progress: Progress = silent, memory: int = WORK_MEMORY) -> dict[str, int]:
    """Count, rank and publish every lookup of a load; the new version of each."""
    published = {}
    for lookup in definition.lookups:
        progress(f"counting {lookup.name} keys", 0, None)
        counts = count_keys(definition, lookup)
        published[lookup.name] = sort_master(definition, lookup, counts, memory, progress)
    return published


def sort_master(
    definition: Definition,
    lookup: Lookup,
    counts: Path | None,
    memory: int = WORK_MEMORY,
    progress: Progress = silent,
) -> int:
    """Rank a lookup's master rows and publish them as the next version of its snapshot; that version.

    The rows pass through a database on disk that may use `memory` bytes, whatever the table's size.
    """
    folder = LoadHome(definition.load).snapshots(lookup.name)
    with scratch("sort") as work, _sorter(lookup, work, memory) as sorter:
        sorter.load(progress)
        sorter.refuse_bad_keys()
        sorter.load_counts(counts)
        writer = SnapshotWriter(
            folder,
            key=lookup.key,
            schema=sorter.schema,
            rows=sorter.rows,
            page_rows=choose_page_rows(sorter.row_bytes),
            watermark=sorter.watermark,
            ranked_by=_ranked_by(counts),
        )
        with writer:
            for rows, row_counts in sorter.ranked():
                writer.add(rows, row_counts)
                progress(f"sorting {lookup.name}", writer.added, sorter.rows)
            version = writer.publish()
    retain(definition.load, lookup.name)
    return version


def _ranked_by(counts: Path | None) -> str:
    if counts is None:
        return NOTHING
    metadata = pq.read_schema(counts).metadata or {}
    return metadata.get(COUNTED_FROM, NOTHING.encode()).decode()


@contextmanager
def _sorter(lookup: Lookup, work: Path, memory: int) -> Iterator[_Sorter]:
    """A sorter whose database may use so much memory, with an error that says so if it is too little."""
    try:
        with bounded_database(work, memory) as database:
            yield _Sorter(lookup, database)
    except OutOfMemoryError as error:
        raise MasterError(
            f"sorting table {lookup.table!r} needs more memory than {memory:,} bytes: {error}"
        ) from error


@dataclass
class _Sorter:
    """The rows of one lookup's master table on their way through DuckDB."""

    lookup: Lookup
    database: duckdb.DuckDBPyConnection

    def __post_init__(self) -> None:
        self.engine = engine_for(self.lookup.connection)
        self.schema = lookup_schema(self.lookup)
        self.rows = 0
        self.bytes = 0
        self.watermark: dict[str, Any] = {}

    @property
    def row_bytes(self) -> float:
        return self.bytes / max(self.rows, 1)

    @property
    def _key(self) -> str:
        return duckdb_name(self.lookup.key)

    def load(self, progress: Progress) -> None:
        """Copy the rows from the master's database."""
        self.watermark = {
            "database": describe(self.engine.url),
            "table": self.lookup.table,
            "read_at": datetime.now(UTC).isoformat(),
        }
        self._from_arrow("sort/create", self.schema.empty_table())
        self.database.begin()
        for batch in read_batches(self.engine, self.lookup.table, self.schema.names, self.lookup.key):
            self._from_arrow("sort/load", batch)
            self.rows += len(batch)
            self.bytes += batch.nbytes
            progress(f"reading {self.lookup.table}", self.rows, None)
        self.database.commit()

    def _from_arrow(self, statement: str, source: pa.Table | pa.RecordBatch) -> None:
        self.database.register("source", source)
        self.database.execute(query(statement))
        self.database.unregister("source")

    def refuse_bad_keys(self) -> None:
        """Refuse a master table whose key is not there or not unique in every row."""
        where = f"table {self.lookup.table!r} in {describe(self.engine.url)}"
        nulls = self._one(query("sort/count_null_keys", key=self._key))
        if nulls:
            examples = self.database.execute(query("sort/null_keys", key=self._key)).fetchall()
            shown = "; ".join(self._describe(row) for row in examples)
            raise MasterError(
                f"{nulls:,} rows of {where} have no {self.lookup.key}, for example those with {shown}. "
                "Give them a key, remove them, or choose another key column"
            )
        repeated = self.database.execute(query("sort/duplicate_keys", key=self._key)).fetchall()
        if repeated:
            shown = ", ".join(f"{key!r} ({times:,} times)" for key, times, _ in repeated)
            raise MasterError(
                f"{repeated[0][2]:,} keys of {where} are not unique in {self.lookup.key}, for example "
                f"{shown}. Remove the extra rows or choose a key column that is unique"
            )

    def _describe(self, row: tuple[Any, ...]) -> str:
        others = [item for item in zip(self.schema.names, row, strict=True) if item[0] != self.lookup.key]
        return ", ".join(f"{name} = {value!r}" for name, value in others[:3]) or "no other column"

    def load_counts(self, counts: Path | None) -> None:
        """Bring in how often each key was asked for."""
        key_type = "VARCHAR" if pa.types.is_string(self.schema.field(self.lookup.key).type) else "BIGINT"
        if counts is None:
            self.database.execute(query("sort/no_counts", key_type=key_type))
        else:
            self.database.execute(query("sort/counts", key_type=key_type), [str(counts)])

    def ranked(self) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The rows in rank order, with their counts."""
        statement = query("sort/ranked", key=self._key, count=duckdb_name(_COUNT))
        for batch in self.database.sql(statement).to_arrow_reader(_FETCH_ROWS):
            yield batch.select(self.schema.names).cast(self.schema), batch.column(_COUNT)

    def _one(self, statement: str) -> int:
        row = self.database.execute(statement).fetchone()
        assert row is not None
        return int(row[0])
