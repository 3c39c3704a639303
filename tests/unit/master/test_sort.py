"""Sorting ranks the master's rows by how often they are asked for, whatever their number."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from freshet.errors import MasterError
from freshet.home import embedded_database, freshet_home
from freshet.master.manifest import read_manifest
from freshet.master.snapshot import latest, open_snapshot, snapshot_path
from freshet.outofcore import LEAST_MEMORY
from freshet.sorting import sort
from tests.masterdata import LOAD, load_with, snapshot_rows, sort_master, sqlite_table, write_counts

ITEMS = "CREATE TABLE items (id BIGINT PRIMARY KEY, price DECIMAL(10,2), name VARCHAR(40))"


def test_rows_stand_by_falling_count_and_then_by_key(tmp_path: Path) -> None:
    sqlite_table(ITEMS, [(i, i, f"item {i}") for i in range(1, 7)])
    counts = write_counts(tmp_path / "counts.parquet", {5: 9, 2: 4, 3: 4, 77: 100})
    load = load_with(add=["price", "name"])
    version = sort_master(load, counts)
    assert [row[0] for row in snapshot_rows(version, ["id"])] == [5, 2, 3, 1, 4, 6]
    store = open_snapshot(snapshot_path(LOAD, "item", version), ["id"])
    assert store.counts().tolist() == [9, 4, 4, 0, 0, 0]


def test_without_counts_rows_stand_by_key() -> None:
    sqlite_table(ITEMS, [(i, None, None) for i in (3, 1, 2)])
    assert [done.version for done in sort(load_with())] == [1]
    assert snapshot_rows(1, ["id", "price"]) == [(1, None), (2, None), (3, None)]
    assert read_manifest(snapshot_path(LOAD, "item", 1)).ranked_by == "nothing"


def test_the_same_rows_and_counts_always_rank_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    sqlite_table(ITEMS, [(i, i, "x") for i in random.permutation(5000).tolist()])
    counts = write_counts(tmp_path / "counts.parquet", {int(i): int(i) % 5 for i in range(0, 5000, 3)})
    load = load_with()
    first, second = (sort_master(load, counts) for _ in range(2))
    paths = [snapshot_path(LOAD, "item", version) / "pages.arrow" for version in (first, second)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_large_table_is_sorted_in_little_memory_as_polars_sorts_it(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    rows = 120_000
    keys = random.permutation(rows * 4)[:rows]
    text = "a rather long description, so that the table is larger than the memory: " * 20
    with sqlite3.connect(embedded_database()) as database:
        database.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, price DECIMAL(10,2), name TEXT)")
        database.executemany(
            "insert into items values (?, ?, ?)",
            ((int(k), int(k) % 1000 / 100, f"{k}{text}") for k in keys),
        )
    database.close()
    assert embedded_database().stat().st_size > 1.2 * LEAST_MEMORY
    counted = random.choice(keys, rows // 2, replace=False)
    counts = dict(zip(counted.tolist(), (counted % 97).tolist(), strict=True))
    load = load_with(add=["price", "name"])
    version = sort_master(load, write_counts(tmp_path / "c.parquet", counts), LEAST_MEMORY)
    expected = (
        pl.DataFrame({"id": keys})
        .join(pl.DataFrame({"id": counted, "count": counted % 97}), on="id", how="left")
        .with_columns(pl.col("count").fill_null(0))
        .sort(["count", "id"], descending=[True, False])
    )
    store = open_snapshot(snapshot_path(LOAD, "item", version), ["id", "price", "name"], full=True)
    ids = np.concatenate([store.page(n).column("id").to_numpy() for n in range(store.pages)])
    assert np.array_equal(ids, expected["id"].to_numpy())
    assert np.array_equal(store.counts(), expected["count"].to_numpy())
    assert np.array_equal(store.locate(pa.array(ids)), np.arange(rows))
    some = store.page(store.pages - 1).to_pylist()
    assert all(row["name"] == f"{row['id']}{text}" for row in some)
    assert list((freshet_home() / "tmp").iterdir()) == []


def test_a_column_of_the_master_may_have_any_name() -> None:
    sqlite_table(
        "CREATE TABLE items (id BIGINT, _rank TEXT, rank INTEGER, position TEXT)",
        [(2, "b", 20, "q"), (1, "a", 10, "p")],
    )
    sort(load_with(add={"place": "_rank", "rank": "rank", "position": "position"}))
    assert snapshot_rows(1, ["id", "_rank", "rank", "position"]) == [(1, "a", 10, "p"), (2, "b", 20, "q")]


def test_rows_that_were_read_are_not_kept_in_memory() -> None:
    rows = 40_000
    sqlite_table(ITEMS, [(i, i, "x" * 1_000) for i in range(rows)])
    held = []
    before = pa.total_allocated_bytes()

    def look(step: str, done: int, total: int | None) -> None:
        if step == "reading items":
            held.append(pa.total_allocated_bytes() - before)

    sort(load_with(add=["name"]), progress=look)
    assert max(held) < rows * 1_000 / 2


def test_wide_rows_that_stand_together_make_no_large_page(tmp_path: Path) -> None:
    wide = set(range(3000, 3100))
    sqlite_table(ITEMS, [(i, None, "w" * 50_000 if i in wide else "n") for i in range(20_000)])
    counts = write_counts(tmp_path / "counts.parquet", dict.fromkeys(wide, 5))
    load = load_with(add=["name"])
    store = open_snapshot(snapshot_path(LOAD, "item", sort_master(load, counts)), ["id", "name"])
    assert store.page_rows == 16
    assert max(store.page_bytes(number) for number in range(store.pages)) < 1 << 20


def test_string_keys_rank_by_counts_of_strings(tmp_path: Path) -> None:
    sqlite_table("CREATE TABLE items (id TEXT, price DECIMAL(10,2))", [("b", 1), ("ä", 2), ("", 3), ("a", 4)])
    load = load_with(stream={"columns": {"order_id": "string", "id": "string"}})
    version = sort_master(load, write_counts(tmp_path / "c.parquet", {"ä": 2, "b": 1}))
    assert [row[0] for row in snapshot_rows(version, ["id"])] == ["ä", "b", "", "a"]


def test_counts_that_came_as_text_rank_integer_keys(tmp_path: Path) -> None:
    sqlite_table(ITEMS, [(i, i, "") for i in range(4)])
    counts = write_counts(tmp_path / "c.parquet", {"2": 5, "unknown": 9, "1": 3, "3.7x": 1})
    load = load_with()
    version = sort_master(load, counts)
    assert [row[0] for row in snapshot_rows(version, ["id"])] == [2, 1, 0, 3]


def test_every_type_and_null_comes_through() -> None:
    sqlite_table(
        "CREATE TABLE items (id INTEGER, a TINYINT, b SMALLINT, c MEDIUMINT, d BIGINT, e FLOAT, f BOOLEAN, "
        "g TEXT, h BLOB, i DATE, j DATETIME, k TIMESTAMP, l DECIMAL(38,6), m TINYINT(1), n JSON)",
        [
            (1, -128, -32768, 8, 2**63 - 1, 0.1, 1, "é", b"\x00\xff", "2026-02-28", "2026-02-28 01:02:03.5",
             "2026-02-28T03:02:03+02:00", "12345678.123456", 0, '{"a": 1}'),
            (2, *[None] * 14),
        ],
    )  # fmt: skip
    columns = [*"abcdefghijklmn"]
    load = load_with(add=columns)
    sort(load)
    assert snapshot_rows(1, columns) == [
        (-128, -32768, 8, 2**63 - 1, 0.1, True, "é", b"\x00\xff", date(2026, 2, 28),
         datetime(2026, 2, 28, 1, 2, 3, 500_000),  # noqa: DTZ001
         datetime(2026, 2, 28, 1, 2, 3, tzinfo=UTC), Decimal("12345678.123456"), False, '{"a": 1}'),
        (None,) * 14,
    ]  # fmt: skip


def test_duplicate_keys_are_refused_with_some_of_them_and_their_number() -> None:
    rows = [(i % 50, i, "") for i in range(100)] + [(7, 0, ""), (1000, 0, "")]
    sqlite_table("CREATE TABLE items (id BIGINT, price DECIMAL(10,2), name TEXT)", rows)
    with pytest.raises(
        MasterError, match=r"50 keys of table 'items' .* not unique in id, .* 7 \(3 times\), 0 \(2 times\)"
    ):
        sort(load_with())
    assert latest(LOAD, "item") is None


def test_null_keys_are_refused_with_the_rows_that_have_them() -> None:
    sqlite_table(
        "CREATE TABLE items (id BIGINT, price DECIMAL(10,2), name TEXT)",
        [(1, 1, "one"), (None, 2.5, "lost"), (None, 3, "gone")],
    )
    with pytest.raises(MasterError, match=r"2 rows of table 'items' .* have no id, .*name = 'lost'"):
        sort(load_with(add=["price", "name"]))


def test_a_value_of_another_type_is_refused_with_table_column_value_and_key() -> None:
    sqlite_table(ITEMS, [(i, "cheap" if i == 4321 else 1, "") for i in range(5000)])
    with pytest.raises(
        MasterError, match=r"table 'items': column 'price' holds 'cheap' in the row with id = 4321"
    ):
        sort(load_with())
    assert not list((freshet_home() / "tmp").iterdir())


def test_too_little_memory_says_how_much_is_needed() -> None:
    sqlite_table(ITEMS, [])
    load = load_with()
    with pytest.raises(
        MasterError,
        match=r"cannot be sorted: 1,000 bytes of memory are too few: give it at least 134",
    ):
        sort_master(load, None, 1000)


def test_the_manifest_tells_where_the_rows_came_from() -> None:
    sqlite_table(ITEMS, [(1, 1, "")])
    before = datetime.now(UTC)
    sort(load_with())
    manifest = read_manifest(snapshot_path(LOAD, "item", 1))
    assert manifest.watermark["table"] == "items"
    assert before <= datetime.fromisoformat(manifest.watermark["read_at"]) <= datetime.now(UTC)
    assert (manifest.key, manifest.key_type) == ("id", "int64")
    assert manifest.schema == (("id", "int64"), ("price", "decimal128(10, 2)"))


def test_progress_is_told_while_it_works() -> None:
    sqlite_table(ITEMS, [(i, i, "") for i in range(3000)])
    steps: list[tuple[str, int, int | None]] = []
    sort(load_with(), progress=lambda *step: steps.append(step))
    assert ("reading items", 3000, None) in steps
    assert steps[-1] == ("sorting item", 3000, 3000)
