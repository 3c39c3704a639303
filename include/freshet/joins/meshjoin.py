"""MESHJOIN and R-MESHJOIN: R is read over and over, and a tuple leaves H when it has met all of R.

MESHJOIN: Polyzotis, Skiadopoulos, Vassiliadis, Simitsis, Frantzell: Supporting streaming updates in an active
data warehouse. ICDE 2007; as described by Naeem, Dobbie, Weber, Alam: Optimising the disk-buffer of MESHJOIN
(the default buffer comes from there).

R is cut into k parts of b pages, which are read in turn, round and round. H holds the tuples of the last k
iterations, and a queue Q has them in k groups of w = h_S / k. One iteration is:

 1. read the next b pages of R into the disk buffer;
 2. if Q is full, its oldest group has met every page: it leaves H and Q;
 3. take w tuples into H, a new group of Q;
 4. join H with the b pages.

So the stream's intake is tied to the reading of R. R-MESHJOIN loosens that: a tuple remembers where the
reading stood when it came, leaves when it is there again, and an iteration takes in as many tuples as there
are free slots. Its source gives no pseudo-code, so this is our reconstruction: the same loop, with groups of
any size.

    | disk buffer b pages | intake | H and Q: h_S tuples in k groups, and gaps |
    |       0.93 MB       | M / 16 |                 the rest                  |

    R   │ b pages │ b pages │ b pages │        H, while the third part is read:
          part 0    part 1    part 2             group of part 0, of part 1, of part 2

Deviations from the paper, besides those of all queued joins (`queued.py`):
 - The index tells which part a tuple waits for, so that joining a part with H is taking the tuples that wait
   for it. A tuple keeps its slot, which is what the intake depends on, until its group leaves; the bytes of
   its payload can be used again as soon as it is joined.
 - When the stream pauses, reading goes on until every tuple is joined; then nothing is held.
 - The oldest group leaves at the end of the iteration in which it meets its last page, and not at the start
   of the next one. In between nothing happens.
 - If H has fewer slots than R has parts, groups are of one tuple, or of none while H is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from freshet.joins.base import JoinOutput
from freshet.joins.columnar import Match
from freshet.joins.columns import Int64s
from freshet.joins.intake import page_runs
from freshet.joins.queued import WAITING_TUPLES, QueuedJoin
from freshet.joins.sizes import largest_page
from freshet.master.store import MasterStore
from freshet.memory import Budget

DEFAULT_BUFFER = 930_000
"""Bytes of the disk buffer that needs no tuning, by the paper about the disk buffer."""
_MOST_OF_M = 1 / 8


class RMeshJoin(QueuedJoin):
    """R-MESHJOIN, reconstructed."""

    name = "r-meshjoin"
    without_hot_part = True
    known_settings: ClassVar[Mapping[str, str]] = {
        "swappable_pages": "pages of R an iteration reads; default: 0.93 MB, at most an eighth of the memory",
        "waiting_tuples": WAITING_TUPLES,
    }

    def __init__(self, store: MasterStore, budget: Budget, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(store, budget, settings)
        self._groups: deque[int] = deque()
        self._occupied = 0
        self._next_part = 0

    @classmethod
    def sizes_wanted(cls, memory: int, store: MasterStore, settings: Mapping[str, int]) -> Mapping[str, int]:
        buffer = min(DEFAULT_BUFFER, int(memory * _MOST_OF_M))
        untuned = {"swappable_pages": max(1, buffer // largest_page(store))}
        return {**untuned, **super().sizes_wanted(memory, store, settings)}

    def _free_slots(self) -> int:
        return self.slots - self._occupied - self._taken

    def _due_partition(self) -> int | None:
        return self._next_part

    def _iterate(self) -> Iterator[JoinOutput]:
        taken = self._taken
        yield from super()._iterate()
        self._next_part = (self._next_part + 1) % self._sizes.partitions
        self._groups.append(taken)
        self._occupied += taken
        if len(self._groups) == self._sizes.partitions:
            self._occupied -= self._groups.popleft()

    def drain(self) -> Iterator[JoinOutput]:
        yield from super().drain()
        self._empty_queue()

    def suspend(self) -> list[tuple[pa.RecordBatch, pa.Array]]:
        self._empty_queue()
        return super().suspend()

    def _empty_queue(self) -> None:
        self._groups.clear()
        self._occupied = 0

    def _on_pages(self, stream: Int64s, ranks: Int64s) -> Iterator[Match]:
        """All pages of the part, whether somebody waits for their rows or not."""
        page_rows = self.store.page_rows
        wanted = {number: (start, end) for number, start, end in page_runs(ranks, page_rows)}
        first = self._next_part * self._sizes.swappable_pages
        for number in range(first, min(first + self._sizes.swappable_pages, self.store.pages)):
            page = self._read_page(number)
            if number in wanted:
                start, end = wanted[number]
                columns = self._outputs.columns_of(page)
                yield stream[start:end], columns, ranks[start:end] - number * page_rows


class MeshJoin(RMeshJoin):
    """MESHJOIN."""

    name = "meshjoin"

    def _free_slots(self) -> int:
        group = max(1, self.slots // self._sizes.partitions)
        return min(super()._free_slots(), group - self._taken)
