"""A master table held in memory, for tests: the MasterStore contract in its simplest form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.master.store import MISSING


class MemoryStore:
    """R as an Arrow table in rank order, its keys in a dictionary; counts how often each page is read."""

    def __init__(
        self, keys: list, columns: pa.Table, page_rows: int, counts: list[int] | None = None
    ) -> None:
        self._rank_of = {key: rank for rank, key in enumerate(keys)}
        assert len(self._rank_of) == columns.num_rows
        self._columns = columns
        self._pages = [_page(columns.slice(at, page_rows)) for at in range(0, columns.num_rows, page_rows)]
        self.page_rows = page_rows
        self.reads: list[int] = []
        self._counts = counts or [0] * columns.num_rows

    @property
    def rows(self) -> int:
        return self._columns.num_rows

    @property
    def pages(self) -> int:
        return len(self._pages)

    @property
    def schema(self) -> pa.Schema:
        return self._columns.schema

    @property
    def row_bytes(self) -> float:
        return self._columns.nbytes / max(self.rows, 1)

    @property
    def outside_bytes(self) -> Mapping[str, int]:
        return {"table": self._columns.nbytes}

    def locate(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        return np.array([self._rank_of.get(key, MISSING) for key in keys.to_pylist()], np.int64)

    def page(self, number: int) -> pa.RecordBatch:
        self.reads.append(number)
        return self._pages[number]

    def page_counts(self) -> npt.NDArray[np.int64]:
        starts = range(0, self.rows, self.page_rows)
        return np.array([sum(self._counts[at : at + self.page_rows]) for at in starts], np.int64)

    def page_bytes(self, number: int) -> int:
        return self._pages[number].nbytes


def _page(rows: pa.Table) -> pa.RecordBatch:
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
