"""Payload: the stream rows of waiting tuples, with their keys, in record batches of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from freshet.joins.columns import Int64s
from freshet.joins.outputs import copy_rows


def column_of(batch: pa.RecordBatch, keys: pa.Array) -> int:
    """The column of the batch that is the keys (the very same memory), or -1."""

    def memory(array: pa.Array) -> list[object]:
        buffers = [None if buffer is None else buffer.address for buffer in array.buffers()]
        return [array.type, array.offset, len(array), *buffers]

    looked_for = memory(keys)
    return next((at for at, column in enumerate(batch.columns) if memory(column) == looked_for), -1)


@dataclass(frozen=True)
class Payload:
    """Stream rows and their keys."""

    batch: pa.RecordBatch
    keys: pa.Array | None
    """None: the keys are column `key_column` of the batch."""
    key_column: int

    @classmethod
    def of(cls, batch: pa.RecordBatch, keys: pa.Array) -> Payload:
        """The rows of a pushed batch; keys that are one of its columns are not kept twice."""
        key_column = column_of(batch, keys)
        return cls(batch, keys if key_column < 0 else None, key_column)

    @cached_property
    def nbytes(self) -> int:
        return self.batch.nbytes + (0 if self.keys is None else self.keys.nbytes)

    @property
    def row_bytes(self) -> float:
        """The mean bytes of a row."""
        return self.nbytes / max(self.batch.num_rows, 1)

    def all_keys(self) -> pa.Array:
        """The key of each row."""
        return self.batch.column(self.key_column) if self.keys is None else self.keys

    def copy(self, rows: Int64s) -> Payload:
        """Some of the rows, in memory of their own."""
        keys = None if self.keys is None else self.keys.take(pa.array(rows))
        return Payload(copy_rows(self.batch, rows), keys, self.key_column)

    def portions(self, rows: Int64s, portion_rows: int) -> list[Payload]:
        """Some of the rows, in memory of their own, in batches of so many rows."""
        return [self.copy(rows[at : at + portion_rows]) for at in range(0, len(rows), portion_rows)]


def joined(parts: list[Payload]) -> Payload:
    """One payload out of several with the same columns."""
    if len(parts) == 1:
        return parts[0]
    keys = None if parts[0].keys is None else pa.concat_arrays([part.keys for part in parts])
    return Payload(pa.concat_batches([part.batch for part in parts]), keys, parts[0].key_column)


@dataclass(frozen=True)
class Span:
    """A payload batch, its number, and the stretch of arrivals that lie in it."""

    number: int
    payload: Payload
    start: int
    end: int

    @property
    def rows(self) -> int:
        """Rows of tuples that still wait."""
        return self.end - self.start

    @property
    def full(self) -> bool:
        """Whether all rows belong to tuples that still wait."""
        return self.rows == self.payload.batch.num_rows

    @property
    def nbytes(self) -> int:
        """The bytes of those rows (by their share)."""
        return int(np.ceil(self.payload.row_bytes * self.rows))
