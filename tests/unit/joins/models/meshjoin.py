"""MESHJOIN as its papers write it down, and R-MESHJOIN as we define it, tuple by tuple.

The pseudo-code of figure 4 of the paper about the disk buffer, with the changes that any running version
needs: keys that R does not have leave when they are read from the stream buffer; an iteration starts when a
tuple finds no room in the present group; in a pause of the stream iterations go on, with what there is, until
every tuple is joined, and then H is emptied. It shares no code with the joins.
"""

from __future__ import annotations

from collections import deque

from tests.unit.joins.models.hybridjoin import Step


class NaiveMeshJoin:
    """The pseudo-code with R as a list of keys; `w` is None for R-MESHJOIN, which fills what is free."""

    def __init__(self, keys: list[int], b_rows: int, w: int | None, h_s: int) -> None:
        self.r = keys
        self.index = {key: rank for rank, key in enumerate(keys)}
        self.b_rows, self.w, self.h_s = b_rows, w, h_s
        self.k = -(-len(keys) // b_rows)
        self.part = 0
        self.h: dict[int, list[int]] = {}
        """The events of each key in H, joined or not."""
        self.q: deque[list[tuple[int, int]]] = deque()
        self.group: list[tuple[int, int]] = []
        self.not_joined: set[int] = set()
        self.joined: list[tuple[int, int]] = []
        self.unmatched: list[int] = []
        self.steps: list[Step] = []

    def push(self, tuples: list[tuple[int, int]]) -> None:
        for event, key in tuples:
            if key not in self.index:
                self.unmatched.append(event)
                continue
            while not self.has_room():
                self.iteration()
            self.group.append((event, key))
            self.not_joined.add(event)

    def has_room(self) -> bool:
        in_h = sum(len(group) for group in self.q)
        return in_h + len(self.group) < self.h_s and (self.w is None or len(self.group) < self.w)

    def pause(self) -> None:
        while self.not_joined:
            self.iteration()
        self.h.clear()
        self.q.clear()

    def iteration(self) -> None:
        first = self.part * self.b_rows
        buffer = self.r[first : first + self.b_rows]  # line 2
        for event, key in self.group:  # lines 7 and 8
            self.h.setdefault(key, []).append(event)
        self.q.append(self.group)
        met = [event for key in buffer for event in self.h.get(key, [])]  # lines 9 and 10
        again = [event for event in met if event not in self.not_joined]
        assert not again, "a tuple meets its page once"
        self.joined += [(event, self.index[key]) for key in buffer for event in self.h.get(key, [])]
        self.not_joined -= set(met)
        self.steps.append(Step(len(self.group), 0, self.part, len(met)))
        self.group = []
        self.part = (self.part + 1) % self.k
        if len(self.q) == self.k:  # lines 3 to 6
            for event, key in self.q.popleft():
                assert event not in self.not_joined, "a tuple that leaves has met every page"
                self.h[key].remove(event)  # this tuple, not every one with its key
