"""ROOTJOIN as it is defined, tuple by tuple, everything counted anew, to compare the real one with."""

from __future__ import annotations

from collections import Counter
from math import sqrt

from tests.unit.joins.models.xhybridjoin import NaiveXHybridJoin


class NaiveRootJoin(NaiveXHybridJoin):
    """The loads that the square-root law asks for, and those for tuples that have waited too long."""

    def __init__(
        self, keys: list[int], counts: list[int], d_n: int, d_s: int, h_s: int, age_bound: int
    ) -> None:
        super().__init__(keys, d_n, d_s, h_s)
        self.age_bound = age_bound
        self.partitions = range(-(-max(len(keys) - d_n, 0) // d_s))
        known = [sum(counts[d_n + p * d_s : d_n + (p + 1) * d_s]) for p in self.partitions]
        self.share = [count / sum(known) if sum(known) else 1 / len(known) for count in known]
        self.served = dict.fromkeys(self.partitions, 0.0)
        self.served_in_all = 0
        self.came_as: dict[int, int] = {}
        """The how-manieth of all cold tuples in H each of them was."""

    def refill(self) -> None:
        before = len(self.q)
        super().refill()
        for event, key in self.q[before:]:
            if self.index[key] >= self.first:
                self.came_as[event] = len(self.came_as)

    def choose(self) -> int:
        waiting = Counter(self.partition_of(key) for _, key in self.q)
        oldest_event, oldest_key = self.q[0]
        age = len(self.came_as) - 1 - self.came_as[oldest_event]
        if self.age_bound and age > self.age_bound * self.h_s:
            chosen = self.partition_of(oldest_key)
        else:
            chosen = max(self.partitions, key=lambda p: (waiting[p] / sqrt(self.rate(p, waiting[p])), -p))
        self.learn(chosen, waiting[chosen])
        return chosen

    def rate(self, partition: int, waiting: int) -> float:
        return max(self.share[partition] * self.h_s + self.served[partition] + waiting, 1)

    def learn(self, partition: int, tuples: int) -> None:
        self.served[partition] += tuples
        self.served_in_all += tuples
        if self.served_in_all > 16 * self.h_s:
            self.served = {p: served / 2 for p, served in self.served.items()}
            self.served_in_all //= 2
