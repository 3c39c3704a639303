"""What the tests of master data share: small loads, SQLite tables, and snapshots as plain rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from freshet.config import Definition, Lookup
from freshet.home import embedded_database
from freshet.master.snapshot import open_snapshot, snapshot_path
from freshet.master.sort import ranked_master
from freshet.outofcore import WORK_MEMORY

LOAD = "orders"


def load_with(
    table: str = "items",
    key: str = "id",
    add: Sequence[str] | Mapping[str, str] = ("price",),
    connection: str | None = None,
    stream: Mapping[str, Any] | None = None,
    facts: Sequence[str] = ("order_id",),
) -> Definition:
    """A load with one lookup, called item, and a stream with the columns order_id and id."""
    lookup = {
        "name": "item",
        "connection": connection,
        "table": table,
        "key": key,
        "stream_key": "id",
        "add": list(add) if not isinstance(add, Mapping) else dict(add),
    }
    described = {
        "path": "stream",
        "format": "json",
        "columns": {"order_id": "string", "id": "bigint"},
        "event_id": "order_id",
        **(stream or {}),
    }
    return Definition.model_validate(
        {
            "load": LOAD,
            "stream": described,
            "lookups": [lookup],
            "derive": {},
            "facts": {"table": "order_facts", "columns": list(facts)},
        }
    )


def lookup_of(definition: Definition) -> Lookup:
    return definition.lookups[0]


def sqlite_table(ddl: str, rows: Iterable[Sequence[Any]]) -> None:
    """Make a table in the embedded database. The DDL names it once, as `CREATE TABLE name (`."""
    name = ddl.split()[2]
    with sqlite3.connect(embedded_database()) as database:
        database.execute(f"drop table if exists {name}")
        database.execute(ddl)
        for row in rows:
            database.execute(f"insert into {name} values ({','.join('?' * len(row))})", row)
    database.close()


def sort_master(definition: Definition, counts: Path | None, memory: int = WORK_MEMORY) -> int:
    """Rank the master rows of a load's lookup and publish them, whether it pays or not; the new version."""
    with ranked_master(definition, lookup_of(definition), counts, memory) as ranked:
        return ranked.publish()


def write_counts(path: Path, counts: Mapping[Any, int]) -> Path:
    """A file of counts as `count_keys` writes it."""
    pq.write_table(pa.table({"key": list(counts), "count": list(counts.values())}), path)
    return path


def snapshot_rows(version: int, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of a published snapshot in rank order."""
    store = open_snapshot(snapshot_path(LOAD, "item", version), columns, full=True)
    pages = [store.page(number) for number in range(store.pages)]
    return [tuple(row.values()) for page in pages for row in page.to_pylist()]
