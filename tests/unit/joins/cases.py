"""Masters and streams for the tests of joins, and the answer an independent join gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from freshet.joins.base import JoinOperator, JoinOutput, JoinStats

Keys = Sequence[Any]


@dataclass(frozen=True)
class Master:
    """R: keys in rank order and the columns a lookup adds."""

    keys: Keys
    columns: pa.Table
    page_rows: int


def every_third_null(values: Iterable[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([None if at % 3 == 1 else value for at, value in enumerate(values)], arrow)


def all_types(rows: int) -> pa.Table:
    """Columns of every kind of type that a master table may have, with and without nulls."""
    numbers = range(rows)
    day = dt.date(2024, 2, 28)
    moment = dt.datetime(2024, 2, 28, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    return pa.table(
        {
            "rank": pa.array(numbers, pa.int64()),
            "tiny": every_third_null((n % 100 for n in numbers), pa.int8()),
            "short": every_third_null((n % 1_000 for n in numbers), pa.int16()),
            "real": every_third_null((n / 3 for n in numbers), pa.float32()),
            "double": pa.array([n / 7 for n in numbers], pa.float64()),
            "price": every_third_null((Decimal(n) / 100 for n in numbers), pa.decimal128(20, 2)),
            "exact": pa.array([Decimal(n) for n in numbers], pa.decimal256(60, 0)),
            "active": every_third_null((n % 2 == 0 for n in numbers), pa.bool_()),
            "since": every_third_null((day + dt.timedelta(n) for n in numbers), pa.date32()),
            "at": every_third_null((moment + dt.timedelta(n) for n in numbers), pa.timestamp("us", "UTC")),
            "name": every_third_null((f"näme {n}" * (n % 4) for n in numbers), pa.string()),
            "blob": every_third_null((bytes([n % 256]) * (n % 5) for n in numbers), pa.binary()),
            "code": every_third_null((f"{n % 100:02d}".encode() for n in numbers), pa.binary(2)),
            "tags": every_third_null(([str(n), None] * (n % 3) for n in numbers), pa.list_(pa.string())),
            "place": every_third_null(
                ({"x": n, "y": None} for n in numbers), pa.struct({"x": pa.int32(), "y": pa.string()})
            ),
            "notes": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
            "nothing": pa.nulls(rows, pa.int32()),
        }
    )


def stream_of(keys: Keys, key_type: pa.DataType, first_event: int = 0) -> pa.RecordBatch:
    """Stream tuples with these keys: a unique event and payload of several types."""
    events = range(first_event, first_event + len(keys))
    return pa.record_batch(
        {
            "event": pa.array(events, pa.int64()),
            "key": pa.array(keys, key_type),
            "note": every_third_null((f"event {n}" for n in events), pa.string()),
            "amount": every_third_null((Decimal(n) for n in events), pa.decimal128(10, 1)),
            "parts": pa.array([[{"n": n}] * (n % 3) for n in events], pa.list_(pa.struct({"n": pa.int64()}))),
        }
    )


def cut(stream: pa.RecordBatch, rows: int) -> list[pa.RecordBatch]:
    return [stream.slice(start, rows) for start in range(0, stream.num_rows, rows)]


def ranks_by_polars(master: Master, stream: pa.RecordBatch) -> list[int | None]:
    """The rank of each tuple's master row, by a left join of Polars (None: it has none)."""
    key_type = pa.array(master.keys or stream["key"].to_pylist(), stream["key"].type).type
    right = pa.table(
        {"key": pa.array(master.keys, key_type), "rank": pa.array(range(len(master.keys)), pa.int64())}
    )
    left = pa.table({"event": stream["event"], "key": stream["key"]})
    joined = pl.DataFrame(left).join(pl.DataFrame(right), on="key", how="left", maintain_order="left")
    return joined["rank"].to_list()


def in_event_order(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches, schema).sort_by("event")


def assert_same_answer(outputs: list[JoinOutput], master: Master, stream: pa.RecordBatch) -> None:
    """Each tuple came out once, unchanged, with the master row that Polars finds, or unmatched."""
    ranks = ranks_by_polars(master, stream)
    for output in outputs:
        output.stream.validate(full=True)
        assert output.stream.num_rows > 0
        if output.master is not None:
            output.master.validate(full=True)
            assert output.master.num_rows == output.stream.num_rows
    matched = pa.array([rank is not None for rank in ranks], pa.bool_())
    joined = [output for output in outputs if output.master is not None]
    unmatched = [output.stream for output in outputs if output.master is None]
    assert in_event_order(unmatched, stream.schema).equals(
        _table(stream).filter(pa.array([not m.as_py() for m in matched], pa.bool_()))
    )
    both = [
        pa.RecordBatch.from_arrays(
            [*output.stream.columns, *output.master.columns],
            names=[*stream.schema.names, *(f"master {name}" for name in master.columns.column_names)],
        )
        for output in joined
        if output.master is not None
    ]
    expected = _table(stream).filter(matched)
    rows = master.columns.take(pa.array([rank for rank in ranks if rank is not None], pa.int64()))
    for name in master.columns.column_names:
        expected = expected.append_column(f"master {name}", rows[name])
    assert in_event_order(both, expected.schema).combine_chunks().equals(expected.combine_chunks())


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def push_all(join: JoinOperator, batches: Iterable[pa.RecordBatch]) -> list[JoinOutput]:
    return [output for batch in batches for output in join.push(batch, batch["key"])]


def assert_balanced(stats: JoinStats, waiting_before: int, waiting_after: int) -> None:
    """What the statistics promise of each other."""
    gone = stats.joined + stats.unmatched + stats.suspended
    assert stats.tuples_in + waiting_before == gone + waiting_after
    assert stats.joined == stats.hot + stats.cold


def zipf_ranks(count: int, rows: int, seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    return np.minimum(np.exp(random.random(count) * np.log(rows + 1)).astype(int) - 1, rows - 1).tolist()
