"""What every join must do, whatever its algorithm: the suite runs over the registry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.errors import BudgetError, DefinitionError
from freshet.joins import registry
from freshet.joins.base import JoinOperator, JoinOutput
from freshet.master.publish import SnapshotWriter
from freshet.master.snapshot import open_snapshot, version_path
from freshet.master.store import MasterStore
from freshet.memory import Budget
from tests.unit.joins.cases import (
    Master,
    all_types,
    assert_balanced,
    assert_same_answer,
    cut,
    push_all,
    stream_of,
    zipf_ranks,
)
from tests.unit.joins.memory_store import MemoryStore

AMPLE = 10_000_000
MakeStore = Callable[[Master, pa.DataType], MasterStore]

every_join = pytest.mark.parametrize("name", registry.names())


def memory_store(master: Master, key_type: pa.DataType) -> MasterStore:
    return MemoryStore(list(master.keys), master.columns, master.page_rows)


def snapshot_store(folder: Path, master: Master, key_type: pa.DataType) -> MasterStore:
    table = master.columns.add_column(0, "the key", pa.array(master.keys, key_type))
    writer = SnapshotWriter(
        folder,
        key="the key",
        schema=table.schema,
        rows=table.num_rows,
        page_rows=master.page_rows,
        watermark={},
        ranked_by="nothing",
    )
    with writer:
        for batch in table.to_batches():
            writer.add(batch, pa.array([1] * batch.num_rows, pa.int64()))
        version = writer.publish()
    return open_snapshot(version_path(folder, version), master.columns.column_names)


@pytest.fixture(params=["memory", "snapshot"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    if request.param == "memory":
        return memory_store
    return lambda master, key_type: snapshot_store(tmp_path, master, key_type)


def integers(rows: int, page_rows: int = 16) -> Master:
    return Master([rank * 10 + 5 for rank in range(rows)], all_types(rows), page_rows)


def strings(rows: int, page_rows: int = 16) -> Master:
    return Master([f"key {rank}" * (1 + rank % 3) for rank in range(rows)], all_types(rows), page_rows)


def some_keys(master: Master, count: int, missing: Any) -> list[Any]:
    """Zipf keys of the master, every fifth one missing and every seventh null."""
    ranks = zipf_ranks(count, len(master.keys), seed=count)
    keys = [master.keys[rank] for rank in ranks]
    return [None if at % 7 == 3 else missing if at % 5 == 2 else key for at, key in enumerate(keys)]


CASES: dict[str, tuple[Master, list[Any], pa.DataType, int]] = {
    "integer keys": (integers(200), some_keys(integers(200), 300, -1), pa.int64(), 50),
    "narrow integer keys": (integers(200), some_keys(integers(200), 300, -1), pa.int32(), 50),
    "string keys": (strings(200), some_keys(strings(200), 300, "no such key"), pa.string(), 50),
    "nothing pushed": (integers(50), [], pa.int64(), 10),
    "all keys missing": (integers(50), list(range(40, 90, 10)), pa.int64(), 3),
    "all keys null": (integers(50), [None] * 30, pa.int64(), 7),
    "one cold key repeated": (integers(200), [1_995] * 100, pa.int64(), 33),
    "one hot key repeated": (integers(200), [5] * 100, pa.int64(), 33),
    "batches of one row": (integers(100), some_keys(integers(100), 60, -1), pa.int64(), 1),
    "one large batch": (integers(200), some_keys(integers(200), 3_000, -1), pa.int64(), 3_000),
    "R smaller than a page": (integers(5), some_keys(integers(5), 40, -1), pa.int64(), 9),
    "R of one full page": (integers(16), some_keys(integers(16), 40, -1), pa.int64(), 9),
    "the last page is short": (integers(16 * 12 + 1), [16 * 120 + 5, 5, 1_915], pa.int64(), 2),
    "pages of one row": (integers(40, page_rows=1), some_keys(integers(40), 60, -1), pa.int64(), 20),
    "R is empty": (integers(0), [1, 2, None], pa.int64(), 2),
}


def smallest_budget(name: str, store: MasterStore, wanted: dict[str, int] | None = None) -> int:
    """The bytes that the refusal of an empty budget names."""
    with pytest.raises(BudgetError) as refusal:
        registry.create(name, store, Budget(0), wanted)
    return named_bytes(refusal.value)


def named_bytes(refusal: BudgetError) -> int:
    named = re.search(r"at least ([\d,]+) bytes", str(refusal))
    assert named is not None
    return int(named[1].replace(",", ""))


def budgets(name: str, store: MasterStore) -> list[int]:
    least = smallest_budget(name, store)
    return [least, least * 3 // 2, AMPLE]


@every_join
@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_that_of_an_in_memory_join(name, case, make_store):
    master, keys, key_type, batch_rows = CASES[case]
    store = make_store(master, key_type)
    stream = stream_of(keys, key_type)
    for limit in budgets(name, store):
        budget = Budget(limit)
        join = registry.create(name, store, budget)
        outputs = push_all(join, cut(stream, batch_rows)) + list(join.drain())
        assert_same_answer(outputs, master, stream)
        stats = join.take_stats()
        assert_balanced(stats, 0, 0)
        assert (stats.tuples_in, join.waiting) == (len(keys), 0)
        assert 0 < stats.peak_bytes <= limit


@every_join
def test_a_lookup_may_add_no_column_at_all(name):
    master = Master([1, 2, 3], pa.table({"x": [1, 2, 3]}).select([]), 2)
    store = MemoryStore([1, 2, 3], pa.table({"x": [1, 2, 3]}), 2)
    store._columns, store._pages = store._columns.select([]), [page.select([]) for page in store._pages]
    join = registry.create(name, store, Budget(AMPLE))
    stream = stream_of([3, 9, 1], pa.int64())
    outputs = push_all(join, [stream]) + list(join.drain())
    assert sum(out.stream.num_rows for out in outputs if out.master is not None) == 2
    assert all(out.master.num_rows == out.stream.num_rows for out in outputs if out.master is not None)
    assert master.page_rows == 2


@every_join
def test_missing_and_null_keys_cost_no_page_read(name):
    store = memory_store(integers(200), pa.int64())
    join = registry.create(name, store, Budget(smallest_budget(name, store)))
    push_all(join, [stream_of([5], pa.int64())])
    list(join.drain())
    join.take_stats()
    outputs = push_all(join, [stream_of([None, 6, 7] * 50, pa.int64())]) + list(join.drain())
    assert sum(output.stream.num_rows for output in outputs if output.master is None) == 150
    assert join.take_stats().page_reads == 0


@every_join
def test_nothing_waits_after_a_drain_and_its_memory_is_given_back(name):
    master = integers(400)
    store = memory_store(master, pa.int64())
    budget = Budget(AMPLE)
    join = registry.create(name, store, budget, {"hot_rows": 16} if name == "x-hybridjoin" else None)
    push_all(join, [stream_of([5], pa.int64())])
    list(join.drain())
    before = budget.used
    push_all(join, cut(stream_of(list(master.keys), pa.int64()), 90))
    list(join.drain())
    assert join.waiting == 0
    assert budget.used == before
    assert list(join.drain()) == []


@every_join
@pytest.mark.parametrize("own_keys", [False, True])
def test_suspended_tuples_fed_again_give_the_same_answer(name, own_keys):
    master = strings(300)
    store = memory_store(master, pa.string())
    stream = stream_of(some_keys(master, 400, "no such key"), pa.string())
    half, rest = stream.slice(0, 250), stream.slice(250)
    join = registry.create(name, store, Budget(AMPLE), {"hot_rows": 16} if name == "x-hybridjoin" else None)

    def feed(to: JoinOperator, batch: pa.RecordBatch, keys: pa.Array) -> list[JoinOutput]:
        return list(to.push(batch, pa.array(keys.to_pylist(), keys.type) if own_keys else keys))

    outputs = [out for batch in cut(half, 60) for out in feed(join, batch, batch["key"])]
    waiting = join.waiting
    suspended = join.suspend()
    assert join.waiting == 0
    assert sum(batch.num_rows for batch, _ in suspended) == waiting
    assert all(batch["key"].equals(keys) for batch, keys in suspended)
    assert waiting + sum(out.stream.num_rows for out in outputs) == half.num_rows
    stats = join.take_stats()
    assert_balanced(stats, 0, 0)
    assert stats.suspended == waiting
    # One half of the way on with the same operator, the other with a fresh one.
    fresh = registry.create(name, store, Budget(AMPLE))
    for at, (batch, keys) in enumerate(suspended):
        outputs += feed(join if at % 2 else fresh, batch, keys)
    outputs += feed(fresh, rest, rest["key"]) + list(fresh.drain()) + list(join.drain())
    assert_same_answer(outputs, master, stream)


@every_join
def test_a_warm_operator_answers_every_batch_like_a_fresh_one(name):
    master = integers(300)
    store = memory_store(master, pa.int64())
    limit = smallest_budget(name, store) * 2
    warm = registry.create(name, store, Budget(limit))
    for number in range(6):
        stream = stream_of(some_keys(master, 150 + number, -1), pa.int64(), first_event=number * 1_000)
        of_warm = push_all(warm, cut(stream, 70)) + list(warm.drain())
        fresh = registry.create(name, store, Budget(limit))
        of_fresh = push_all(fresh, cut(stream, 70)) + list(fresh.drain())
        assert_same_answer(of_warm, master, stream)
        assert_same_answer(of_fresh, master, stream)
        one, other = warm.take_stats(), fresh.take_stats()
        assert (one.tuples_in, one.joined, one.unmatched) == (other.tuples_in, other.joined, other.unmatched)


@every_join
def test_statistics_count_from_the_last_time_they_were_taken(name):
    master = integers(300)
    join = registry.create(name, memory_store(master, pa.int64()), Budget(AMPLE))
    keys = some_keys(master, 200, -1)
    missing = sum(key is None or key == -1 for key in keys)
    for number in range(3):
        push_all(join, [stream_of(keys, pa.int64(), number * 1_000)])
        list(join.drain())
        stats = join.take_stats()
        assert (stats.tuples_in, stats.unmatched, stats.joined) == (200, missing, 200 - missing)
        assert stats.memory
        assert stats.peak_bytes > 0
        assert set(stats.outside) == {"table", "stream batch", "output"}
        assert {"locate", "output"} <= set(stats.seconds)
        assert all(spent >= 0 for spent in stats.seconds.values())
        assert json.loads(json.dumps(asdict(stats))) == asdict(stats)
    assert join.take_stats().tuples_in == 0


@every_join
def test_outputs_are_large_even_when_pages_are_small(name):
    master = Master(range(4_000), pa.table({"rank": range(4_000)}), 8)
    store = memory_store(master, pa.int64())
    join = registry.create(name, store, Budget(AMPLE), {"hot_rows": 0} if name == "x-hybridjoin" else None)
    stream = stream_of([key % 4_000 for key in range(40_000)], pa.int64())
    outputs = push_all(join, [stream]) + list(join.drain())
    assert_same_answer(outputs, master, stream)
    assert len(outputs) <= 6
    assert max(output.stream.num_rows for output in outputs) == 16_384


WIDE = 300_000
WIDE_COLUMNS = {
    "text": pa.array(["x" * WIDE, "y" * WIDE]),
    "bytes": pa.array([b"x" * WIDE, b"y" * WIDE], pa.large_binary()),
    "fixed": pa.array([b"x" * WIDE, b"y" * WIDE], pa.binary(WIDE)),
    "nested": pa.array([["x" * WIDE], ["y" * WIDE]]),
}


@every_join
@pytest.mark.parametrize("column", WIDE_COLUMNS)
def test_wide_master_rows_that_many_ask_for_are_never_all_in_memory_at_once(name, column):
    master = Master([1, 2], pa.table({"rank": [0, 1], column: WIDE_COLUMNS[column]}), 1)
    stream = stream_of([1, 2] * 150, pa.int64())
    join = registry.create(name, memory_store(master, pa.int64()), Budget(AMPLE))
    assert_outputs_of_a_few_megabytes(join, [stream], total_bytes=300 * WIDE)


@every_join
def test_wide_stream_rows_are_handed_over_a_few_at_a_time(name):
    stream = stream_of([5, 1_995] * 40, pa.int64())
    stream = stream.append_column("wide", pa.array(["x" * WIDE] * 80))
    join = registry.create(name, memory_store(integers(200), pa.int64()), Budget(AMPLE))
    assert_outputs_of_a_few_megabytes(join, cut(stream, 40), total_bytes=80 * WIDE)


def assert_outputs_of_a_few_megabytes(
    join: JoinOperator, batches: list[pa.RecordBatch], total_bytes: int
) -> None:
    """Every tuple comes out; no output is large, and none waits in memory for its turn."""
    before = pa.total_allocated_bytes()
    events: list[int] = []
    nbytes = most = 0
    for outputs in [*(join.push(batch, batch["key"]) for batch in batches), join.drain()]:
        for output in outputs:
            assert output.master is not None
            size = output.stream.nbytes + output.master.nbytes
            assert size < 10_000_000
            nbytes += size
            most = max(most, pa.total_allocated_bytes() - before)
            events += output.stream["event"].to_pylist()
    assert sorted(events) == list(range(sum(batch.num_rows for batch in batches)))
    assert nbytes >= total_bytes
    assert most < AMPLE + 15_000_000


@every_join
def test_a_budget_too_small_is_refused_with_the_smallest_that_works(name):
    master = integers(300)
    store = memory_store(master, pa.int64())
    least = smallest_budget(name, store)
    with pytest.raises(BudgetError):
        registry.create(name, store, Budget(least - 1))
    stream = stream_of(some_keys(master, 500, -1), pa.int64())
    join = registry.create(name, store, Budget(least))
    assert_same_answer(push_all(join, [stream]) + list(join.drain()), master, stream)


@every_join
def test_a_tuple_too_large_for_the_budget_is_joined_or_refused_with_the_smallest_that_works(name):
    master = integers(300)
    store = memory_store(master, pa.int64())
    limit = smallest_budget(name, store)
    large = pa.record_batch({"event": [0, 1], "key": [2_995, 2_985], "text": ["x" * 200_000, "y"]})
    join = registry.create(name, store, Budget(limit))
    try:
        outputs = push_all(join, [large]) + list(join.drain())
    except BudgetError as refusal:
        limit = named_bytes(refusal)
        join = registry.create(name, store, Budget(limit))
        outputs = push_all(join, [large]) + list(join.drain())
    assert_same_answer(outputs, master, large)
    assert join.take_stats().peak_bytes <= limit


@every_join
def test_settings_that_do_not_exist_or_make_no_sense_are_refused(name):
    store = memory_store(integers(20), pa.int64())
    with pytest.raises(DefinitionError, match=f"{name} has no setting 'colour'"):
        registry.create(name, store, Budget(AMPLE), {"colour": 1})
    setting = next(iter(registry.join_type(name).known_settings))
    for nonsense in (-1, "7", 1.5, True):
        with pytest.raises(DefinitionError, match=f"setting {setting} of {name}"):
            registry.create(name, store, Budget(AMPLE), {setting: nonsense})


def test_auto_is_a_join_and_an_unknown_name_is_refused():
    store = memory_store(integers(20), pa.int64())
    assert registry.create("auto", store, Budget(AMPLE)).name in registry.names()
    with pytest.raises(DefinitionError, match=r"no join algorithm 'hash'.* inlj, .*x-hybridjoin"):
        registry.create("hash", store, Budget(AMPLE))


def test_two_joins_cannot_have_one_name():
    class Impostor(registry.join_type("inlj")):  # type: ignore[misc]
        pass

    with pytest.raises(ValueError, match="'inlj' exists already"):
        registry.register(Impostor)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.lists(st.none() | st.integers(-3, 70), max_size=60)),
        st.tuples(st.just("drain"), st.just([])),
        st.tuples(st.just("suspend"), st.just([])),
        st.tuples(st.just("stats"), st.just([])),
    ),
    max_size=12,
)


@every_join
@settings(max_examples=150, deadline=None)
@given(steps=STEPS, rows=st.integers(0, 60), page_rows=st.integers(1, 20), spare=st.integers(0, 40_000))
def test_any_sequence_of_calls_conserves_every_tuple_within_the_budget(name, steps, rows, page_rows, spare):
    columns = pa.table(
        {
            "rank": pa.array(range(rows), pa.int64()),
            "text": pa.array(["t" * (n % 7) for n in range(rows)], pa.string()),
        }
    )
    master = Master(range(rows), columns, page_rows)
    store = memory_store(master, pa.int64())
    budget = Budget(smallest_budget(name, store) + spare)
    join = registry.create(name, store, budget)
    outputs: list[JoinOutput] = []
    pushed: list[pa.RecordBatch] = []
    again: list[tuple[pa.RecordBatch, pa.Array]] = []
    events = waiting_before = 0
    for step, keys in [*steps, ("drain", [])]:
        if step == "push":
            stream = stream_of(keys, pa.int64(), events)
            events += len(keys)
            pushed.append(stream)
            outputs += join.push(stream, stream["key"])
        elif step == "drain":
            for batch, batch_keys in again:
                outputs += join.push(batch, batch_keys)
            again = []
            outputs += join.drain()
            assert join.waiting == 0
        elif step == "suspend":
            again += join.suspend()
            assert join.waiting == 0
        else:
            assert_balanced(join.take_stats(), waiting_before, join.waiting)
            waiting_before = join.waiting
        assert budget.peak <= budget.limit
    stream = pa.concat_batches(pushed) if pushed else stream_of([], pa.int64())
    assert_same_answer(outputs, master, stream)
