"""INLJ reads pages for the tuples it is given, and keeps nothing."""

from __future__ import annotations

import pyarrow as pa

from freshet.joins.inlj import Inlj
from freshet.memory import Budget
from tests.unit.joins.memory_store import MemoryStore

KEYS = [5, 99, 6, 5, -1, 41]


def reads_with(settings: dict[str, int]) -> list[int]:
    """The pages read for KEYS, with ten rows to a page."""
    store = MemoryStore(list(range(100)), pa.table({"rank": range(100)}), 10)
    join = Inlj(store, Budget(1_000_000), settings)
    batch = pa.record_batch({"key": KEYS})
    outputs = list(join.push(batch, batch["key"]))
    assert sum(output.stream.num_rows for output in outputs) == len(KEYS)
    assert join.waiting == 0
    return store.reads


def test_with_blocks_of_one_tuple_each_tuple_reads_its_page_as_in_the_papers():
    assert reads_with({"block_rows": 1}) == [0, 9, 0, 0, 4]


def test_tuples_of_a_block_share_the_read_of_their_page():
    assert reads_with({}) == [0, 4, 9]
    assert reads_with({"block_rows": 3}) == [0, 9, 0, 4]
