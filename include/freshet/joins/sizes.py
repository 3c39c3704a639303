"""How a queued join shares out M bytes: hot part, swappable part, intake, waiting tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from freshet.joins.intake import intake_bytes, refuse, smallest_limit
from freshet.joins.waiting import PARTITION_BYTES, QUEUE_BYTES
from freshet.master.store import MasterStore

# Untuned, the hot and the swappable part are equal; each gets this share of M, or one page.
_PART = 1 / 8
INTAKE_SHARE = 1 / 16
"""The share of M for working on pushed tuples."""
# Of the bytes for waiting tuples, h_S tuples fill three quarters. The rest is for tuples not yet in H and for
# the payload of tuples that are gone.
_FILL = 3 / 4
# With fewer bytes than this for waiting tuples it is not worth starting.
_FEWEST_WAITING_BYTES = 4_096


@dataclass(frozen=True)
class Sizes:
    """The parts of M, in pages and bytes."""

    limit: int
    hot_pages: int
    swappable_pages: int
    """Pages in a partition of the cold rows."""
    partitions: int
    partition_bytes: int
    """Bytes that each partition costs, whether somebody waits for it or not."""
    hot_bytes: int
    swappable_bytes: int
    loading_bytes: int
    """What loading the hot part needs besides its own bytes."""

    @property
    def fixed_bytes(self) -> int:
        """All but the waiting tuples."""
        table = self.partitions * self.partition_bytes
        return self.hot_bytes + self.swappable_bytes + table + intake_bytes(self.limit, INTAKE_SHARE)

    @property
    def waiting_bytes(self) -> int:
        """Bytes for the waiting tuples; below 0 if M is too small."""
        return self.limit - self.fixed_bytes

    @property
    def affordable(self) -> bool:
        """Whether M is enough to start with."""
        loading = self.fixed_bytes - self.swappable_bytes + self.loading_bytes
        return self.waiting_bytes >= _FEWEST_WAITING_BYTES and loading <= self.limit

    def slots(self, tuple_bytes: float) -> int:
        """h_S, the number of waiting tuples with so many bytes of payload."""
        return int(self.waiting_bytes * _FILL / (tuple_bytes + QUEUE_BYTES))


def largest_page(store: MasterStore) -> int:
    """The bytes of the largest page, at least one."""
    return max((store.page_bytes(number) for number in range(store.pages)), default=1) or 1


def share_out(
    limit: int, store: MasterStore, settings: Mapping[str, int], partition_bytes: int = PARTITION_BYTES
) -> Sizes:
    """The sizes of all parts under a budget of `limit` bytes."""
    page_bytes = largest_page(store)
    untuned = max(1, int(limit * _PART / page_bytes))
    hot_pages = min(-(-settings.get("hot_rows", untuned * store.page_rows) // store.page_rows), store.pages)
    cold_pages = store.pages - hot_pages
    swappable_pages = min(settings.get("swappable_pages") or untuned, max(cold_pages, 1))
    # One null anywhere gives the whole column of the hot part bits of validity.
    rows_bytes = sum(store.page_bytes(number) for number in range(hot_pages))
    hot_bytes = rows_bytes + (hot_pages * store.page_rows // 8 + 1) * len(store.schema)
    return Sizes(
        limit=limit,
        hot_pages=hot_pages,
        swappable_pages=swappable_pages,
        partitions=-(-cold_pages // swappable_pages),
        partition_bytes=partition_bytes,
        hot_bytes=hot_bytes if hot_pages else 0,
        swappable_bytes=swappable_pages * page_bytes if cold_pages else 0,
        loading_bytes=page_bytes + hot_bytes if hot_pages else 0,
    )


def affordable_sizes(name: str, limit: int, sizes_of: Callable[[int], Sizes]) -> Sizes:
    """The sizes under a budget of `limit` bytes, or BudgetError with the smallest that would do."""
    sizes = sizes_of(limit)
    if sizes.affordable:
        return sizes
    smallest = smallest_limit(lambda other: sizes_of(other).affordable)
    hot = f"{sizes.hot_pages} hot pages, " if sizes.hot_pages else ""
    what_for = f"{hot}a partition of {sizes.swappable_pages} pages and waiting tuples"
    raise refuse(name, limit, smallest, what_for)
