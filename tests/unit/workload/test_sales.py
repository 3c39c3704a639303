"""The demo's stream holds exactly the bad records it says it holds."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from freshet.workload.sales import Planted, SalesSize, products, sales_files

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
SIZE = SalesSize(
    sales=20_000,
    products=500,
    files=7,
    planted=Planted(unmatched=310, malformed=41, wrong_type=59, null_key=83),
)


def lines(size: SalesSize = SIZE) -> list[str]:
    return [line for _, contents in sales_files(size, NOW) for line in bytes(contents).decode().splitlines()]


def fate(line: str, known: set[int]) -> str:
    """What a reader makes of a record, told without the generator's help."""
    try:
        record = json.loads(line)
    except ValueError:
        return "malformed"
    try:
        moment = datetime.fromisoformat(record["sold_at"])
    except ValueError:
        return "wrong_type"
    if not isinstance(record["quantity"], int) or not isinstance(record["product_id"], int | None):
        return "wrong_type"
    if record["product_id"] is None:
        return "null_key"
    assert record["sale_id"]
    assert 1 <= record["quantity"] <= 20
    assert moment.tzinfo is not None
    return "good" if record["product_id"] in known else "unmatched"


def test_bad_records_are_as_many_as_planted() -> None:
    known = set(products(SIZE)["product_id"].to_pylist())
    counted = Counter(fate(line, known) for line in lines())
    good = counted.pop("good")
    assert dict(counted) == SIZE.planted.as_dict()
    assert good == SIZE.sales - sum(SIZE.planted.as_dict().values())


def test_every_sale_has_its_own_id() -> None:
    ids = [line.split('"')[3] for line in lines()]
    assert len(set(ids)) == len(ids) == SIZE.sales


def test_sales_end_now_and_began_half_an_hour_ago() -> None:
    readable = [json.loads(line) for line in lines() if line.endswith('Z"}')]
    times = [datetime.fromisoformat(record["sold_at"]) for record in readable]
    assert times == sorted(times)
    assert NOW - timedelta(seconds=1) < times[-1] <= NOW
    assert timedelta(minutes=29) < times[-1] - times[0] <= timedelta(minutes=30)


def test_every_file_holds_some_of_the_stream() -> None:
    files = list(sales_files(SIZE, NOW))
    assert [name for name, _ in files] == [f"sales-{n:05d}.json" for n in range(1, 8)]
    assert all(bytes(contents).endswith(b"\n") for _, contents in files)
    assert {len(bytes(contents).splitlines()) for _, contents in files} == {2857, 2858}


def test_products_have_unique_keys_and_sensible_values() -> None:
    made = products(SIZE).to_pandas()
    assert made["product_id"].is_unique
    assert made["surrogate_key"].is_unique
    assert made["supplier_id"].between(1, 5000).all()
    assert made["sale_price"].min() > 0
    assert not made.isna().any().any()


def test_few_products_get_most_of_the_sales() -> None:
    sold = Counter(line.split('"product_id":')[1].split(",")[0] for line in lines())
    hot = sum(count for _, count in sold.most_common(50))
    assert hot > 0.6 * SIZE.sales


def test_a_scaled_size_keeps_the_share_of_bad_records() -> None:
    small = SalesSize().scaled(sales=10_000, products=100)
    assert small.planted == Planted(unmatched=25, malformed=4, wrong_type=3, null_key=8)
    assert min(SalesSize().scaled(sales=100, products=5).planted.as_dict().values()) == 1


def test_more_bad_records_than_sales_are_refused() -> None:
    with pytest.raises(ValueError, match="4000 bad records cannot be planted in 10 sales"):
        SalesSize(sales=10)
