"""HYBRIDJOIN as its paper writes it down, tuple by tuple, to compare the real one with.

The pseudo-code of the paper's figure 5, with the changes that any running version needs: keys that R does
not have leave when they are read from the stream buffer; H is refilled with min(w, available) tuples; an
iteration starts when tuples are left outside a full H, or in a pause of the stream. It shares no code with
the join.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Step(NamedTuple):
    """What one iteration did."""

    taken: int
    hot: int
    partition: int | None
    cold: int


class NaiveHybridJoin:
    """The pseudo-code with R as a list of keys in rank order, cut into partitions from row `first` on."""

    def __init__(self, keys: list[int], d: int, h_s: int, first: int = 0) -> None:
        self.r = keys
        self.index = {key: rank for rank, key in enumerate(keys)}
        self.d, self.h_s, self.first = d, h_s, first
        self.w = h_s  # line 1
        self.stream_buffer: deque[tuple[int, int]] = deque()
        self.h: dict[int, list[int]] = {}
        self.q: list[tuple[int, int]] = []
        self.taken = 0
        self.joined: list[tuple[int, int]] = []
        self.unmatched: list[int] = []
        self.steps: list[Step] = []

    def push(self, tuples: list[tuple[int, int]]) -> None:
        """Tuples (event, key) arrive; iterate as long as some do not fit H."""
        self.stream_buffer.extend(tuples)
        self.refill()
        while self.stream_buffer:
            self.iteration()
            self.refill()

    def pause(self) -> None:
        """The stream pauses: iterate until H is empty."""
        while self.h:
            self.iteration()

    def refill(self) -> None:  # lines 3 to 6
        while self.w > 0 and self.stream_buffer:
            self.drop_missing()
            if self.stream_buffer:
                event, key = self.stream_buffer.popleft()
                self.h.setdefault(key, []).append(event)
                self.q.append((event, key))
                self.taken += 1
                self.w -= 1
        self.drop_missing()

    def drop_missing(self) -> None:
        while self.stream_buffer and self.stream_buffer[0][1] not in self.index:
            self.unmatched.append(self.stream_buffer.popleft()[0])

    def iteration(self) -> None:
        hot = self.probe_hot_part()
        partition, cold = None, 0
        if self.q:
            partition = self.choose()
            start = self.first + partition * self.d
            cold = self.probe(self.r[start : start + self.d])  # lines 8 to 15
        self.w += hot + cold
        self.steps.append(Step(self.taken, hot, partition, cold))
        self.taken = 0

    def probe_hot_part(self) -> int:
        return 0

    def choose(self) -> int:
        oldest_key = self.q[0][1]  # line 7
        return self.partition_of(oldest_key)

    def partition_of(self, key: int) -> int:
        return (self.index[key] - self.first) // self.d

    def probe(self, rows: list[int]) -> int:
        matches = 0
        for key in rows:
            if key in self.h:
                matched = self.h.pop(key)
                self.joined += [(event, self.index[key]) for event in matched]
                self.q = [node for node in self.q if node[1] != key]
                matches += len(matched)
        return matches
