"""Two lookups over a Parquet stream (a string key kept, an integer key parked) agree with a pandas merge."""

from __future__ import annotations

import io
import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from freshet.streaming.enrich import EnrichOptions, enrich
from tests.integration.loads import SmallLoad, die_at, master_table

ORDERS = """
    load: orders
    description: Orders with their shop and their article
    stream:
      source: files
      path: stream/orders
      format: parquet
      columns:
        order_id: string
        shop: int
        article: string
        amount: decimal(12,2)
        placed_on: date
        note: string
        placed_at: timestamp
      event_id: order_id
      event_time: placed_at
      max_files_per_batch: 1
    lookups:
      - name: shop
        table: shops
        key: shop_id
        stream_key: shop
        add: {region: region, opened: opened_on}
        unmatched: park
        memory: 1MB
      - name: article
        table: articles
        key: code
        stream_key: article
        add: [brand, price, launched]
        unmatched: keep
        memory: 1MB
    derive: {rebate: price - amount}
    facts:
      table: order_facts
      columns: [order_id, region, opened, article, brand, price, launched, amount, rebate,
                placed_on, note, placed_at]
"""

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
SHOPS = [
    (number, None if number % 7 == 0 else f"region-{number % 5}", date(2000, 1, 1) + timedelta(number))
    for number in range(0, 300, 2)
]
ARTICLES = [
    (
        f"art-ü-{number}",
        None if number % 11 == 0 else f"brand {number % 13}",
        None if number % 6 == 0 else Decimal(number * 7) / 100,
        None if number % 4 == 0 else date(2010, 1, 1) + timedelta(number),
    )
    for number in range(500)
]


@pytest.fixture
def orders(freshet_home: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLoad:
    monkeypatch.setenv("FRESHET_LOADS", str(freshet_home / "definitions"))
    load = SmallLoad("orders", ORDERS)
    master_table(
        "shops (shop_id int primary key, region varchar(20), opened_on date)",
        [(key, region, str(opened)) for key, region, opened in SHOPS],
    )
    master_table(
        "articles (code varchar(20) primary key, brand varchar(20), price decimal(10,2), launched date)",
        [
            (code, brand, str(price) if price is not None else None, str(launched) if launched else None)
            for code, brand, price, launched in ARTICLES
        ],
    )
    return load


def stream(file: int, rows: int = 2000) -> pa.Table:
    rng = np.random.default_rng(file)
    articles = rng.integers(0, 700, rows)  # the last 200 are not in the master
    return pa.table(
        {
            "order_id": pa.array([f"{file}-{row}" for row in range(rows)]),
            "shop": pa.array(rng.integers(0, 310, rows), pa.int32(), mask=rng.random(rows) < 0.02),
            "article": pa.array([f"art-ü-{number}" for number in articles], mask=rng.random(rows) < 0.02),
            "amount": pa.array(
                [Decimal(int(n)) / 100 for n in rng.integers(0, 9999, rows)], pa.decimal128(12, 2)
            ),
            "placed_on": pa.array([date(2026, 1, 1) + timedelta(int(n)) for n in rng.integers(0, 90, rows)]),
            "note": pa.array(
                [None if n < 5 else f"note {n}" for n in rng.integers(0, 10, rows)], pa.string()
            ),
            "placed_at": pa.array(
                [MIDNIGHT + timedelta(seconds=int(n)) for n in rng.integers(0, 9999, rows)],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )


def as_bytes(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def test_the_loaded_facts_and_parked_rows_are_those_of_a_pandas_merge(
    spark: SparkSession, orders: SmallLoad
) -> None:
    inputs = [stream(file) for file in range(3)]
    for table in inputs:
        orders.feed(as_bytes(table), "parquet")
    orders.publish()
    result = orders.run(spark)

    frame = pa.concat_tables(inputs).to_pandas(types_mapper=None, date_as_object=True)
    shops = pd.DataFrame(SHOPS, columns=["shop_id", "region", "opened"])
    articles = pd.DataFrame(ARTICLES, columns=["code", "brand", "price", "launched"])
    null_shop = frame[frame["shop"].isna()]
    null_article = frame[frame["shop"].isin(shops["shop_id"]) & frame["article"].isna()]
    unmatched = frame[frame["shop"].notna() & ~frame["shop"].isin(shops["shop_id"])]
    sound = frame[frame["shop"].isin(shops["shop_id"]) & frame["article"].notna()]
    merged = sound.merge(shops, left_on="shop", right_on="shop_id").merge(
        articles, left_on="article", right_on="code", how="left"
    )
    merged["rebate"] = merged["price"] - merged["amount"]

    facts = orders.facts()
    columns = [name for name in facts.column_names if not name.startswith("_")]
    assert rows_of(facts.select(columns).to_pandas(date_as_object=True)) == rows_of(merged[columns])
    parked = orders.parked().to_pandas()
    assert parked.groupby(["reason", "lookup"]).size().to_dict() == {
        ("null_key", "shop"): len(null_shop),
        ("null_key", "article"): len(null_article),
        ("unmatched", "shop"): len(unmatched),
    }
    assert set(parked[parked["reason"] == "unmatched"]["key"]) == set(
        unmatched["shop"].astype(int).astype(str)
    )
    assert (result.batches, result.rows_in, result.facts) == (3, 6000, len(merged))
    assert all(batch["balanced"] for batch in orders.batches())


def test_a_damaged_parquet_file_is_parked_whole_and_the_others_are_loaded(
    spark: SparkSession, orders: SmallLoad
) -> None:
    good = stream(1, rows=50)
    orders.feed(as_bytes(good), "parquet")
    orders.feed(as_bytes(good)[:-100], "parquet")
    wrong = good.set_column(1, "Shop", pa.array([f"s{n}" for n in range(50)]))
    orders.feed(as_bytes(wrong), "parquet")
    for seed, name in enumerate(("00?.parquet", "00[3].parquet"), start=2):  # no patterns, but names
        file = orders.feed(as_bytes(stream(seed, rows=50), use_deprecated_int96_timestamps=True), "parquet")
        file.rename(file.with_name(name))
    orders.publish()
    orders.run(spark, max_files=10)
    (batch,) = orders.batches()
    assert batch["rows_in"] == 152 and batch["balanced"]
    files = [row for row in orders.parked().to_pylist() if row["reason"] == "malformed_file"]
    assert sorted(Path(row["source_file"]).name for row in files) == ["001.parquet", "002.parquet"]
    assert any("'Shop' is string, not int" in row["detail"] for row in files)
    assert None not in orders.facts()["placed_at"].to_pylist()


def test_a_parquet_file_that_breaks_while_it_is_read_is_parked_whole(
    spark: SparkSession, orders: SmallLoad
) -> None:
    """Its footer is sound, so that it shows only once the batch is under way."""
    good = stream(1, rows=2000)
    orders.feed(as_bytes(good), "parquet")
    broken = bytearray(as_bytes(stream(2, rows=2000)))
    broken[4:3000] = b"\xff" * 2996
    orders.feed(bytes(broken), "parquet")
    orders.publish()
    with pytest.raises(RuntimeError, match="as if killed"):
        enrich(
            orders.definition,
            EnrichOptions(until_idle=True, max_files=10),
            spark=spark,
            listener=die_at("parked"),
        )
    # Mended before the retry, it stays out all the same: the facts were written without it.
    (orders.stream / "001.parquet").write_bytes(as_bytes(stream(2, rows=2000)))
    os.utime(orders.stream / "001.parquet", (1_700_000_001, 1_700_000_001))
    orders.run(spark, max_files=10)
    (batch,) = orders.batches()
    assert batch["rows_in"] == 2001 and batch["balanced"]
    (parked,) = [row for row in orders.parked().to_pylist() if row["reason"] == "malformed_file"]
    assert Path(parked["source_file"]).name == "001.parquet"


def rows_of(frame: pd.DataFrame) -> list[tuple[object, ...]]:
    """The rows in an order of their own, with every kind of null alike."""
    return sorted(
        (tuple(None if pd.isna(value) else value for value in row) for row in frame.itertuples(index=False)),
        key=lambda row: str(row[0]),
    )
