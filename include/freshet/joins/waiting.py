"""H and Q of the HYBRIDJOIN family: waiting stream tuples, found by partition of R and by age.

Tuples stand in the order of their arrival in parallel arrays; their payload lies in batches beside them.
One sort by partition makes buckets, so that probing a loaded partition against H is taking its bucket:

    arrival       0    1    2    3    4    5    6    7   |  8    9        admitted = 8: 8 and 9 are here,
    partition     4    0    4    2    0    4    2    0   |  4    2        but not yet in H
    by partition  [0: 1 4 7]  [2: 3 6 9]  [4: 0 2 5 8]

Loading partition 4 takes 0, 2, 5 out of its bucket. Nothing is moved: `served_before[4] = 8` says that all
older tuples of that partition are gone, and the queue's head skips them. Gaps are closed when new tuples
come, and payload is copied together when too much of it belongs to tuples that are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from freshet.joins.columns import Int64s
from freshet.joins.outputs import copy_rows, places, rows_of
from freshet.memory import Budget

QUEUE_BYTES = 64
"""Bytes a waiting tuple takes besides its payload: rank, place, bucket, and copies of them while sorting."""
PARTITION_BYTES = 24
"""Bytes of the table of buckets for each partition of R."""

# How many of the oldest tuples are looked at at once for one that still waits.
_HEAD_BLOCK = 512
# Payload batches are joined until they have about so many rows: many tiny ones would cost more than a copy.
_SMALL_BATCH_ROWS = 4_096


@dataclass(frozen=True)
class Payload:
    """The stream rows of some waiting tuples, with their keys."""

    batch: pa.RecordBatch
    keys: pa.Array | None
    """None: the keys are column `key_column` of the batch."""
    key_column: int

    @classmethod
    def copy(cls, batch: pa.RecordBatch, keys: pa.Array, rows: Int64s) -> Payload:
        """Some rows of a batch, in memory of their own."""
        key_column = column_of(batch, keys)
        own_keys = keys.take(pa.array(rows)) if key_column < 0 else None
        return cls(copy_rows(batch, rows), own_keys, key_column)

    @cached_property
    def nbytes(self) -> int:
        return self.batch.nbytes + (0 if self.keys is None else self.keys.nbytes)

    def all_keys(self) -> pa.Array:
        return self.batch.column(self.key_column) if self.keys is None else self.keys

    def some(self, rows: Int64s) -> Payload:
        """Some of the rows, in memory of their own unless they are all."""
        if len(rows) == self.batch.num_rows:
            return self
        keys = None if self.keys is None else self.keys.take(pa.array(rows))
        return Payload(copy_rows(self.batch, rows), keys, self.key_column)


def _joined(parts: list[Payload]) -> Payload:
    if len(parts) == 1:
        return parts[0]
    keys = None if parts[0].keys is None else pa.concat_arrays([part.keys for part in parts])
    return Payload(pa.concat_batches([part.batch for part in parts]), keys, parts[0].key_column)


@dataclass(frozen=True)
class _Span:
    """A payload batch and the stretch of arrivals that lie in it."""

    number: int
    payload: Payload
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start

    @property
    def nbytes(self) -> int:
        """The bytes of those rows of the batch that belong to waiting tuples (by their share)."""
        return -(-self.payload.nbytes * self.rows // max(self.payload.batch.num_rows, 1))


def column_of(batch: pa.RecordBatch, keys: pa.Array) -> int:
    """The column of the batch that is the keys (the very same memory), or -1."""

    def memory(array: pa.Array) -> list[object]:
        buffers = [None if buffer is None else buffer.address for buffer in array.buffers()]
        return [array.type, array.offset, len(array), *buffers]

    looked_for = memory(keys)
    return next((at for at, column in enumerate(batch.columns) if memory(column) == looked_for), -1)


class WaitingTuples:
    """Stream tuples that wait for a partition of R, in the order of their arrival."""

    def __init__(self, budget: Budget, first_rank: int, partition_rows: int, partitions: int) -> None:
        self._budget = budget
        self._first_rank = first_rank
        self._partition_rows = partition_rows
        self._payloads: dict[int, Payload] = {}
        self._next_payload = 1
        self._largest = 0
        self._table_bytes = budget.reserve("partition table", partitions * PARTITION_BYTES)
        self._queue_bytes = budget.reserve("queue")
        self._payload_bytes = budget.reserve("waiting payload")
        self._bucket_start = np.zeros(partitions, np.int64)
        self._bucket_end = np.zeros(partitions, np.int64)
        self._served_before = np.zeros(partitions, np.int64)
        self._forget_all()

    def _forget_all(self) -> None:
        self._ranks = np.empty(0, np.int64)
        self._places = np.empty(0, np.int64)
        self._partition = np.empty(0, np.int64)
        self._by_partition = np.empty(0, np.int64)
        self._newcomers: list[tuple[Int64s, Int64s]] = []
        self._served_before[:] = 0
        self._sorted = True
        self._head = 0
        self._admitted = 0
        self._served = 0

    @property
    def count(self) -> int:
        """Tuples admitted and not taken out."""
        return self._admitted - self._served

    @property
    def batches(self) -> int:
        """Payload batches held."""
        return len(self._payloads)

    def batch(self, number: int) -> pa.RecordBatch:
        """A payload batch, by the number in its places."""
        return self._payloads[number].batch

    def fits(self, tuples: int, payload_bytes: int) -> bool:
        """Whether so many more tuples can be held, leaving room to copy any payload batch."""
        to_copy = max(self._largest, payload_bytes) if self._payloads else 0
        return tuples * QUEUE_BYTES + payload_bytes + to_copy <= self._budget.left

    def hold(self, ranks: Int64s, payload: Payload) -> None:
        """Keep these tuples, younger than all others; `admit` lets them into H."""
        self._queue_bytes.grow(len(ranks) * QUEUE_BYTES)
        self._payload_bytes.grow(payload.nbytes)
        number, self._next_payload = self._next_payload, self._next_payload + 1
        self._payloads[number] = payload
        self._largest = max(self._largest, payload.nbytes)
        self._newcomers.append((ranks, places(number, np.arange(len(ranks)))))
        self._sorted = False

    def admit(self, tuples: int) -> None:
        """Let the next so many held tuples into H."""
        self._admitted += tuples

    def oldest_partition(self) -> int:
        """The partition of the oldest tuple in H, which must not be empty."""
        self._sort()
        while True:
            end = min(self._head + _HEAD_BLOCK, self._admitted)
            block = self._partition[self._head : end]
            waits = np.arange(self._head, end) >= self._served_before[block]
            first = int(waits.argmax())
            if waits[first]:
                self._head += first
                return int(block[first])
            self._head = end

    def take(self, partition: int) -> tuple[Int64s, Int64s]:
        """Take all tuples of a partition out of H: their ranks and the places of their payload."""
        self._sort()
        start, end = self._bucket_start[partition], self._bucket_end[partition]
        bucket = self._by_partition[start:end]
        if self._admitted < len(self._ranks):
            bucket = bucket[: np.searchsorted(bucket, self._admitted)]
        self._bucket_start[partition] = start + len(bucket)
        self._served_before[partition] = self._admitted
        self._served += len(bucket)
        return self._ranks[bucket], self._places[bucket]

    def reclaim(self, tuples: int, payload_bytes: int) -> None:
        """Give back payload of tuples that are gone until so much fits. No place taken before stays valid."""
        self._close_gaps()
        spans = sorted(self._spans(), key=lambda span: span.rows / span.payload.batch.num_rows)
        for span in spans:
            if span.rows and self.fits(tuples, payload_bytes):
                break
            self._copy_together([span])
        self._measure_largest()

    def merge_small(self) -> None:
        """Make fewer, larger ones of small payload batches. No place taken before stays valid."""
        self._close_gaps()
        for group in self._groups():
            self._copy_together(group)
        self._measure_largest()

    def _measure_largest(self) -> None:
        self._largest = max((payload.nbytes for payload in self._payloads.values()), default=0)

    def hand_back(self) -> list[tuple[pa.RecordBatch, pa.Array]]:
        """All tuples with their keys, oldest first; afterwards none is held."""
        self._close_gaps()
        handed = []
        for span in self._spans():
            if span.rows:
                some = span.payload.some(self._rows(span))
                handed.append((some.batch, some.all_keys()))
        self.clear()
        return handed

    def clear(self) -> None:
        """Forget all tuples (none waits any more, or they were handed back)."""
        self._forget_all()
        self._payloads.clear()
        self._largest = 0
        self._queue_bytes.release()
        self._payload_bytes.release()

    def _sort(self) -> None:
        """Close the gaps and make the buckets anew, if tuples came since."""
        if self._sorted:
            return
        self._close_gaps()
        partitions = len(self._bucket_start)
        # NumPy sorts 16-bit numbers by radix, several times faster than wider ones.
        keys = self._partition.astype(np.uint16) if partitions <= 1 << 16 else self._partition
        self._by_partition = np.argsort(keys, kind="stable")
        sizes = np.bincount(self._partition, minlength=partitions)
        self._bucket_end = np.cumsum(sizes)
        self._bucket_start = self._bucket_end - sizes
        self._sorted = True

    def _close_gaps(self) -> None:
        """Drop tuples that are gone from the arrays and append the newcomers."""
        waits = np.arange(len(self._ranks)) >= self._served_before[self._partition]
        ranks, at = zip((self._ranks[waits], self._places[waits]), *self._newcomers, strict=True)
        self._newcomers = []
        self._ranks, self._places = np.concatenate(ranks), np.concatenate(at)
        self._partition = (self._ranks - self._first_rank) // self._partition_rows
        self._served_before[:] = 0
        self._admitted -= self._served
        self._served = 0
        self._head = 0
        self._queue_bytes.resize(len(self._ranks) * QUEUE_BYTES)
        self._sorted = False

    def _spans(self) -> list[_Span]:
        """Every payload batch, oldest first; places grow with arrival."""
        numbers = sorted(self._payloads)
        firsts = places(np.array(numbers, np.int64), np.zeros(len(numbers), np.int64))
        starts = np.searchsorted(self._places, firsts).tolist()
        ends = [*starts, len(self._places)][1:]
        return [_Span(n, self._payloads[n], *at) for n, *at in zip(numbers, starts, ends, strict=True)]

    def _rows(self, span: _Span) -> Int64s:
        return rows_of(self._places[span.start : span.end])

    def _groups(self) -> Iterator[list[_Span]]:
        """Neighbouring batches to make one of: small ones together, others each alone."""
        group: list[_Span] = []
        for span in self._spans():
            together = [*group, span]
            # Joining needs the copied parts and the whole at once: twice the bytes.
            small = sum(part.rows for part in together) <= _SMALL_BATCH_ROWS
            small = small and 2 * sum(part.nbytes for part in together) <= self._budget.left
            if group and not (small and span.payload.key_column == group[0].payload.key_column):
                yield group
                together = [span]
            group = together
        if group:
            yield group

    def _copy_together(self, group: list[_Span]) -> None:
        if len(group) == 1 and group[0].rows == group[0].payload.batch.num_rows:
            return
        for_copies = sum(span.nbytes for span in group) * min(len(group), 2)
        if not self._payload_bytes.try_grow(for_copies):
            return
        for span in group:
            del self._payloads[span.number]
        self._payload_bytes.shrink(for_copies + sum(span.payload.nbytes for span in group))
        parts = [span.payload.some(self._rows(span)) for span in group if span.rows]
        if parts:
            whole, number = _joined(parts), group[0].number
            self._payload_bytes.grow(whole.nbytes)
            self._payloads[number] = whole
            start, end = group[0].start, group[-1].end
            self._places[start:end] = places(number, np.arange(end - start))
