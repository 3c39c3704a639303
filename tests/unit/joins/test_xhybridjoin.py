"""X-HYBRIDJOIN does what its paper says, page for page, and keeps to its budget."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from freshet.errors import BudgetError
from freshet.joins.xhybridjoin import XHybridJoin
from freshet.memory import Budget
from tests.unit.joins.cases import zipf_ranks
from tests.unit.joins.memory_store import MemoryStore

AMPLE = 50_000_000


def store_of(rows: int, page_rows: int) -> MemoryStore:
    return MemoryStore(list(range(rows)), pa.table({"rank": pa.array(range(rows), pa.int64())}), page_rows)


def batch_of(keys: list[int], first_event: int = 0) -> pa.RecordBatch:
    events = np.arange(first_event, first_event + len(keys))
    return pa.record_batch({"event": pa.array(events), "key": pa.array(keys, pa.int64())})


def test_a_drained_batch_that_fits_loads_each_touched_cold_page_once_and_the_hot_part_never_again():
    store = store_of(2_000, 20)
    join = XHybridJoin(store, Budget(AMPLE), {"hot_rows": 100, "swappable_pages": 3})
    for number in range(4):
        keys = zipf_ranks(1_000, 2_000, seed=number)
        store.reads.clear()
        for start in range(0, 1_000, 170):
            batch = batch_of(keys[start : start + 170])
            list(join.push(batch, batch["key"]))
        list(join.drain())
        touched = {key // 20 for key in keys if key >= 100}
        hot = set(range(5)) if number == 0 else set()
        assert Counter(store.reads) == Counter(touched | hot)
        stats = join.take_stats()
        assert stats.page_reads == len(store.reads)
        assert stats.bytes_read == 20 * 8 * len(store.reads)
        assert stats.hot == sum(key < 100 for key in keys)


def test_untuned_the_hot_and_the_swappable_part_are_equal_and_follow_from_the_budget():
    store = store_of(100_000, 100)
    join = XHybridJoin(store, Budget(160_000))
    batch = batch_of([99_999])
    list(join.push(batch, batch["key"]))
    list(join.drain())
    memory = join.take_stats().memory
    pages = 160_000 // 8 // 800
    assert memory["swappable part"] == pages * 800
    assert join._hot_rows == pages * 100
    assert join.budget.peaks["hot part"] == pages * 800


def test_a_master_that_fits_the_hot_part_is_read_once_and_never_again():
    store = store_of(500, 20)
    join = XHybridJoin(store, Budget(AMPLE))
    for _ in range(3):
        batch = batch_of(list(range(500)))
        assert sum(out.stream.num_rows for out in join.push(batch, batch["key"])) == 500
    assert Counter(store.reads) == Counter(range(25))


def test_more_hot_rows_than_the_budget_holds_are_refused_with_the_smallest_that_does():
    store = store_of(10_000, 100)
    with pytest.raises(
        BudgetError, match=r"too few for x-hybridjoin: give it at least [\d,]+ bytes"
    ) as refusal:
        XHybridJoin(store, Budget(50_000), {"hot_rows": 8_000})
    least = int(str(refusal.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    join = XHybridJoin(store, Budget(least), {"hot_rows": 8_000})
    batch = batch_of(list(range(10_000)))
    assert sum(out.stream.num_rows for out in [*join.push(batch, batch["key"]), *join.drain()]) == 10_000
    assert join.take_stats().peak_bytes <= least


def test_h_fills_its_share_of_the_budget_and_no_iteration_comes_early_when_tuples_are_alike():
    store = store_of(20_000, 50)
    join = XHybridJoin(store, Budget(400_000), {"hot_rows": 0})
    join.trace = []
    random = np.random.default_rng(1)
    fullest = 0
    for number in range(40):
        batch = batch_of(random.integers(0, 20_000, 700).tolist(), number * 700)
        list(join.push(batch, batch["key"]))
        fullest = max(fullest, join.waiting)
    slots = join.slots
    assert slots > 2_000
    assert slots * 0.9 < fullest <= slots
    waiting = 0
    for one in join.trace:
        waiting += one.taken
        assert waiting == slots
        waiting -= one.cold
    assert join.take_stats().peak_bytes <= 400_000


def test_tiny_batches_without_end_keep_few_payload_batches():
    store = store_of(5_000, 50)
    join = XHybridJoin(store, Budget(AMPLE), {"hot_rows": 0})
    for event in range(500):
        batch = batch_of([event * 7 % 5_000], event)
        list(join.push(batch, batch["key"]))
    assert join.waiting == 500
    assert join._waiting.batches < 80
    handed = join.suspend()
    assert [key for _, keys in handed for key in keys.to_pylist()] == [
        event * 7 % 5_000 for event in range(500)
    ]


def test_tuples_of_very_different_size_stay_within_the_budget():
    random = np.random.default_rng(9)
    store = store_of(3_000, 50)
    budget = Budget(300_000)
    join = XHybridJoin(store, budget)
    out = 0
    for number in range(30):
        sizes = random.integers(0, 40, 200) * (random.random(200) < 0.02) * 200
        texts = pa.array(["x" * int(size) for size in sizes])
        batch = batch_of(random.integers(0, 3_000, 200).tolist(), number * 200).append_column("text", texts)
        out += sum(output.stream.num_rows for output in join.push(batch, batch["key"]))
    out += sum(output.stream.num_rows for output in join.drain())
    assert out == 6_000
    assert budget.peak <= 300_000


@pytest.mark.parametrize("width", range(59_500, 59_900, 50))
def test_tuples_that_fill_the_memory_alone_wait_for_nothing_that_others_left(width):
    """With one such tuple in H and gone, the gaps of the others are what keeps the next one out."""
    store = store_of(200, 10)
    budget = Budget(64 << 10)
    join = XHybridJoin(store, budget, {"hot_rows": 10, "swappable_pages": 19})
    keys = [0] * 62 + [50, 0] + ([50] + [0] * 63) * 2
    batch = batch_of(keys).append_column("text", pa.array(["x" * width] * len(keys)))
    outputs = [*join.push(batch, batch["key"]), *join.drain()]
    events = [event for output in outputs for event in output.stream["event"].to_pylist()]
    assert sorted(events) == list(range(len(keys)))
    assert budget.peak <= budget.limit


def test_the_memory_really_held_between_pushes_is_what_was_reserved():
    store = store_of(20_000, 50)
    join = XHybridJoin(store, Budget(2_000_000), {"hot_rows": 0})
    random = np.random.default_rng(4)
    before = pa.total_allocated_bytes()
    for number in range(30):
        keys = random.integers(0, 20_000, 2_000).tolist()
        texts = pa.array(["x" * 50] * 2_000)
        batch = batch_of(keys, number * 2_000).append_column("text", texts)
        list(join.push(batch, batch["key"]))
        del batch, texts
        held = pa.total_allocated_bytes() - before
        reserved = join._waiting._payload_bytes.nbytes
        assert held <= reserved * 1.02 + 20_000  # buffers are padded
    assert join.waiting > 5_000
    join.suspend()
