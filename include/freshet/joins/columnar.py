"""What all joins share that read pages of R and hand over large batches: counted, timed, columnar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from freshet.joins.base import JoinOperator, JoinOutput
from freshet.joins.columns import Columns, Int64s
from freshet.joins.intake import intake_bytes, intake_rows, page_runs
from freshet.joins.outputs import Outputs, places
from freshet.master.store import MasterStore
from freshet.memory import Budget

Match = tuple[Int64s, Columns, Int64s]
"""Stream rows (by place), columns of master rows, and in these the offset of each stream row's own."""


class ColumnarJoin(JoinOperator):
    """A join that works on many tuples at a time."""

    intake_share: ClassVar[float]
    """The share of M for working on pushed tuples."""

    def __init__(self, store: MasterStore, budget: Budget, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(store, budget, settings)
        self._pushed: pa.RecordBatch | None = None
        self._outputs = Outputs(store.schema, self._stream_batch)
        self._consumer_seconds = 0.0

    def _reserve_intake(self) -> None:
        nbytes = intake_bytes(self.budget.limit, self.intake_share)
        self._intake_bytes = self.budget.reserve("intake", nbytes)

    def _stream_batch(self, number: int) -> pa.RecordBatch:
        """The batch with that number in the places of stream rows."""
        if number != self._outputs.pushed:
            raise KeyError(number)
        return self._pushed

    def _located(self, stream: pa.RecordBatch, keys: pa.Array) -> Iterator[tuple[int, Int64s]]:
        """The ranks of a pushed batch, a stretch of rows at a time, each with its first row.

        What R does not have leaves here as unmatched.
        """
        self._pushed = stream
        nbytes = stream.nbytes
        self._saw_outside("stream batch", nbytes)
        self._outputs.expect(nbytes / max(stream.num_rows, 1))
        rows = intake_rows(self.budget.limit, self.intake_share)
        for start in range(0, stream.num_rows, rows):
            since = perf_counter()
            ranks = self.store.locate(keys.slice(start, rows))
            missing = np.flatnonzero(ranks < 0)
            self._outputs.leave_unmatched(missing + start)
            self._spent("locate", since)
            self.stats.tuples_in += len(ranks)
            self.stats.unmatched += len(missing)
            yield start, ranks

    def _join_hot(self, rows: Int64s, columns: Columns, offsets: Int64s) -> Iterator[JoinOutput]:
        """Join rows of the pushed batch with master rows that are in memory."""
        since = perf_counter()
        yield from self._join([(places(self._outputs.pushed, rows), columns, offsets)])
        self.stats.joined += len(rows)
        self.stats.hot += len(rows)
        self._spent("hot", since)

    def _join_pages(self, stream: Int64s, ranks: Int64s) -> Iterator[JoinOutput]:
        """Join stream rows with master rows of these ranks, reading each page that holds one once."""
        since = perf_counter()
        order = np.argsort(ranks)
        yield from self._join(self._on_pages(stream[order], ranks[order]))
        self.stats.joined += len(ranks)
        self.stats.cold += len(ranks)
        self._spent("pages", since)

    def _on_pages(self, stream: Int64s, ranks: Int64s) -> Iterator[Match]:
        """Stream rows in the order of their ranks, page by page."""
        page_rows = self.store.page_rows
        for number, start, end in page_runs(ranks, page_rows):
            columns = self._outputs.columns_of(self._read_page(number))
            yield stream[start:end], columns, ranks[start:end] - number * page_rows

    def _join(self, matches: Iterable[Match]) -> Iterator[JoinOutput]:
        """Join stream rows with their master rows; outputs come as they get full.

        No output waits for another one: together they may be many times larger than what they are made of.
        """
        for stream, columns, offsets in matches:
            while (taken := self._outputs.join(stream, columns, offsets)) < len(stream):
                since = perf_counter()
                yield from self._ready()
                self._consumer_seconds += perf_counter() - since
                stream, offsets = stream[taken:], offsets[taken:]

    def _read_page(self, number: int) -> pa.RecordBatch:
        self.stats.page_reads += 1
        self.stats.bytes_read += self.store.page_bytes(number)
        return self.store.page(number)

    def _hand_over(self) -> Iterator[JoinOutput]:
        """Everything resolved so far; afterwards no output needs a batch of the stream any more."""
        since = perf_counter()
        self._outputs.flush()
        self._spent("output", since)
        yield from self._ready()

    def _ready(self) -> Iterator[JoinOutput]:
        """The outputs that are full."""
        for output in self._outputs.ready():
            self._saw_outside("output", output.stream.nbytes + (output.master.nbytes if output.master else 0))
            yield output

    def _spent(self, phase: str, since: float) -> None:
        """Count the time since then for a phase, without that of outputs: made (`output`) or consumed."""
        seconds = self.stats.seconds
        in_outputs = self._outputs.take_seconds()
        elsewhere, self._consumer_seconds = in_outputs + self._consumer_seconds, 0.0
        seconds[phase] = seconds.get(phase, 0.0) + perf_counter() - since - elsewhere
        seconds["output"] = seconds.get("output", 0.0) + in_outputs

    def _saw_outside(self, name: str, nbytes: int) -> None:
        self.stats.outside[name] = max(self.stats.outside.get(name, 0), nbytes)
