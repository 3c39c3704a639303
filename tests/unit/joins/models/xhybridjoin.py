"""X-HYBRIDJOIN as its paper writes it down, tuple by tuple, to compare the real one with.

Algorithm 1 of the paper, with the changes that any running version needs: keys that R does not have leave
when they are read from the stream buffer; H is refilled with min(w, available) tuples; partitions of cold
rows start at d_N; an iteration starts when tuples are left outside a full H, or in a pause of the stream.
It shares no code with the join.
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


class NaiveXHybridJoin:
    """The pseudo-code with R as a list of keys in rank order."""

    def __init__(self, keys: list[int], d_n: int, d_s: int, h_s: int) -> None:
        self.r = keys
        self.index = {key: rank for rank, key in enumerate(keys)}
        self.d_n, self.d_s = d_n, d_s
        self.p1 = keys[:d_n]  # line 1
        self.w = h_s  # line 2
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
        self._refill()
        while self.stream_buffer:
            self._iteration()
            self._refill()

    def pause(self) -> None:
        """The stream pauses: iterate until H is empty."""
        while self.h:
            self._iteration()

    def _refill(self) -> None:  # lines 4 to 7
        while self.w > 0 and self.stream_buffer:
            self._drop_missing()
            if self.stream_buffer:
                event, key = self.stream_buffer.popleft()
                self.h.setdefault(key, []).append(event)
                self.q.append((event, key))
                self.taken += 1
                self.w -= 1
        self._drop_missing()

    def _drop_missing(self) -> None:
        while self.stream_buffer and self.stream_buffer[0][1] not in self.index:
            self.unmatched.append(self.stream_buffer.popleft()[0])

    def _iteration(self) -> None:
        hot = self._probe(self.p1)  # lines 8 to 14
        partition, cold = None, 0
        if self.q:
            oldest_key = self.q[0][1]  # line 15
            partition = (self.index[oldest_key] - self.d_n) // self.d_s  # line 16
            first = self.d_n + partition * self.d_s
            cold = self._probe(self.r[first : first + self.d_s])  # lines 17 to 23
        self.w += hot + cold
        self.steps.append(Step(self.taken, hot, partition, cold))
        self.taken = 0

    def _probe(self, rows: list[int]) -> int:
        matches = 0
        for key in rows:
            if key in self.h:
                matched = self.h.pop(key)
                self.joined += [(event, self.index[key]) for event in matched]
                self.q = [node for node in self.q if node[1] != key]
                matches += len(matched)
        return matches
