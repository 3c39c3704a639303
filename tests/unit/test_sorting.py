"""Sorting publishes what changed, and a new order only where it pays."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from freshet.config import Definition
from freshet.home import embedded_database
from freshet.joins.registry import join_type
from freshet.master.contents import ContentsDigest
from freshet.master.snapshot import open_snapshot, snapshot_path
from freshet.sorting import Sorted, sort, sort_lookup
from tests.masterdata import LOAD, load_with, lookup_of, snapshot_rows, sqlite_table, write_counts

ITEMS = "CREATE TABLE items (id BIGINT PRIMARY KEY, price DECIMAL(10,2), name VARCHAR(40))"
ROWS = 60_000
ASKED = 1000
"""How often each of the favourites is asked for; all other keys are asked for once."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path))
    return tmp_path


def small_memory(**changes: object) -> Definition:
    """A load whose hot part is much smaller than its master table."""
    load = load_with(**changes)  # type: ignore[arg-type]
    (lookup,) = load.lookups
    return load.model_copy(update={"lookups": (lookup.model_copy(update={"memory": 1 << 20}),)})


def items(price: int = 1) -> None:
    sqlite_table(ITEMS, [(key, price, f"item {key}") for key in range(ROWS)])


def favourites(file: Path, first: int) -> Path:
    """Counts with a hundred favourites from a key on."""
    counts = dict.fromkeys(range(ROWS), 1) | dict.fromkeys(range(first, first + 100), ASKED)
    return write_counts(file, counts)


def sort_by(counts: Path | None, min_gain: float, load: Definition | None = None) -> Sorted:
    load = load or small_memory()
    return sort_lookup(load, lookup_of(load), counts, min_gain)


def test_the_first_snapshot_is_published_whatever_it_gains(home: Path) -> None:
    items()
    assert sort_by(None, min_gain=1.0) == Sorted("item", 1, True, "it is the first")


def test_a_shifted_pattern_is_published_if_it_gains_enough(home: Path) -> None:
    items()
    sort_by(favourites(home / "before", 0), min_gain=0)
    shifted = favourites(home / "after", ROWS - 100)
    kept = sort_by(shifted, min_gain=0.9)
    assert (kept.version, kept.published) == (1, False)
    published = sort_by(shifted, min_gain=0.3)
    assert (published.version, published.published) == (2, True)
    assert {row[0] for row in snapshot_rows(2, ["id"])[:100]} == set(range(ROWS - 100, ROWS))
    again = sort_by(shifted, min_gain=0.001)
    assert (again.version, again.published) == (2, False)


def test_the_shares_are_those_of_the_rows_the_join_keeps_in_memory(home: Path) -> None:
    items()
    sort_by(favourites(home / "before", 0), min_gain=0)
    load = small_memory()
    lookup = lookup_of(load)
    store = open_snapshot(snapshot_path(LOAD, "item", 1), ["price"])
    hot = join_type(lookup.algorithm).hot_rows(lookup.memory, store, {})
    assert 100 < hot < ROWS - 100
    asked = np.ones(ROWS)
    asked[-100:] = ASKED
    now = asked[np.array([row[0] for row in snapshot_rows(1, ["id"])])][:hot].sum() / asked.sum()
    possible = np.sort(asked)[::-1][:hot].sum() / asked.sum()
    kept = sort_by(favourites(home / "after", ROWS - 100), min_gain=1.0)
    assert f"serves {now:.1%} of the stream and could serve {possible:.1%}" in kept.reason


def test_changed_rows_are_published_whatever_they_gain(home: Path) -> None:
    items()
    counts = favourites(home / "counts", 0)
    sort_by(counts, min_gain=0)
    items(price=2)
    done = sort_by(counts, min_gain=1.0)
    assert done == Sorted("item", 2, True, "the master rows have changed")


def test_a_lookup_with_another_column_gets_a_snapshot_that_has_it(home: Path) -> None:
    items()
    sort_by(None, min_gain=0)
    done = sort_by(None, min_gain=1.0, load=small_memory(add=["price", "name"]))
    assert (done.version, done.published) == (2, True)
    assert "other columns" in done.reason


def test_a_column_of_another_type_is_published_though_its_stored_numbers_are_the_same(home: Path) -> None:
    sqlite_table("CREATE TABLE items (id BIGINT PRIMARY KEY, price DECIMAL(10,0))", [(1, 1250)])
    sort_by(None, min_gain=0)
    sqlite_table(ITEMS.replace(", name VARCHAR(40)", ""), [(1, 12.5)])
    done = sort_by(None, min_gain=1.0)
    assert done == Sorted("item", 2, True, "column price is now decimal128(10, 2) and was decimal128(10, 0)")
    assert snapshot_rows(2, ["price"]) == [(Decimal("12.50"),)]


@pytest.mark.parametrize("changed", [{"table": "goods"}, {"key": "code"}])
def test_equal_rows_of_another_table_or_key_are_published(home: Path, changed: dict[str, str]) -> None:
    rows = [(number, number, 1) for number in range(10)]
    for table in ("items", "goods"):
        ddl = f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, code BIGINT UNIQUE, price BIGINT)"
        sqlite_table(ddl, rows)
    first = {"add": ["code", "id", "price"]}
    sort_by(None, min_gain=0, load=small_memory(**first))
    done = sort_by(None, min_gain=1.0, load=small_memory(**{**first, **changed}))
    assert done == Sorted("item", 2, True, f"the lookup has another {next(iter(changed))} than before")


def test_equal_rows_of_another_connection_are_published(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items()
    sort_by(None, min_gain=0)
    monkeypatch.setenv("FRESHET_CONN_SHOP", f"sqlite:///{embedded_database()}")
    done = sort_by(None, min_gain=1.0, load=small_memory(connection="shop"))
    assert done == Sorted("item", 2, True, "the lookup has another connection than before")
    again = sort_by(None, min_gain=1.0, load=small_memory(connection="shop"))
    assert (again.version, again.published) == (2, False)


def test_a_damaged_snapshot_is_replaced(home: Path) -> None:
    items()
    sort_by(None, min_gain=0)
    (snapshot_path(LOAD, "item", 1) / "manifest.json").write_text("{}")
    done = sort_by(None, min_gain=1.0)
    assert (done.version, done.published) == (2, True)


def test_without_a_least_gain_every_sort_publishes(home: Path) -> None:
    items()
    assert [sort(small_memory())[0].version for _ in range(3)] == [1, 2, 3]


def rows_of_every_type() -> pa.Table:
    moment = datetime(2026, 11, 18, 12, tzinfo=UTC)
    return pa.table(
        {
            "id": pa.array([1, 2, 3]),
            "text": pa.array(["a", None, "ü"]),
            "flag": pa.array([True, False, None]),
            "tiny": pa.array([1, None, 3], pa.int8()),
            "ratio": pa.array([0.5, None, 2.5]),
            "single": pa.array([0.5, None, 2.5], pa.float32()),
            "money": pa.array([Decimal("1.10"), None, Decimal("-3.00")], pa.decimal128(20, 2)),
            "day": pa.array([date(2026, 1, 1), None, date(1900, 1, 1)]),
            "moment": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
            "local": pa.array([moment.replace(tzinfo=None), None, None], pa.timestamp("us")),
            "raw": pa.array([b"\x00", None, b""]),
            "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
            "struct": pa.array([{"a": 1}, None, {"a": None}]),
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        }
    )


def digest(rows: pa.Table, chunk: int = 2) -> str:
    contents = ContentsDigest(duckdb.connect())
    for batch in rows.to_batches(max_chunksize=chunk):
        contents.add(batch)
    return contents.digest()


def test_the_digest_of_rows_does_not_depend_on_their_order(home: Path) -> None:
    rows = rows_of_every_type()
    assert digest(rows) == digest(rows.take(pa.array([2, 0, 1])), chunk=1)


@pytest.mark.parametrize("column", rows_of_every_type().column_names)
def test_the_digest_of_rows_sees_a_change_in_any_column(column: str) -> None:
    rows = rows_of_every_type()
    first = rows.column(column).take(pa.array([0, 0, 2]))
    changed = rows.set_column(rows.column_names.index(column), column, first)
    assert digest(rows) != digest(changed)


def test_swapped_values_are_a_change() -> None:
    rows = pa.table({"id": [1, 2], "price": [10, 20]})
    swapped = pa.table({"id": [1, 2], "price": [20, 10]})
    assert digest(rows) != digest(swapped)
