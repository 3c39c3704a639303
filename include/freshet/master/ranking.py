"""The ranks of master rows: their keys and counts, sorted out of core."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.errors import MasterError
from freshet.queries import query

_FETCH_ROWS = 65_536


@dataclass(frozen=True)
class Ranks:
    """Which rank each row has, and how often each rank is asked for; both mapped from disk."""

    of_row: npt.NDArray[np.int64]
    """The rank of the row at each position, in the order in which the rows came."""
    counts: npt.NDArray[np.int64]
    """The count of each rank."""


class Ranking:
    """Keys in a DuckDB database, on their way to being ranked.

    Only keys and positions go through it, never whole rows: DuckDB cannot sort wide rows in bounded memory.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection, key_type: pa.DataType) -> None:
        self._database = database
        self._sql_type = "VARCHAR" if pa.types.is_string(key_type) else "BIGINT"
        self._run("sort/create_keys", pa.array([], key_type), 0)
        self._database.begin()
        self.rows = 0

    def add(self, keys: pa.Array) -> None:
        """Take the keys of the next rows."""
        self._run("sort/load_keys", keys, self.rows)
        self.rows += len(keys)

    def _run(self, statement: str, keys: pa.Array, start: int) -> None:
        positions = pa.array(np.arange(start, start + len(keys)), pa.int64())
        # Not registered: until the transaction ends, DuckDB keeps all that was.
        source = self._database.from_arrow(pa.table({"key": keys, "position": positions}))
        source.query("source", query(statement))

    def finish(self, where: str, key: str) -> None:
        """End the keys, and refuse those that are not unique."""
        self._database.commit()
        repeated = self._database.execute(query("sort/duplicate_keys")).fetchall()
        if repeated:
            shown = ", ".join(f"{value!r} ({times:,} times)" for value, times, _ in repeated)
            raise MasterError(
                f"{repeated[0][2]:,} keys of {where} are not unique in {key}, for example {shown}. "
                "Remove the extra rows or choose a key column that is unique"
            )

    def ranks(self, counts: Path | None, folder: Path) -> Ranks:
        """The ranks of all rows by these counts, kept in a folder."""
        if counts is None:
            self._database.execute(query("sort/no_counts", key_type=self._sql_type))
        else:
            self._database.execute(query("sort/counts", key_type=self._sql_type), [str(counts)])
        ranks = Ranks(_mapped(folder / "ranks", self.rows), _mapped(folder / "counts", self.rows))
        start = 0
        for batch in self._database.sql(query("sort/ranked")).to_arrow_reader(_FETCH_ROWS):
            end = start + len(batch)
            ranks.of_row[batch.column("position").to_numpy()] = np.arange(start, end)
            ranks.counts[start:end] = batch.column("count").to_numpy()
            start = end
        return ranks


def _mapped(path: Path, rows: int) -> npt.NDArray[np.int64]:
    # An empty file cannot be mapped.
    return np.memmap(path, np.int64, "w+", shape=(rows,)) if rows else np.empty(0, np.int64)
