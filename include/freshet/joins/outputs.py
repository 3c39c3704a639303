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
        self._master = ColumnGather(schema, OUTPUT_ROWS)
        self._joined: list[Int64s] = []
        self._unmatched: list[Int64s] = []
        self._unmatched_rows = 0
        self._ready: deque[JoinOutput] = deque()
        self._seconds = 0.0
        self.columns_of = self._master.columns_of

    def join(self, stream: Int64s, columns: Columns, offsets: Int64s) -> None:
        """Stream rows (by place) that match the master rows at these offsets, one for one."""
        done = 0
        while done < len(stream):
            end = min(len(stream), done + OUTPUT_ROWS - self._master.rows)
            self._master.put(columns, offsets[done:end])
            self._joined.append(stream[done:end])
            done = end
            if self._master.rows == OUTPUT_ROWS:
                self._finish_joined()

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
