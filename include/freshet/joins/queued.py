"""What the joins share that let stream tuples wait in H for their partition of R.

    pushed batch ─► ranks ─┬─► missing: unmatched, at once
                           ├─► hot part of R: joined, at once
                           └─► H, by partition ─► an iteration loads one and joins all that wait for it

R is sorted by access frequency. Its first rows, the hot part, may stay in memory; the rest is cut into
partitions, the first of which starts behind it. An iteration begins when a tuple finds H full, or when the
stream pauses (`drain`). Which partition it loads, and which slots of H it makes free, is what the joins
differ in.

Memory of M bytes (a join without a hot part leaves its share to the waiting tuples):

    | hot part d_N | swappable part d_S | intake | queue and payload of waiting tuples H, Q   |
    |    M / 8     |       M / 8        | M / 16 | three quarters h_S tuples, a quarter gaps   |

What any of them does differently from its paper:
 - Keys that R does not have leave at intake as unmatched; they would stay at the head of Q for ever.
 - Tuples are bucketed by partition (`waiting.py`), which takes the place of probing H with each row of a
   partition, and hot tuples are joined when they come in instead of in an iteration; they still fill their
   slot of H until the next one. What is loaded and matched in an iteration is the same.
 - h_S follows from the bytes of the tuples that were pushed, as their size is not known beforehand. If a few
   tuples are so much larger than most that H does not fit its bytes, iterations run early; one that M could
   never hold is joined straight out of the pushed batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from freshet.joins.base import JoinOutput
from freshet.joins.columnar import ColumnarJoin
from freshet.joins.columns import ColumnGather, Columns, Int64s
from freshet.joins.payload import Payload
from freshet.joins.sizes import INTAKE_SHARE, Sizes, affordable_sizes, share_out
from freshet.joins.waiting import PARTITION_BYTES, QUEUE_BYTES, WaitingTuples
from freshet.master.store import MasterStore
from freshet.memory import Budget

# Of a full H, cold tuples are held in so many portions; one fits besides it (see `sizes.py`).
_PORTIONS = 4
# A warm operator fed with tiny batches copies their payload together when there are so many.
_MANY_BATCHES = 64

HOT_ROWS = "rows of R kept in memory (rounded up to whole pages); default: an eighth of the memory"
SWAPPABLE_PAGES = "pages of R in a partition; default: an eighth of the memory"
WAITING_TUPLES = "stream tuples that may wait; default: as many as the memory holds"


@dataclass(frozen=True)
class Iteration:
    """What happened in one iteration."""

    taken: int
    """Tuples that entered H since the last iteration."""
    hot: int
    """Of these, tuples matched with the hot part."""
    partition: int | None
    """The partition loaded (0 is the first behind the hot part); None: no tuple was left to load one for."""
    cold: int
    """Tuples matched with it."""


class QueuedJoin(ColumnarJoin):
    """A join whose cold tuples wait in H until an iteration loads their partition."""

    intake_share = INTAKE_SHARE
    partition_bytes: ClassVar[int] = PARTITION_BYTES
    """What each partition of R costs besides its waiting tuples."""
    without_hot_part: ClassVar[bool] = False

    def __init__(self, store: MasterStore, budget: Budget, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(store, budget, settings)
        self._sizes = affordable_sizes(self.name, budget.limit, self._share_out)
        self._hot_rows = self.hot_rows(budget.limit, store, self.settings)
        self._hot: Columns | None = None
        self._hot_bytes = budget.reserve("hot part", self._sizes.hot_bytes)
        self._swappable_bytes = budget.reserve("swappable part", self._sizes.swappable_bytes)
        self._reserve_intake()
        partition_rows = self._sizes.swappable_pages * store.page_rows
        self._waiting = WaitingTuples(budget, self._hot_rows, partition_rows, self._sizes.partitions)
        self._seen_bytes = 0
        self._seen_rows = 0
        self._hot_in_h = 0
        self._taken = 0
        self.trace: list[Iteration] | None = None
        """If a list, every iteration is appended to it."""

    @classmethod
    def hot_rows(cls, memory: int, store: MasterStore, settings: Mapping[str, Any]) -> int:
        return min(cls._sizes_of(memory, store, settings).hot_pages * store.page_rows, store.rows)

    @classmethod
    def sizes_wanted(cls, memory: int, store: MasterStore, settings: Mapping[str, int]) -> Mapping[str, int]:
        """The settings that decide about sizes, with what the join itself decides."""
        return {**settings, "hot_rows": 0} if cls.without_hot_part else settings

    @classmethod
    def _sizes_of(cls, memory: int, store: MasterStore, settings: Mapping[str, int]) -> Sizes:
        wanted = cls.sizes_wanted(memory, store, settings)
        return share_out(memory, store, wanted, cls.partition_bytes)

    def _share_out(self, memory: int) -> Sizes:
        return self._sizes_of(memory, self.store, self.settings)

    @abstractmethod
    def _due_partition(self) -> int | None:
        """The partition that the next iteration loads, if it loads one."""

    def _free_slots(self) -> int:
        """How many more tuples H takes before the next iteration."""
        return self.slots - self._waiting.count - self._hot_in_h

    @property
    def waiting(self) -> int:
        return self._waiting.count

    @property
    def slots(self) -> int:
        """h_S: how many tuples may wait."""
        by_bytes = max(1, self._sizes.slots(self._seen_bytes / max(self._seen_rows, 1)))
        return min(self.settings.get("waiting_tuples") or by_bytes, by_bytes)

    def push(self, stream: pa.RecordBatch, keys: pa.Array) -> Iterator[JoinOutput]:
        if not stream.num_rows:
            return
        self._load_hot_part()
        pushed = Payload.of(stream, keys)
        self._seen_bytes += pushed.nbytes
        self._seen_rows += stream.num_rows
        if self._waiting.batches > _MANY_BATCHES:
            self._waiting.merge_small()
        self._outputs.pushed = self._waiting.borrow(pushed)
        for start, ranks in self._located(stream, keys):
            yield from self._take_in(start, ranks)
        yield from self._keep_waiting(pushed)
        self._pushed = None

    def drain(self) -> Iterator[JoinOutput]:
        while self._waiting.count or self._hot_in_h:
            yield from self._iterate()
        yield from self._hand_over()
        self._waiting.clear()

    def suspend(self) -> list[tuple[pa.RecordBatch, pa.Array]]:
        self.stats.suspended += self._waiting.count
        self._hot_in_h = self._taken = 0
        return self._waiting.hand_back()

    def _load_hot_part(self) -> None:
        """Line 1 of the algorithm: done once, when the first tuples come."""
        if self._hot is not None:
            return
        start = perf_counter()
        # The swappable part is not in use yet; its bytes serve for the copies made while loading.
        self._swappable_bytes.release()
        with self.budget.reserve("hot part", self._sizes.loading_bytes):
            rows = ColumnGather(self.store.schema, self._hot_rows)
            for number in range(self._sizes.hot_pages):
                page = self._read_page(number)
                rows.put(rows.columns_of(page), np.arange(page.num_rows))
            hot = rows.finish()
        self._hot_bytes.resize(hot.nbytes)
        self._swappable_bytes.resize(self._sizes.swappable_bytes)
        self._hot = rows.columns_of(hot)
        self._spent("hot", start)

    def _take_in(self, start: int, ranks: Int64s) -> Iterator[JoinOutput]:
        """Join the hot ones of some rows of the pushed batch and let the cold ones wait."""
        hot = np.flatnonzero((ranks >= 0) & (ranks < self._hot_rows))
        yield from self._join_hot(hot + start, self._hot or [], ranks[hot])
        yield from self._ready()
        cold = np.flatnonzero(ranks >= self._hot_rows)
        # Missing tuples take no slot, so the order of intake is that of the others.
        cold_at = cold - np.searchsorted(np.flatnonzero(ranks < 0), cold)
        done = held = 0
        while held < len(cold):
            count = min(len(cold) - held, max(1, self.slots // _PORTIONS))
            needed = count * QUEUE_BYTES + self._waiting.payload_bytes(count)
            if needed > self.budget.left and self._waiting.busy:
                yield from self._make_room(needed)
                continue
            if needed > self.budget.left:
                # Tuples larger than most: whether their payload fits is seen when they are admitted.
                count = min(count, self.budget.left // 4 // QUEUE_BYTES)
            portion = cold[held : held + count]
            self._waiting.hold(ranks[portion], portion + start)
            held += len(portion)
            upto = int(cold_at[held - 1]) + 1
            yield from self._admit(cold_at, done, upto)
            done = upto
        yield from self._admit(cold_at, done, len(hot) + len(cold))

    def _admit(self, cold_at: Int64s, done: int, upto: int) -> Iterator[JoinOutput]:
        """Step 1: let tuples into H, oldest first; when it is full, iterate to make slots free."""
        while done < upto:
            free = self._free_slots()
            if free <= 0:
                yield from self._iterate()
                continue
            step = min(free, upto - done)
            cold = _between(cold_at, done, done + step)
            while not self._waiting.try_admit(cold):
                if self._waiting.busy:
                    yield from self._make_room(self._waiting.payload_bytes(cold))
                elif step > 1:
                    step //= 2
                    cold = _between(cold_at, done, done + step)
                else:
                    self._waiting.admit_unreserved()
                    break
            self._hot_in_h += step - cold
            self._taken += step
            done += step

    def _make_room(self, nbytes: int) -> Iterator[JoinOutput]:
        """Give back what tuples that are gone still hold; if that is not enough, resolve some."""
        yield from self._hand_over()
        since = perf_counter()
        # The swappable part is empty between two iterations: its bytes serve for copying.
        self._waiting.reclaim(nbytes, self._swappable_bytes)
        self._spent("queue", since)
        if self._waiting.count and nbytes > self.budget.left:
            yield from self._iterate()
            yield from self._hand_over()

    def _keep_waiting(self, pushed: Payload) -> Iterator[JoinOutput]:
        """Copy what still waits of the pushed batch, which is the caller's again when the push ends."""
        yield from self._hand_over()
        # No more at once than the swappable part lends for copying it again.
        portion_rows = int(max(self._sizes.swappable_bytes / max(pushed.row_bytes, 1), self.slots // 8, 1))
        since = perf_counter()
        while missing := self._waiting.own(portion_rows):
            self._spent("queue", since)
            yield from self._make_room(missing)
            since = perf_counter()
        self._spent("queue", since)

    def _iterate(self) -> Iterator[JoinOutput]:
        """One iteration. Hot tuples were joined when they came in, here they leave H."""
        since = perf_counter()
        partition, cold = self._due_partition(), 0
        if partition is not None:
            ranks, stream = self._waiting.take(partition)
            self._spent("queue", since)
            cold = len(ranks)
            self._took(partition, cold)
            yield from self._join_pages(stream, ranks)
        if self.trace is not None:
            self.trace.append(Iteration(self._taken, self._hot_in_h, partition, cold))
        self._hot_in_h = self._taken = 0
        self.stats.iterations += 1

    def _took(self, partition: int, tuples: int) -> None:
        """Learn that so many tuples waited for a partition that is now loaded."""

    def _stream_batch(self, number: int) -> pa.RecordBatch:
        return self._pushed if number == self._outputs.pushed else self._waiting.batch(number)


def _between(positions: Int64s, start: int, end: int) -> int:
    """How many of the ascending positions lie from start to before end."""
    first, last = np.searchsorted(positions, (start, end)).tolist()
    return int(last - first)
