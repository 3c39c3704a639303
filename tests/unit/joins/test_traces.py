"""Every join that has pseudo-code (or a definition of ours) does what it says, page for page.

A naive model, tuple by tuple, is fed like the join: what each iteration takes in, loads and matches is equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.joins import registry
from freshet.joins.queued import QueuedJoin
from freshet.memory import Budget
from tests.unit.joins.cases import zipf_ranks
from tests.unit.joins.memory_store import MemoryStore
from tests.unit.joins.models.hybridjoin import NaiveHybridJoin, Step
from tests.unit.joins.models.meshjoin import NaiveMeshJoin
from tests.unit.joins.models.rootjoin import NaiveRootJoin
from tests.unit.joins.models.xhybridjoin import NaiveXHybridJoin

AMPLE = 50_000_000

Model = NaiveHybridJoin | NaiveMeshJoin


class Sizes:
    """The sizes of all parts, in rows; joins without a hot part leave that out."""

    def __init__(self, rows: int, page_rows: int, hot_pages: int, swappable_pages: int, h_s: int) -> None:
        self.rows, self.page_rows = rows, page_rows
        self.hot_pages, self.swappable_pages, self.h_s = hot_pages, swappable_pages, h_s
        self.keys = list(range(rows))
        self.counts = [rows // (rank + 1) for rank in range(rows)]
        self.d_n = min(hot_pages * page_rows, rows)
        self.d_s = swappable_pages * page_rows


def mesh(sizes: Sizes) -> NaiveMeshJoin:
    parts = -(-sizes.rows // sizes.d_s)
    return NaiveMeshJoin(sizes.keys, sizes.d_s, max(1, sizes.h_s // parts), sizes.h_s)


def root(sizes: Sizes, d_n: int, age_bound: int) -> NaiveRootJoin:
    return NaiveRootJoin(sizes.keys, sizes.counts, d_n, sizes.d_s, sizes.h_s, age_bound)


JOINS: dict[str, tuple[str, dict[str, int], Callable[[Sizes], Model]]] = {
    "hybridjoin": ("hybridjoin", {}, lambda s: NaiveHybridJoin(s.keys, s.d_s, s.h_s)),
    "x-hybridjoin": ("x-hybridjoin", {}, lambda s: NaiveXHybridJoin(s.keys, s.d_n, s.d_s, s.h_s)),
    "meshjoin": ("meshjoin", {}, mesh),
    "r-meshjoin": ("r-meshjoin", {}, lambda s: NaiveMeshJoin(s.keys, s.d_s, None, s.h_s)),
    "rootjoin": ("rootjoin", {}, lambda s: root(s, 0, 3)),
    "x-rootjoin": ("x-rootjoin", {}, lambda s: root(s, s.d_n, 3)),
    "rootjoin, ages unbounded": ("rootjoin", {"age_bound": 0}, lambda s: root(s, 0, 0)),
    "rootjoin, ages bounded tightly": ("rootjoin", {"age_bound": 1}, lambda s: root(s, 0, 1)),
}

every_join = pytest.mark.parametrize("join", JOINS)


class Both:
    """A join and its model, fed alike."""

    def __init__(self, join: str, sizes: Sizes) -> None:
        name, settings, model = JOINS[join]
        ranks = pa.table({"rank": pa.array(sizes.keys, pa.int64())})
        store = MemoryStore(sizes.keys, ranks, sizes.page_rows, sizes.counts)
        wanted = {
            "hot_rows": sizes.hot_pages * sizes.page_rows,
            "swappable_pages": sizes.swappable_pages,
            "waiting_tuples": sizes.h_s,
            **settings,
        }
        known = registry.join_type(name).known_settings
        given = {setting: value for setting, value in wanted.items() if setting in known}
        made: Any = registry.create(name, store, Budget(AMPLE), given)
        self.join: QueuedJoin = made
        self.join.trace = []
        self.model = model(sizes)
        self.outputs: list = []
        self.events = 0

    def push(self, keys: list[int]) -> None:
        events = range(self.events, self.events + len(keys))
        self.events += len(keys)
        batch = pa.record_batch(
            {"event": pa.array(np.array(events, np.int64)), "key": pa.array(keys, pa.int64())}
        )
        self.outputs += self.join.push(batch, batch["key"])
        self.model.push(list(zip(events, keys, strict=True)))

    def pause(self) -> None:
        self.outputs += self.join.drain()
        self.model.pause()

    def assert_same_trace(self) -> None:
        assert self.join.trace is not None
        steps = [Step(one.taken, one.hot, one.partition, one.cold) for one in self.join.trace]
        assert steps == self.model.steps

    def assert_same_answer(self) -> None:
        joined: list[tuple[int, int]] = []
        unmatched: list[int] = []
        for output in self.outputs:
            events = output.stream["event"].to_pylist()
            if output.master is None:
                unmatched += events
            else:
                joined += zip(events, output.master["rank"].to_pylist(), strict=True)
        assert sorted(joined) == sorted(self.model.joined)
        assert sorted(unmatched) == sorted(self.model.unmatched)


every_size = st.builds(
    Sizes,
    rows=st.integers(1, 60),
    page_rows=st.integers(1, 8),
    hot_pages=st.integers(0, 4),
    swappable_pages=st.integers(1, 3),
    h_s=st.integers(1, 40),
)
burst = st.lists(st.integers(-2, 60), max_size=80)


@every_join
@settings(max_examples=150, deadline=None)
@given(bursts=st.lists(burst, max_size=8), sizes=every_size)
def test_under_endless_input_every_iteration_loads_and_matches_what_the_model_does(join, bursts, sizes):
    both = Both(join, sizes)
    for keys in bursts:
        both.push(keys)
        assert both.join.waiting <= sizes.h_s
    both.assert_same_trace()
    both.pause()
    both.assert_same_trace()
    both.assert_same_answer()


@every_join
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(st.none() | burst, max_size=12), sizes=every_size)
def test_with_bursts_and_pauses_every_iteration_loads_and_matches_what_the_model_does(join, steps, sizes):
    both = Both(join, sizes)
    for keys in steps:
        if keys is None:
            both.pause()
        else:
            both.push(keys)
    both.pause()
    both.assert_same_trace()
    both.assert_same_answer()


@every_join
def test_a_long_skewed_stream_follows_the_model_too(join):
    both = Both(join, Sizes(rows=2_000, page_rows=20, hot_pages=4, swappable_pages=2, h_s=300))
    keys = zipf_ranks(6_000, 2_000, seed=3)
    for start in range(0, len(keys), 700):
        both.push(keys[start : start + 700])
    both.pause()
    assert len(both.model.steps) > 50
    both.assert_same_trace()
    both.assert_same_answer()
