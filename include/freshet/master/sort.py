"""Sorting master data by access frequency, out of core, into a published snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.errors import MasterError
from freshet.frequency.count import COUNTED_FROM, count_keys
from freshet.home import LoadHome
from freshet.master.connections import describe, engine_for
from freshet.master.database import lookup_schema, read_batches
from freshet.master.files import scratch
from freshet.master.publish import SnapshotWriter, choose_page_rows
from freshet.master.ranking import Ranking, Ranks
from freshet.master.reorder import RowFile, in_rank_order
from freshet.master.retention import retain
from freshet.outofcore import WORK_MEMORY, OutOfMemoryError, bounded_database
from freshet.progress import Progress, silent

if TYPE_CHECKING:
    from freshet.config import Definition, Lookup

NOTHING = "nothing"
"""What rows are ranked by when nothing is known of their use: they stand in the order of their keys."""

_NAMED_ROWS = 3
_NAMED_COLUMNS = 3


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

    The rows pass through files, and their keys through a database that may use `memory` bytes.
    """
    schema = lookup_schema(lookup)
    read_at = datetime.now(UTC)
    with scratch("sort") as work:
        rows = RowFile(work / "rows", schema)
        with _database(lookup, work, memory) as database:
            ranks = _rank(lookup, counts, rows, Ranking(database, schema.field(lookup.key).type), progress)
        writer = SnapshotWriter(
            LoadHome(definition.load).snapshots(lookup.name),
            key=lookup.key,
            schema=schema,
            rows=rows.rows,
            page_rows=choose_page_rows(rows.row_bytes),
            watermark={
                "database": describe(engine_for(lookup.connection).url),
                "table": lookup.table,
                "read_at": read_at.isoformat(),
            },
            ranked_by=_ranked_by(counts),
        )
        with writer:
            for batch in in_rank_order(rows, ranks, work, memory):
                writer.add(batch, ranks.counts[writer.added : writer.added + len(batch)])
                progress(f"sorting {lookup.name}", writer.added, rows.rows)
            version = writer.publish()
    retain(definition.load, lookup.name)
    return version


def _rank(lookup: Lookup, counts: Path | None, rows: RowFile, ranking: Ranking, progress: Progress) -> Ranks:
    """Copy the rows from the master's database and rank their keys."""
    engine = engine_for(lookup.connection)
    where = f"table {lookup.table!r} in {describe(engine.url)}"
    keyless = _Keyless(lookup.key)
    schema = lookup_schema(lookup)
    for batch in read_batches(engine, lookup.table, schema.names, lookup.key):
        keyless.look(batch)
        ranking.add(batch.column(lookup.key))
        rows.append(batch)
        progress(f"reading {lookup.table}", rows.rows, None)
    rows.close()
    keyless.refuse(where)
    ranking.finish(where, lookup.key)
    return ranking.ranks(counts, rows.path.parent)


class _Keyless:
    """The rows without a key: how many, and some of them to name."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = 0
        self.some: list[str] = []

    def look(self, batch: pa.RecordBatch) -> None:
        """Note the rows of a batch that have no key."""
        keys = batch.column(self.key)
        if not keys.null_count:
            return
        self.count += keys.null_count
        for row in batch.filter(pc.is_null(keys)).slice(0, _NAMED_ROWS).to_pylist():
            named = [f"{name} = {value!r}" for name, value in row.items() if name != self.key]
            self.some.append(", ".join(named[:_NAMED_COLUMNS]) or "no other column")

    def refuse(self, where: str) -> None:
        """Refuse a master table that has such rows."""
        if self.count:
            raise MasterError(
                f"{self.count:,} rows of {where} have no {self.key}, for example those with "
                f"{'; '.join(self.some[:_NAMED_ROWS])}. Give them one, remove them, or choose another column"
            )


@contextmanager
def _database(lookup: Lookup, work: Path, memory: int) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        with bounded_database(work, memory) as database:
            yield database
    except OutOfMemoryError as error:
        raise MasterError(
            f"sorting table {lookup.table!r} needs more memory than {memory:,} bytes: {error}"
        ) from error


def _ranked_by(counts: Path | None) -> str:
    if counts is None:
        return NOTHING
    metadata = pq.read_schema(counts).metadata or {}
    return metadata.get(COUNTED_FROM, NOTHING.encode()).decode()
