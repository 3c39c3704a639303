"""INLJ, the index nested-loop join: a look-up in R for each stream tuple, and nothing waits.

The papers compare with it and give no pseudo-code; this is our definition. Pushed tuples are answered in the
order they come, in blocks: the index gives their ranks, the tuples of a block are ordered by rank, and each
page that holds one of these rows is read once for the block. Nothing of R is kept between blocks.

With `block_rows: 1` each tuple reads its page for itself, which is the textbook's (and the papers') INLJ. The
default is as many tuples as are located at once, so that tuples on one page share its read.

    M:  | one page | intake (ranks and order of a block) |    the stream tuples stay in the pushed batch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from freshet.joins.base import JoinOutput
from freshet.joins.columnar import ColumnarJoin
from freshet.joins.intake import intake_bytes, intake_rows, refuse, smallest_limit
from freshet.master.store import MasterStore
from freshet.memory import Budget


class Inlj(ColumnarJoin):
    """The index nested-loop join."""

    name = "inlj"
    intake_share = 1 / 2
    known_settings: ClassVar[Mapping[str, str]] = {
        "block_rows": "stream tuples that share page reads; 1 is the papers' join, default: as memory allows"
    }

    def __init__(self, store: MasterStore, budget: Budget, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(store, budget, settings)
        page_bytes = max((store.page_bytes(number) for number in range(store.pages)), default=0)

        def suffices(limit: int) -> bool:
            return page_bytes + intake_bytes(limit, self.intake_share) <= limit

        if not suffices(budget.limit):
            smallest = smallest_limit(suffices)
            raise refuse(self.name, budget.limit, smallest, "one page of the master table and the intake")
        self._page_bytes = budget.reserve("page", page_bytes)
        self._reserve_intake()
        self._block_rows = self.settings.get("block_rows") or intake_rows(budget.limit, self.intake_share)

    @property
    def waiting(self) -> int:
        return 0

    def push(self, stream: pa.RecordBatch, keys: pa.Array) -> Iterator[JoinOutput]:
        for start, ranks in self._located(stream, keys):
            found = np.flatnonzero(ranks >= 0)
            for first in range(0, len(found), self._block_rows):
                block = found[first : first + self._block_rows]
                yield from self._join_pages(block + start, ranks[block])
                self.stats.iterations += 1
                yield from self._ready()
        yield from self._hand_over()
        self._pushed = None

    def drain(self) -> Iterator[JoinOutput]:
        return iter(())

    def suspend(self) -> list[tuple[pa.RecordBatch, pa.Array]]:
        return []
