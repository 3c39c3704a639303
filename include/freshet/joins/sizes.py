"""How X-HYBRIDJOIN shares out M bytes: hot part, swappable part, intake, waiting tuples."""

from __future__ import annotations

from collections.abc import Mapping
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
    hot_bytes: int
    swappable_bytes: int
    loading_bytes: int
    """What loading the hot part needs besides its own bytes."""

    @property
    def fixed_bytes(self) -> int:
        """All but the waiting tuples."""
        table = self.partitions * PARTITION_BYTES
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


def share_out(limit: int, store: MasterStore, settings: Mapping[str, int]) -> Sizes:
    """The sizes of all parts under a budget of `limit` bytes."""
    bytes_of = [store.page_bytes(number) for number in range(store.pages)]
    page_bytes = max(bytes_of, default=1) or 1
    untuned = max(1, int(limit * _PART / page_bytes))
    hot_pages = min(-(-settings.get("hot_rows", untuned * store.page_rows) // store.page_rows), store.pages)
    cold_pages = store.pages - hot_pages
    swappable_pages = min(settings.get("swappable_pages") or untuned, max(cold_pages, 1))
    # One null anywhere gives the whole column of the hot part bits of validity.
    hot_bytes = sum(bytes_of[:hot_pages]) + (hot_pages * store.page_rows // 8 + 1) * len(store.schema)
    return Sizes(
        limit=limit,
        hot_pages=hot_pages,
        swappable_pages=swappable_pages,
        partitions=-(-cold_pages // swappable_pages),
        hot_bytes=hot_bytes if hot_pages else 0,
        swappable_bytes=swappable_pages * page_bytes if cold_pages else 0,
        loading_bytes=page_bytes + hot_bytes if hot_pages else 0,
    )


def affordable_sizes(limit: int, store: MasterStore, settings: Mapping[str, int]) -> Sizes:
    """The sizes under a budget of `limit` bytes, or BudgetError with the smallest that would do."""
    sizes = share_out(limit, store, settings)
    if sizes.affordable:
        return sizes
    smallest = smallest_limit(lambda other: share_out(other, store, settings).affordable)
    what_for = f"{sizes.hot_pages} hot pages, a partition of {sizes.swappable_pages} pages and waiting tuples"
    raise refuse("x-hybridjoin", limit, smallest, what_for)
