"""Sorting master data by access frequency, out of core, into a published snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.errors import MasterError
from freshet.frequency.count import COUNTED_FROM
from freshet.home import LoadHome
from freshet.master.connections import describe, engine_for
from freshet.master.contents import CONTENTS, ContentsDigest
from freshet.master.database import lookup_schema, read_batches
from freshet.master.files import scratch
from freshet.master.publish import (
    SnapshotWriter,
    choose_page_rows,
    fewest_page_rows,
    limit_page_rows,
)
from freshet.master.ranking import Ranking, Ranks
from freshet.master.reorder import MasterRows, group_bytes, in_rank_order
from freshet.master.retention import retain
from freshet.outofcore import WORK_MEMORY, OutOfMemoryError, bounded_database
from freshet.progress import Progress, silent

if TYPE_CHECKING:
    from freshet.config import Definition, Lookup

NOTHING = "nothing"
"""What rows are ranked by when nothing is known of their use: they stand in the order of their keys."""

_NAMED_ROWS = 3
_NAMED_COLUMNS = 3


@contextmanager
def ranked_master(
    definition: Definition,
    lookup: Lookup,
    counts: Path | None,
    memory: int = WORK_MEMORY,
    progress: Progress = silent,
) -> Iterator[RankedMaster]:
    """A lookup's master rows, read and ranked, and not yet published.

    The rows pass through files, and their keys through a database that may use `memory` bytes.
    """
    read_at = datetime.now(UTC)
    with scratch("sort") as work:
        rows = MasterRows(work / "rows", lookup_schema(lookup))
        with _database(lookup, work, memory) as database:
            ranks, contents = _rank(lookup, counts, rows, database, progress)
        watermark = {
            "database": describe(engine_for(lookup.connection).url),
            "connection": lookup.connection,
            "table": lookup.table,
            "read_at": read_at.isoformat(),
            CONTENTS: contents,
        }
        yield RankedMaster(
            definition.load, lookup, rows, ranks, watermark, _ranked_by(counts), memory, progress
        )


@dataclass
class RankedMaster:
    """Master rows with their ranks, in files."""

    load: str
    lookup: Lookup
    rows: MasterRows
    ranks: Ranks
    watermark: Mapping[str, str | None]
    ranked_by: str
    memory: int
    progress: Progress

    def publish(self) -> int:
        """Make them the next version of the lookup's snapshot; that version. The files are used up."""
        writer = SnapshotWriter(
            LoadHome(self.load).snapshots(self.lookup.name),
            key=self.lookup.key,
            schema=self.rows.schema,
            rows=self.rows.rows,
            page_rows=_page_rows(self.rows, self.ranks),
            watermark=self.watermark,
            ranked_by=self.ranked_by,
        )
        with writer:
            for batch in in_rank_order(self.rows, self.ranks, self.rows.path.parent, self.memory):
                writer.add(batch, self.ranks.counts[writer.added : writer.added + len(batch)])
                self.progress(f"sorting {self.lookup.name}", writer.added, self.rows.rows)
            version = writer.publish()
        retain(self.load, self.lookup.name)
        return version


def _page_rows(rows: MasterRows, ranks: Ranks) -> int:
    """How many rows make a page, by their mean width and by the widest neighbours in rank order."""
    page_rows, least = choose_page_rows(rows.row_bytes), fewest_page_rows(rows.rows)
    if page_rows <= least or not rows.rows:
        return page_rows
    return limit_page_rows(page_rows, least, group_bytes(rows, ranks, least))


def _rank(
    lookup: Lookup,
    counts: Path | None,
    rows: MasterRows,
    database: duckdb.DuckDBPyConnection,
    progress: Progress,
) -> tuple[Ranks, str]:
    """Copy the rows from the master's database and rank their keys; the ranks, and a digest of the rows."""
    engine = engine_for(lookup.connection)
    where = f"table {lookup.table!r} in {describe(engine.url)}"
    keyless = _Keyless(lookup.key)
    ranking = Ranking(database, rows.schema.field(lookup.key).type)
    contents = ContentsDigest(database)
    for batch in read_batches(engine, lookup.table, rows.schema.names, lookup.key):
        keyless.look(batch)
        ranking.add(batch.column(lookup.key))
        contents.add(batch)
        rows.append(batch)
        progress(f"reading {lookup.table}", rows.rows, None)
    keyless.refuse(where)
    ranking.finish(where, lookup.key)
    return ranking.ranks(counts, rows.path.parent), contents.digest()


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
        raise MasterError(f"table {lookup.table!r} cannot be sorted: {error}") from error


def _ranked_by(counts: Path | None) -> str:
    if counts is None:
        return NOTHING
    metadata = pq.read_schema(counts).metadata or {}
    return metadata.get(COUNTED_FROM, NOTHING.encode()).decode()
