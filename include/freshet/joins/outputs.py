"""Outputs under construction: many small matches, handed over as few large batches.

A stream row is named by its *place*: the number of the batch that holds it in the upper 32 bits, its row
there in the lower. One batch is the one being pushed; others hold waiting tuples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import pyarrow as pa

from freshet.joins.base import JoinOutput
from freshet.joins.columns import ColumnGather, Columns, Int64s, record_batch

OUTPUT_ROWS = 16_384
"""Rows of a full output: what one output gathers still fits the processor's cache."""
OUTPUT_BYTES = 4 * 1024 * 1024
"""Bytes of master rows, or of stream rows, that fill an output before it has so many rows."""

_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1


def places(batch: int | Int64s, rows: Int64s) -> Int64s:
    """The places of rows in a numbered batch (or each in its own)."""
    return rows + (batch << _ROW_BITS)


def rows_of(places: Int64s) -> Int64s:
    """The row of each place in its batch."""
    return places & _ROW_MASK


def follow_each_other(rows: Int64s) -> bool:
    """Whether the rows are a slice of their batch."""
    return bool(len(rows)) and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())


def copy_rows(batch: pa.RecordBatch, rows: Int64s) -> pa.RecordBatch:
    """Some rows of a batch in memory of their own."""
    if not batch.num_columns:
        return record_batch([], batch.schema, len(rows))
    return batch.take(pa.array(rows))


class Outputs:
    """The outputs of a join, full ones ready to be yielded."""

    def __init__(self, schema: pa.Schema, batch_of: Callable[[int], pa.RecordBatch]) -> None:
        self._batch_of = batch_of
        self.pushed = 0
        """The number of the batch being pushed."""
        self._most_rows = OUTPUT_ROWS
        self._master = ColumnGather(schema, OUTPUT_ROWS, OUTPUT_BYTES)
        self._joined: list[Int64s] = []
        self._unmatched: list[Int64s] = []
        self._unmatched_rows = 0
        self._ready: deque[JoinOutput] = deque()
        self._seconds = 0.0
        self.columns_of = self._master.columns_of

    def expect(self, row_bytes: float) -> None:
        """Make outputs of no more stream rows than suit rows of so many bytes."""
        self._most_rows = max(1, int(OUTPUT_BYTES / max(row_bytes, 1)))

    def join(self, stream: Int64s, columns: Columns, offsets: Int64s) -> int:
        """Take stream rows (by place) that match the master rows at these offsets, one for one.

        As many as still fit the output under construction, which is ready if they are not all; how many.
        """
        room = self._most_rows - self._master.rows
        if room < len(offsets):
            offsets = offsets[: max(room, 0)]
        taken = self._master.put(columns, offsets)
        if taken:
            self._joined.append(stream if taken == len(stream) else stream[:taken])
        if taken < len(stream):
            self._finish_joined()
        return taken

    def leave_unmatched(self, rows: Int64s) -> None:
        """Rows of the pushed batch that R does not have."""
        if len(rows):
            self._unmatched.append(rows)
            self._unmatched_rows += len(rows)
            if self._unmatched_rows >= OUTPUT_ROWS:
                self._finish_unmatched()

    def flush(self) -> None:
        """Make everything ready; afterwards no place is remembered."""
        if self._joined:
            self._finish_joined()
        if self._unmatched:
            self._finish_unmatched()

    def ready(self) -> Iterator[JoinOutput]:
        """The outputs that are ready, each once."""
        while self._ready:
            yield self._ready.popleft()

    def take_seconds(self) -> float:
        """The time spent on finishing outputs since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _finish_joined(self) -> None:
        since = perf_counter()
        self._ready.append(self._joined_output())
        self._seconds += perf_counter() - since

    def _joined_output(self) -> JoinOutput:
        stream = np.concatenate(self._joined)
        self._joined = []
        batches = stream >> _ROW_BITS
        if (batches == batches[0]).all():
            rows = self._rows(int(batches[0]), rows_of(stream))
            return JoinOutput(rows, self._master.finish())
        # Batch by batch, so that each is gathered from once; master rows follow in the same order.
        order = np.argsort(stream)
        stream, batches = stream[order], batches[order]
        ends = [*(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(stream)]
        parts = [
            self._rows(int(batches[start]), rows_of(stream[start:end]))
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        return JoinOutput(pa.concat_batches(parts), self._master.finish(order))

    def _finish_unmatched(self) -> None:
        since = perf_counter()
        rows = np.concatenate(self._unmatched)
        self._unmatched, self._unmatched_rows = [], 0
        self._ready.append(JoinOutput(self._rows(self.pushed, rows), None))
        self._seconds += perf_counter() - since

    def _rows(self, batch: int, rows: Int64s) -> pa.RecordBatch:
        # The pushed batch is the caller's own, he may get a view of it. A view of waiting tuples would keep
        # all of their batch in memory after it has been given back to the budget.
        if batch == self.pushed and follow_each_other(rows):
            return self._batch_of(batch).slice(int(rows[0]), len(rows))
        return copy_rows(self._batch_of(batch), rows)
