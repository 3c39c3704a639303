"""Provisioning makes the demo once and leaves everybody else's tables alone."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.config import read_definition
from freshet.errors import FreshetError, MasterError
from freshet.home import PROJECT, embedded_database
from freshet.master.bulk import bulk_load
from freshet.master.connections import engine_for
from freshet.master.database import read_batches
from freshet.master.provision import demo_planted, demo_size, demo_stream, is_demo, provision
from freshet.workload.sales import SalesSize, products
from tests.masterdata import load_with, sqlite_table

SMALL = SalesSize().scaled(sales=2000, products=300)
DEMO = read_definition(PROJECT / "include" / "loads" / "sales.yaml")
COLUMNS = ["product_id", "surrogate_key", "supplier_id", "sale_price", "name"]


def table() -> pa.Table:
    return pa.Table.from_batches(read_batches(engine_for(None), "products", COLUMNS, "product_id"))


def stream() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in demo_stream().iterdir()}


def test_the_demo_gets_its_table_and_its_stream(home: Path) -> None:
    told = provision(DEMO, size=SMALL)
    assert table().equals(products(SMALL))
    assert len(stream()) == SMALL.files
    assert sum(len(lines.splitlines()) for lines in stream().values()) == 2000
    assert json.loads(demo_planted().read_text()) == SMALL.planted.as_dict()
    assert "300 products" in told[0]
    assert "2,000 sales" in told[1]
    assert sorted(path.name for path in (home / "demo").iterdir()) == ["sales", "sales.planted.json"]


def test_provisioning_again_changes_nothing() -> None:
    provision(DEMO, size=SMALL)
    before = stream()
    with sqlite3.connect(embedded_database()) as database:
        database.execute("insert into products values (1, 999999, 5, 1.5, 'a late one')")
    database.close()
    told = provision(DEMO, size=SMALL)
    assert stream() == before
    assert len(table()) == 301
    assert all("already" in sentence for sentence in told[:2])


def test_a_table_that_was_half_loaded_is_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("freshet.master.provision.bulk_load", fail)
        with pytest.raises(KeyboardInterrupt):
            provision(DEMO, size=SMALL)
    provision(DEMO, size=SMALL)
    assert table().equals(products(SMALL))


def test_a_stream_that_was_half_written_is_not_seen(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(step: str, done: int, total: int | None) -> None:
        if step == "writing sales" and done > 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        provision(DEMO, interrupted, size=SMALL)
    assert not demo_stream().exists()
    provision(DEMO, size=SMALL)
    assert len(stream()) == SMALL.files


def test_a_folder_that_waits_for_the_stream_may_exist_already() -> None:
    demo_stream().mkdir(parents=True)
    provision(DEMO, size=SMALL)
    assert len(stream()) == SMALL.files


def test_the_same_moment_gives_the_same_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for name in ("one", "two"):
        monkeypatch.setenv("FRESHET_HOME", str(tmp_path / name))
        provision(DEMO, size=SMALL, now=datetime(2026, 1, 1, tzinfo=UTC))
        made.append((stream(), table()))
    assert made[0] == made[1]


def test_the_size_can_be_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert demo_size() == SalesSize()
    monkeypatch.setenv("FRESHET_DEMO_SALES", "5000")
    monkeypatch.setenv("FRESHET_DEMO_PRODUCTS", "700")
    assert (demo_size().sales, demo_size().products) == (5000, 700)


@pytest.mark.parametrize("variable", ["FRESHET_DEMO_SALES", "FRESHET_DEMO_PRODUCTS"])
@pytest.mark.parametrize("value", ["1e6", "1,000", "many", "-5", "0"])
def test_a_size_that_is_none_is_refused_with_variable_value_and_remedy(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(FreshetError, match=f"{variable} is '{value}': write a whole number in digits, at"):
        provision(DEMO)


def test_the_smallest_demo_has_one_bad_record_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_DEMO_SALES", "4")
    monkeypatch.setenv("FRESHET_DEMO_PRODUCTS", "1")
    provision(DEMO)
    assert sum(len(lines.splitlines()) for lines in stream().values()) == 4
    assert set(json.loads(demo_planted().read_text()).values()) == {1}


def test_a_users_table_is_only_checked(home: Path) -> None:
    sqlite_table("CREATE TABLE items (id BIGINT, price DECIMAL(10,2))", [(1, 1)])
    load = load_with()
    assert not is_demo(load)
    (told,) = provision(load)
    assert "Table items" in told
    assert "lookup item needs" in told
    assert not (home / "demo").exists()


def test_a_users_table_without_the_columns_is_refused() -> None:
    sqlite_table("CREATE TABLE items (id BIGINT, prize DECIMAL(10,2))", [])
    with pytest.raises(MasterError, match="has no column price; it has id, prize"):
        provision(load_with())


def test_a_users_products_are_never_touched() -> None:
    sqlite_table("CREATE TABLE products (product_id BIGINT, mine TEXT)", [(1, "x")])
    with pytest.raises(MasterError, match="has no column surrogate_key"):
        provision(DEMO, size=SMALL)
    with sqlite3.connect(embedded_database()) as database:
        assert database.execute("select * from products").fetchall() == [(1, "x")]
    database.close()


def test_bulk_load_adds_all_rows_or_none() -> None:
    sqlite_table("CREATE TABLE t (id BIGINT PRIMARY KEY, v DECIMAL(10,2))", [])
    rows = pa.table({"id": [1, 2, 2], "v": pa.array([Decimal("1.50"), None, None], pa.decimal128(10, 2))})
    with pytest.raises(MasterError, match=r"filling table 't' failed.*UNIQUE"):
        bulk_load(engine_for(None), "t", rows)
    assert list(read_batches(engine_for(None), "t", ["id"])) == []
    bulk_load(engine_for(None), "t", rows.slice(0, 2))
    (batch,) = read_batches(engine_for(None), "t", ["id", "v"])
    assert pa.Table.from_batches([batch]).equals(rows.slice(0, 2))
