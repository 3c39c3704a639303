"""ROOTJOIN: waiting stream tuples joined with the partition of R that is loaded best just now.

Our own. HYBRIDJOIN loads the partition of the oldest tuple, and so lets each partition collect tuples in
proportion to their rate. But slots of H are a stock, and loads of partitions are orders that fill it up: to
load as seldom as possible with a stock of h_S, partition i must be loaded when sqrt(rate_i) tuples, times a
constant, wait for it (the square-root law of economic order quantities). So, when H is full:

 1. refill H with as many tuples as have left it, or as many as there are;
 2. load the partition with the largest waiting_i / sqrt(rate_i), or, so that nobody waits for ever, that
    of the oldest tuple, once more than `age_bound` times h_S tuples have come to wait since;
 3. join H with it; what matches leaves H.

A load serves 2 h_S / (sum of sqrt(rate_i))^2 tuples on average, and that of the oldest 2 h_S / n with n
partitions (rates being shares of the cold tuples).

    | disk buffer d | rates of partitions | intake | H: h_S waiting tuples, and gaps |
    |     M / 8     |   24 B a partition  | M / 16 |            the rest             |

X-ROOTJOIN has X-HYBRIDJOIN's hot part as well.

The rate of a partition is what the snapshot's counts say, weighted as PRIOR_WEIGHT times h_S tuples, and the
tuples that have come for it; those that were served count half after every MEMORY times h_S of them, so that
a shift of the pattern is followed.

As in all queued joins (`queued.py`), keys that R does not have leave at intake, and hot tuples fill their
slot until the next iteration; of a partition only those pages are read that hold a row somebody waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from freshet.joins.base import JoinOutput
from freshet.joins.queued import HOT_ROWS, SWAPPABLE_PAGES, WAITING_TUPLES, QueuedJoin
from freshet.joins.waiting import PARTITION_BYTES
from freshet.master.store import MasterStore
from freshet.memory import Budget

PRIOR_WEIGHT = 1
"""How many times h_S tuples the snapshot's counts are worth."""
MEMORY = 16
"""After how many times h_S tuples what has come is worth half."""
AGE_BOUND = 3
_RATE_BYTES = 24


class XRootJoin(QueuedJoin):
    """ROOTJOIN with a hot part."""

    name = "x-rootjoin"
    partition_bytes = PARTITION_BYTES + _RATE_BYTES
    known_settings: ClassVar[Mapping[str, str]] = {
        "hot_rows": HOT_ROWS,
        "swappable_pages": SWAPPABLE_PAGES,
        "waiting_tuples": WAITING_TUPLES,
        "age_bound": "how many times waiting_tuples may come while a tuple waits (0: any number); default: 3",
    }

    def __init__(self, store: MasterStore, budget: Budget, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(store, budget, settings)
        self._age_bound = self.settings.get("age_bound", AGE_BOUND)
        self._rate_bytes = budget.reserve("rates", self._sizes.partitions * _RATE_BYTES)
        self._known_share = self._shares_of_partitions()
        self._served = np.zeros(self._sizes.partitions)
        self._served_in_all = 0

    def _shares_of_partitions(self) -> npt.NDArray[np.float64]:
        """The share of the cold tuples that each partition gets, by the counts of the snapshot."""
        pages = self.store.page_counts()[self._sizes.hot_pages :].astype(np.float64)
        if not len(pages):
            return np.zeros(self._sizes.partitions)
        counts = np.add.reduceat(pages, np.arange(0, len(pages), self._sizes.swappable_pages))
        total = counts.sum()
        return counts / total if total else np.full(len(counts), 1 / len(counts))

    def _due_partition(self) -> int | None:
        if not self._waiting.count:
            return None
        waiting = self._waiting.by_partition()
        if self._age_bound and self._waiting.oldest_age() > self._age_bound * self.slots:
            return self._waiting.oldest_partition()
        rates = self._known_share * (PRIOR_WEIGHT * self.slots) + self._served + waiting
        return int(np.argmax(waiting / np.sqrt(np.maximum(rates, 1))))

    def _iterate(self) -> Iterator[JoinOutput]:
        yield from super()._iterate()
        if self._served_in_all > MEMORY * self.slots:
            self._served /= 2
            self._served_in_all //= 2

    def _took(self, partition: int, tuples: int) -> None:
        self._served[partition] += tuples
        self._served_in_all += tuples


class RootJoin(XRootJoin):
    """ROOTJOIN."""

    name = "rootjoin"
    without_hot_part = True
    known_settings: ClassVar[Mapping[str, str]] = {
        setting: meaning for setting, meaning in XRootJoin.known_settings.items() if setting != "hot_rows"
    }
