"""X-HYBRIDJOIN as its paper writes it down, tuple by tuple, to compare the real one with.

Algorithm 1 of the paper: HYBRIDJOIN whose iterations probe the non-swappable part of R first, and whose
partitions start behind it.
"""

from __future__ import annotations

from tests.unit.joins.models.hybridjoin import NaiveHybridJoin


class NaiveXHybridJoin(NaiveHybridJoin):
    """The pseudo-code with R as a list of keys in rank order."""

    def __init__(self, keys: list[int], d_n: int, d_s: int, h_s: int) -> None:
        super().__init__(keys, d_s, h_s, first=d_n)
        self.p1 = keys[:d_n]  # line 1

    def probe_hot_part(self) -> int:  # lines 8 to 14
        return self.probe(self.p1)
