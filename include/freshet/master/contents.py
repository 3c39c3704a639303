"""A digest of master rows that tells whether a table has changed, whatever order its rows come in."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from freshet.queries import duckdb_name, query

CONTENTS = "contents"
"""The entry of a snapshot's watermark that holds the digest of its rows."""

_WRAP = 1 << 128


class ContentsDigest:
    """The number of rows and the sum of their hashes, by DuckDB's hash of a row.

    A DuckDB with another hash gives another digest; then a table only seems to have changed.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._rows = 0
        self._sum = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take more rows in."""
        if not len(rows):
            return
        columns = ", ".join(duckdb_name(name) for name in rows.schema.names)
        source = self._database.from_arrow(pa.Table.from_batches([rows]))
        hashed = source.query("source", query("sort/hash_rows", columns=columns))
        assert hashed is not None
        ((total,),) = hashed.fetchall()
        self._rows += len(rows)
        self._sum = (self._sum + int(total)) % _WRAP

    def digest(self) -> str:
        return f"{self._rows} rows, {self._sum:x}"
