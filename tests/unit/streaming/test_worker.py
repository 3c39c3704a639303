"""What a worker does with the records of a partition, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from freshet.joins.base import JoinOperator, JoinOutput
from freshet.streaming import worker
from freshet.streaming.csv_lines import CsvFormat
from freshet.streaming.records import BROKEN, SOUND
from freshet.streaming.worker import FACT, META_FIELDS, PARKED, STATS, LookupTask, PartitionTask, WarmOperator

COLUMNS = {"id": "string", "place": "string"}
TABS_ONLY = ("\t", SOUND)
"""Between two tabs CSV has a record of nulls."""


def of_tabbed_csv(*lines: tuple[str, int]) -> list[dict[str, object]]:
    """What comes of lines, given with how far Spark's parser believes them."""
    fields = [[*line.split("\t"), None] for line, _ in lines]
    batch = pa.record_batch(
        {
            "id": pa.array([values[0] or None for values in fields], pa.string()),
            "place": pa.array([values[1] or None for values in fields], pa.string()),
            "_raw": [line for line, _ in lines],
            "_file": ["file:/a.csv"] * len(lines),
            "_block": [0] * len(lines),
            "_suspect": pa.array([trust for _, trust in lines], pa.int8()),
        }
    )
    schema = pa.schema([*((name, pa.string()) for name in COLUMNS), *META_FIELDS])
    task = PartitionTask("load", "csv", COLUMNS, "id", CsvFormat(delimiter="\t"), (), schema)
    rows = [row for part in task([batch]) for row in part.to_pylist()]
    return [row for row in rows if row["_kind"] != STATS]


@pytest.mark.parametrize("neighbour", [("a\tb", SOUND), ("", BROKEN), ("x", BROKEN)])
def test_a_csv_line_of_tabs_is_a_record_whatever_stands_beside_it(neighbour: tuple[str, int]) -> None:
    rows = of_tabbed_csv(TABS_ONLY, neighbour)
    parked = {row["_row"]: row["_reason"] for row in rows if row["_kind"] == PARKED}
    assert parked.pop(0) == "null_event_id"
    assert parked == ({1: "malformed"} if neighbour[0] == "x" else {})


def test_the_header_of_a_file_is_its_first_line_that_is_not_blank() -> None:
    def lines(file: str, block: int, *texts: str) -> pa.RecordBatch:
        fields = {"id": pa.array([text or None for text in texts]), "_raw": list(texts)}
        place = {"_file": [file] * len(texts), "_block": [block] * len(texts)}
        trust = pa.array([SOUND if text.strip() else BROKEN for text in texts], pa.int8())
        return pa.record_batch({**fields, **place, "_suspect": trust})

    schema = pa.schema([pa.field("id", pa.string()), *META_FIELDS])
    task = PartitionTask("load", "csv", {"id": "string"}, "id", CsvFormat(header=True), (), schema)
    fed = [lines("a", 0, "", " "), lines("a", 0, "id", "a1"), lines("b", 0, "id", "b1"), lines("b", 9, "b2")]
    rows = [row for part in task([*fed, lines("b", 0, "b3")]) for row in part.to_pylist()]
    facts = [(row["id"], row["_block"], row["_row"]) for row in rows if row["_kind"] == FACT]
    assert facts == [("a1", 0, 3), ("b1", 0, 1), ("b2", 9, 0), ("b3", 0, 2)]


BATCH_ROWS = 10


class KnowsNothing(JoinOperator):
    """A join with an R without rows."""

    waiting = 0

    def push(self, stream: pa.RecordBatch, keys: pa.Array) -> Iterator[JoinOutput]:
        if stream.num_rows:
            yield JoinOutput(stream, None)

    def drain(self) -> Iterator[JoinOutput]:
        return iter(())

    def suspend(self) -> list[tuple[pa.RecordBatch, pa.Array]]:
        return []


class KnowsAllLater(KnowsNothing):
    """A join that finds every key when it is drained, in one output a batch."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.later: list[pa.RecordBatch] = []

    def push(self, stream: pa.RecordBatch, keys: pa.Array) -> Iterator[JoinOutput]:
        self.later.append(stream)
        return iter(())

    def drain(self) -> Iterator[JoinOutput]:
        for stream in self.later:
            self.given = getattr(self, "given", 0) + stream.num_rows
            yield JoinOutput(stream, pa.record_batch({"m": pa.array(["x"] * stream.num_rows)}))


def warm_lookup(name: str, join: JoinOperator, monkeypatch: pytest.MonkeyPatch) -> LookupTask:
    """A lookup for which a worker has this join already."""
    add = {f"{name}_x": "m"}
    lookup = LookupTask(name, "place", name != "first", add, {}, "park", "", 1, "inlj", 1024, {})
    monkeypatch.setitem(worker._warm, ("load", name), WarmOperator(lookup, join))
    return lookup


def operator(kind: type[JoinOperator]) -> Any:
    budget = SimpleNamespace(peak=0, peaks={}, reset_peaks=lambda: None)
    return kind(SimpleNamespace(outside_bytes={}), budget)  # type: ignore[arg-type]


def task_of(*lookups: LookupTask) -> PartitionTask:
    added = [f"{lookup.name}_x" for lookup in lookups]
    schema = pa.schema([*((name, pa.string()) for name in (*COLUMNS, *added)), *META_FIELDS])
    return PartitionTask("load", "csv", COLUMNS, "id", CsvFormat(), lookups, schema)


def most_held(task: PartitionTask, place: str | None, batches: int = 50) -> int:
    """The most rows that a worker has taken in and not given out when it asks for more."""
    out = held = 0

    def fed() -> Iterator[pa.RecordBatch]:
        nonlocal held
        for number in range(batches):
            held = max(held, number * BATCH_ROWS - out)
            yield pa.record_batch(
                {
                    "id": ["i"] * BATCH_ROWS,
                    "place": pa.array([place] * BATCH_ROWS, pa.string()),
                    "_raw": ["i\tp"] * BATCH_ROWS,
                    "_file": ["file:/a.csv"] * BATCH_ROWS,
                    "_block": [0] * BATCH_ROWS,
                    "_suspect": pa.array([SOUND] * BATCH_ROWS, pa.int8()),
                }
            )

    for part in task(fed()):
        out += sum(row["_kind"] in (FACT, PARKED) for row in part.to_pylist())
    assert out == batches * BATCH_ROWS
    return held


@pytest.mark.parametrize("place", ["nowhere", None], ids=["unmatched", "null key"])
def test_parked_records_leave_the_worker_though_no_fact_ever_does(
    place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = warm_lookup("first", operator(KnowsNothing), monkeypatch)
    second = warm_lookup("second", operator(KnowsNothing), monkeypatch)
    assert most_held(task_of(first, second), place) <= BATCH_ROWS


def test_what_a_drained_lookup_gives_to_one_that_parks_it_leaves_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draining = operator(KnowsAllLater)
    first = warm_lookup("first", draining, monkeypatch)
    second = warm_lookup("second", operator(KnowsNothing), monkeypatch)
    task = task_of(first, second)
    batch = {"id": ["i"], "place": ["p"], "_raw": ["i\tp"], "_file": ["f"], "_block": [0]}
    fed = [pa.record_batch({**batch, "_suspect": pa.array([SOUND], pa.int8())}) for _ in range(50)]
    out = 0
    for part in task(fed):
        out += sum(row["_kind"] == PARKED for row in part.to_pylist())
        assert draining.given - out <= 1
    assert out == 50
