"""Rows come into rank order in little memory and with few open files, however wide each of them is."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from freshet.master import reorder
from freshet.master.batches import row_widths
from freshet.master.ranking import Ranks
from freshet.master.reorder import MasterRows, in_rank_order

SCHEMA = pa.schema([("id", pa.int64()), ("_rank", pa.string()), ("rank", pa.int8())])


def rows_of(folder: Path, widths: Sequence[int], batch_rows: int = 500) -> MasterRows:
    """Rows with texts of these lengths; the odd ones come without one."""
    rows = MasterRows(folder / "rows", SCHEMA)
    for start in range(0, len(widths), batch_rows):
        ids = range(start, min(start + batch_rows, len(widths)))
        texts = [f"{i}:".ljust(widths[i], "x") if i % 2 == 0 else None for i in ids]
        rows.append(
            pa.record_batch(
                [pa.array(ids), pa.array(texts), pa.array([None] * len(ids), pa.int8())], schema=SCHEMA
            )
        )
    return rows


def some_ranks(rows: int, seed: int = 1) -> Ranks:
    return Ranks(np.random.default_rng(seed).permutation(rows), np.zeros(rows, np.int64))


def assert_in_rank_order(batches: list[pa.RecordBatch], ranks: Ranks, widths: Sequence[int]) -> None:
    table = pa.Table.from_batches(batches, SCHEMA)
    table.validate(full=True)
    assert table["id"].to_pylist() == np.argsort(ranks.of_row).tolist()
    for row in table.slice(0, 500).to_pylist():
        text = f"{row['id']}:".ljust(widths[row["id"]], "x") if row["id"] % 2 == 0 else None
        assert (row["_rank"], row["rank"]) == (text, None)


@pytest.mark.parametrize("memory", [8, 8_000, 8_000_000])
def test_rows_come_by_rising_rank_whatever_their_columns_are_called(tmp_path: Path, memory: int) -> None:
    widths = [number % 40 for number in range(1_000)]
    ranks = some_ranks(len(widths))
    batches = list(in_rank_order(rows_of(tmp_path, widths), ranks, tmp_path, memory))
    assert_in_rank_order(batches, ranks, widths)
    assert not [entry for entry in tmp_path.iterdir() if entry.is_file()]


def test_no_rows_are_no_batches(tmp_path: Path) -> None:
    assert list(in_rank_order(rows_of(tmp_path, []), some_ranks(0), tmp_path, 1_000)) == []


@pytest.mark.parametrize("groups", [1 << 20, 400])
def test_buckets_are_bounded_in_bytes_when_wide_rows_have_neighbouring_ranks(
    tmp_path: Path, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reorder, "_MOST_GROUPS", groups)
    widths = [10] * 20_000 + [20_000] * 400 + [10] * 20_000
    rows = rows_of(tmp_path, widths)
    in_place = Ranks(np.arange(len(widths)), np.zeros(len(widths), np.int64))
    buckets = reorder._deal(rows, in_place, tmp_path, 500_000)
    assert sum(bucket.rows for bucket in buckets) == len(widths)
    # Of a group's hundred rows every second has a text.
    one_group = 20_000 if groups > len(widths) else 50 * 20_000
    assert max(bucket.bytes for bucket in buckets) < 1.1 * (500_000 + one_group)


@contextmanager
def few_open_files(more: int) -> Iterator[None]:
    """So many files may be opened besides those that are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_buckets_need_few_open_files(tmp_path: Path) -> None:
    widths = [1_000] * 2_000
    ranks = some_ranks(len(widths))
    rows = rows_of(tmp_path, widths)
    with few_open_files(20):
        buckets = reorder._deal(rows, ranks, tmp_path, 2_000)
        assert len(buckets) > 300
        batches = [batch for bucket in buckets for batch in reorder._sorted_bucket(bucket)]
    assert_in_rank_order(batches, ranks, widths)


def test_the_width_of_a_row_is_the_bytes_of_its_values() -> None:
    batch = pa.record_batch(
        {
            "a": pa.array(["", "four", None]),
            "b": pa.array([b"1", b"22", b""]),
            "c": pa.array([1, None, 3], pa.int16()),
            "d": pa.array([True, False, None]),
            "e": pa.array([None, None, None], pa.decimal128(10, 2)),
        }
    )
    besides = 8 + 8 + 2 + 1 + 16  # a text has an offset too, as if it had 64 bits
    assert row_widths(batch).tolist() == [besides + 1, besides + 6, besides]
