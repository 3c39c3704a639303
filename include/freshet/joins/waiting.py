"""H and Q of the HYBRIDJOIN family: waiting stream tuples, found by partition of R and by age.

Tuples stand in the order of their arrival in parallel arrays; their payload lies in batches beside them.
One sort by partition makes buckets, so that probing a loaded partition against H is taking its bucket:

    arrival       0    1    2    3    4    5    6    7   |  8    9        admitted = 8: 8 and 9 are here,
    partition     4    0    4    2    0    4    2    0   |  4    2        but not yet in H
    by partition  [0: 1 4 7]  [2: 3 6 9]  [4: 0 2 5 8]

Loading partition 4 takes 0, 2, 5 out of its bucket. Nothing is moved: `served_before[4] = 8` says that all
older tuples of that partition are gone, and the queue's head skips them. New tuples close the gaps.

While a batch is pushed, the payload of its tuples stays where it is (`borrow`); their bytes are reserved as
if it were copied. Only what still waits when the push ends is copied (`own`). Payload of tuples that
left later is given back by copying what is left of its batch (`reclaim`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.joins.columns import Int64s
from freshet.joins.outputs import places, rows_of
from freshet.joins.payload import Payload, Span, joined
from freshet.memory import Budget, Reservation

UInt32s = npt.NDArray[np.uint32]

QUEUE_BYTES = 56
"""Bytes a waiting tuple takes besides its payload: rank and place (8 each), partition, position in its bucket
and number of its arrival (4 each), and as much again while gaps are closed and buckets made anew."""
PARTITION_BYTES = 32
"""Bytes of the table of buckets for each partition of R."""

# How many of the oldest tuples are looked at at once for one that still waits.
_HEAD_BLOCK = 512
# Payload batches are joined until they have about so many rows: many tiny ones would cost more than a copy.
_SMALL_BATCH_ROWS = 4_096


class WaitingTuples:
    """Stream tuples that wait for a partition of R, in the order of their arrival."""

    def __init__(self, budget: Budget, first_rank: int, partition_rows: int, partitions: int) -> None:
        self._budget = budget
        self._first_rank = first_rank
        self._partition_rows = partition_rows
        self._payloads: dict[int, Payload] = {}
        self._borrowed: Payload | None = None
        self._table_bytes = budget.reserve("partition table", partitions * PARTITION_BYTES)
        self._queue_bytes = budget.reserve("queue")
        self._payload_bytes = budget.reserve("waiting payload")
        self._borrowed_bytes = budget.reserve("waiting payload")
        self._bucket_start = np.zeros(partitions, np.int64)
        self._bucket_end = np.zeros(partitions, np.int64)
        self._served_before = np.zeros(partitions, np.int64)
        self._in_h = np.zeros(partitions, np.int64)
        self._arrivals = 0
        self._forget_all()

    def _forget_all(self) -> None:
        self._ranks = np.empty(0, np.int64)
        self._places = np.empty(0, np.int64)
        self._arrival = np.empty(0, np.uint32)
        self._partition = np.empty(0, np.int32)
        self._by_partition = np.empty(0, np.int32)
        self._newcomers: list[tuple[Int64s, Int64s, UInt32s]] = []
        self._served_before[:] = 0
        self._in_h[:] = 0
        self._counting = False
        self._counted = 0
        self._sorted = True
        self._head = 0
        self._admitted = 0
        self._served = 0
        self._last_number = 0

    @property
    def count(self) -> int:
        """Tuples admitted and not taken out."""
        return self._admitted - self._served

    @property
    def batches(self) -> int:
        """Payload batches held."""
        return len(self._payloads)

    @property
    def busy(self) -> bool:
        """Whether anything is held that could be given back: tuples, gaps that others left, payload."""
        return bool(self._admitted or self._payloads)

    def batch(self, number: int) -> pa.RecordBatch:
        """A payload batch, by the number in its places."""
        return self._payloads[number].batch

    def borrow(self, pushed: Payload) -> int:
        """Let tuples of a pushed batch wait where they are until `own`; the number of the batch in places."""
        self._borrowed = pushed
        self._last_number += 1
        return self._last_number

    def hold(self, ranks: Int64s, rows: Int64s) -> None:
        """Keep tuples of the borrowed batch, younger than all others; `admit` lets them into H."""
        self._queue_bytes.grow(len(ranks) * QUEUE_BYTES)
        arrival = np.arange(self._arrivals, self._arrivals + len(ranks)).astype(np.uint32)
        self._arrivals += len(ranks)
        self._newcomers.append((ranks, places(self._last_number, rows), arrival))
        self._sorted = False

    def payload_bytes(self, tuples: int) -> int:
        """The bytes of so many more tuples of the borrowed batch."""
        return ceil(tuples * self._borrowed_row_bytes)

    @property
    def _borrowed_row_bytes(self) -> float:
        return 0.0 if self._borrowed is None else self._borrowed.row_bytes

    def try_admit(self, tuples: int) -> bool:
        """Let the next so many held tuples into H, if their payload fits the budget."""
        fits = self._borrowed_bytes.try_grow(self.payload_bytes(tuples))
        self._admitted += tuples if fits else 0
        return fits

    def admit_unreserved(self) -> None:
        """Let one tuple in that is too large for the budget: it must be taken out before the push ends."""
        self._admitted += 1

    def by_partition(self) -> Int64s:
        """How many tuples in H wait for each partition: a view, of this moment."""
        self._counting = True
        self._count_admitted()
        return self._in_h

    def oldest_age(self) -> int:
        """How many tuples have come to wait since the oldest one in H, which must not be empty."""
        self.oldest_partition()
        oldest, newest = self._arrival[[self._head, self._admitted - 1]]
        return int(newest - oldest)  # right also when the numbers have begun anew in between

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
        if self._counting:
            self._count_admitted()
            self._in_h[partition] = 0
        self._bucket_start[partition] = start + len(bucket)
        self._served_before[partition] = self._admitted
        self._served += len(bucket)
        return self._ranks[bucket], self._places[bucket]

    def own(self, portion_rows: int) -> int:
        """Copy what still waits of the borrowed batch; the bytes that are missing for it (0: it is done).

        No place in that batch is valid afterwards.
        """
        if self._borrowed is None:
            return 0
        self._close_gaps()
        start = self._owned()
        copies = self._borrowed.portions(rows_of(self._places[start:]), portion_rows)
        nbytes = sum(copy.nbytes for copy in copies)
        if nbytes > self._borrowed_bytes.nbytes + self._budget.left:
            return nbytes - self._borrowed_bytes.nbytes
        self._borrowed_bytes.release()
        self._payload_bytes.grow(nbytes)
        for copy in copies:
            self._last_number += 1
            self._payloads[self._last_number] = copy
            end = start + copy.batch.num_rows
            self._places[start:end] = places(self._last_number, np.arange(end - start))
            start = end
        self._borrowed = None
        return 0

    def reclaim(self, nbytes: int, lender: Reservation) -> None:
        """Give back payload of tuples that are gone, until so many bytes are left in the budget.

        The lender's bytes are free to copy with meanwhile. No place taken before is valid afterwards.
        """
        self._close_gaps()
        lent = lender.nbytes
        lender.release()
        for span in sorted(self._spans(), key=lambda span: span.rows / span.payload.batch.num_rows):
            if span.rows and self._budget.left - lent >= nbytes:
                break
            self._copy_together([span])
        lender.resize(lent)

    def merge_small(self) -> None:
        """Make fewer, larger ones of small payload batches. No place taken before is valid afterwards."""
        self._close_gaps()
        for group in self._groups():
            self._copy_together(group)

    def hand_back(self) -> list[tuple[pa.RecordBatch, pa.Array]]:
        """All tuples with their keys, oldest first; afterwards none is held."""
        self._close_gaps()
        handed = [self._copy(span) for span in self._spans() if span.rows]
        self.clear()
        return [(payload.batch, payload.all_keys()) for payload in handed]

    def clear(self) -> None:
        """Forget all tuples (none waits any more, or they were handed back)."""
        self._forget_all()
        self._payloads.clear()
        self._borrowed = None
        for reservation in (self._queue_bytes, self._payload_bytes, self._borrowed_bytes):
            reservation.release()

    def _count_admitted(self) -> None:
        """Count those by partition that have entered H since the last time."""
        self._sort()
        if self._counted < self._admitted:
            since = np.arange(self._counted, self._admitted)
            entered = self._partition[since]
            entered = entered[since >= self._served_before[entered]]
            self._in_h += np.bincount(entered, minlength=len(self._in_h))
            self._counted = self._admitted

    def _sort(self) -> None:
        """Close the gaps and make the buckets anew, if tuples came since."""
        if self._sorted:
            return
        self._close_gaps()
        partitions = len(self._bucket_start)
        # NumPy sorts 16-bit numbers by radix, several times faster than wider ones.
        keys = self._partition.astype(np.uint16) if partitions <= 1 << 16 else self._partition
        self._by_partition = np.argsort(keys, kind="stable").astype(np.int32)
        sizes = np.bincount(self._partition, minlength=partitions)
        self._bucket_end = np.cumsum(sizes)
        self._bucket_start = self._bucket_end - sizes
        self._sorted = True

    def _close_gaps(self) -> None:
        """Drop tuples that are gone from the arrays and append the newcomers."""
        self._sorted = False
        self._by_partition = np.empty(0, np.int32)
        waits = np.arange(len(self._ranks)) >= self._served_before[self._partition]
        old = (self._ranks[waits], self._places[waits], self._arrival[waits])
        ranks, at, arrival = zip(old, *self._newcomers, strict=True)
        self._newcomers = []
        self._ranks, self._places = np.concatenate(ranks), np.concatenate(at)
        self._arrival = np.concatenate(arrival)
        self._counted = int(np.count_nonzero(waits[: self._counted]))
        self._partition = ((self._ranks - self._first_rank) // self._partition_rows).astype(np.int32)
        self._served_before[:] = 0
        self._admitted -= self._served
        self._served = 0
        self._head = 0
        self._queue_bytes.resize(len(self._ranks) * QUEUE_BYTES)
        borrowed = self.payload_bytes(max(self._admitted - self._owned(), 0))
        self._borrowed_bytes.resize(min(borrowed, self._borrowed_bytes.nbytes))

    def _owned(self) -> int:
        """How many of the arrivals, the oldest ones, have their payload here."""
        if self._borrowed is None:
            return len(self._places)
        return int(np.searchsorted(self._places, places(self._last_number, np.zeros(1, np.int64)))[0])

    def _spans(self) -> list[Span]:
        """Every payload batch, oldest first; places grow with arrival."""
        numbers = sorted(self._payloads)
        firsts = places(np.array(numbers, np.int64), np.zeros(len(numbers), np.int64))
        starts = np.searchsorted(self._places, firsts).tolist()
        ends = [*starts, self._owned()][1:]
        return [Span(n, self._payloads[n], *at) for n, *at in zip(numbers, starts, ends, strict=True)]

    def _groups(self) -> Iterator[list[Span]]:
        """Neighbouring batches to make one of: small ones together, others each alone."""
        group: list[Span] = []
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

    def _copy_together(self, group: list[Span]) -> None:
        """Make one payload batch, without gaps, of a group of neighbours, if there is room for it."""
        if len(group) == 1 and group[0].full:
            return
        for_copies = sum(span.nbytes for span in group) * min(len(group), 2)
        if not self._payload_bytes.try_grow(for_copies):
            return
        for span in group:
            del self._payloads[span.number]
        self._payload_bytes.shrink(for_copies + sum(span.payload.nbytes for span in group))
        parts = [span.payload if span.full else self._copy(span) for span in group if span.rows]
        if parts:
            whole, number = joined(parts), group[0].number
            self._payload_bytes.grow(whole.nbytes)
            self._payloads[number] = whole
            start, end = group[0].start, group[-1].end
            self._places[start:end] = places(number, np.arange(end - start))

    def _copy(self, span: Span) -> Payload:
        return span.payload.copy(rows_of(self._places[span.start : span.end]))
