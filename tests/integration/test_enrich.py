"""The enrich run: bad input, policies, definitions that change, snapshots that come while it runs."""

from __future__ import annotations

import json
import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.delta import read_rows
from freshet.errors import BatchError, DefinitionError, FreshetError, LoadStateError, SnapshotError
from freshet.home import LoadHome
from freshet.streaming.enrich import EnrichOptions, enrich
from freshet.streaming.plan import read_plan, replan
from tests.integration.loads import SmallLoad, master_table

SALES = """
    load: small
    description: A small load
    stream:
      source: files
      path: stream/small
      format: {format}
      columns: {{sale_id: string, product_id: bigint, quantity: int, sold_at: timestamp}}
      event_id: sale_id
      event_time: sold_at
      options: {options}
      max_files_per_batch: 1
      trigger_interval: 100ms
    lookups:
      - name: product
        table: products
        key: product_id
        add: [surrogate_key, price]
        memory: {memory}
        unmatched: {unmatched}
    derive: {derive}
    facts: {{table: facts, columns: {columns}}}
"""
COLUMNS = "[sale_id, product_id, surrogate_key, price, quantity, total, sold_at]"


def yaml(**changes: str) -> str:
    given = {
        "format": "json",
        "options": "{}",
        "unmatched": "park",
        "memory": "1MB",
        "derive": "{total: quantity * price}",
        "columns": COLUMNS,
        **changes,
    }
    return SALES.format(**given)


def products(keys: range | list[int], cents: int = 0) -> None:
    master_table(
        "products (product_id bigint primary key, surrogate_key bigint, price decimal(10,2))",
        [(key, 1000 + key, f"{key}.{cents:02d}") for key in keys],
    )


def sale(number: int, product: int | None, quantity: int = 2) -> str:
    return json.dumps(
        {
            "sale_id": f"s{number}",
            "product_id": product,
            "quantity": quantity,
            "sold_at": "2026-01-01T10:00:00Z",
        }
    )


@pytest.fixture
def small(freshet_home: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLoad:
    monkeypatch.setenv("FRESHET_LOADS", str(freshet_home / "definitions"))
    monkeypatch.setenv("FRESHET_LEASE_SECONDS", "3")
    products(range(10))
    return SmallLoad("small", yaml())


def reasons(load: SmallLoad) -> dict[str, list[str]]:
    """The raw records of the parked rows by reason."""
    found: dict[str, list[str]] = {}
    for row in load.parked().to_pylist():
        found.setdefault(row["reason"], []).append(row["raw"])
    return {reason: sorted(raws) for reason, raws in found.items()}


def test_every_bad_record_is_parked_with_its_reason_and_raw_text(
    spark: SparkSession, small: SmallLoad
) -> None:
    malformed = ["{", "[1]", '"text"', "nonsense", sale(90, 1) + sale(91, 1), sale(92, 1) + " rest"]
    wrong_type = [
        '{"sale_id":"t1","product_id":"one","quantity":1}',
        '{"sale_id":"t2","product_id":1.5,"quantity":1}',
        '{"sale_id":"t3","product_id":1,"quantity":99999999999}',
        '{"sale_id":"t4","product_id":1,"quantity":1,"sold_at":"yesterday"}',
    ]
    null_key = [sale(80, None), '{"sale_id":"s81","quantity":1}']
    null_id = ['{"product_id":1,"quantity":1}', "{}"]
    unmatched = [sale(70, 99), sale(71, -1)]
    good = [sale(number, number % 10) for number in range(20)]
    small.feed("\n".join([*malformed, "", *wrong_type, "   ", *null_key, *null_id, *unmatched, *good]) + "\n")
    small.publish()
    small.run(spark)
    assert reasons(small) == {
        "malformed": sorted(malformed),
        "wrong_type": sorted(wrong_type),
        "null_key": sorted(null_key),
        "null_event_id": sorted(null_id),
        "unmatched": sorted(unmatched),
    }
    assert small.facts().num_rows == len(good)
    (batch,) = small.batches()
    assert batch["rows_in"] == 6 + 4 + 2 + 2 + 2 + 20 and batch["balanced"]
    details = {row["raw"]: row["detail"] for row in small.parked().to_pylist()}
    assert details[wrong_type[0]] == 'product_id: "one" is not bigint'
    ids = [row["id"] for row in small.parked().to_pylist()]
    assert len(set(ids)) == len(ids)


def test_a_record_that_is_not_utf8_is_parked(spark: SparkSession, small: SmallLoad) -> None:
    bad = b'{"sale_id":"caf\xe9","product_id":1,"quantity":1}\n'
    small.feed(bad + sale(1, 1).encode() + b"\n")
    small.publish()
    small.run(spark)
    assert reasons(small) == {"malformed": ['{"sale_id":"caf\\xe9","product_id":1,"quantity":1}']}
    assert small.facts().num_rows == 1


def test_csv_records_are_loaded_and_bad_ones_parked(spark: SparkSession, small: SmallLoad) -> None:
    small.define(yaml(format="csv", options="{header: true}"))
    header = "sale_id,product_id,quantity,sold_at\n"
    small.feed(header + 's1,1,2,2026-01-01T10:00:00Z\n"s,2",2,2,\ns3,x,2,\ns4,1\ns5,77,1,\n', "csv")
    small.feed("product_id,sale_id,quantity,sold_at\n1,s9,1,\n", "csv")
    small.publish()
    small.run(spark)
    assert sorted(small.facts()["sale_id"].to_pylist()) == ["s,2", "s1"]
    assert reasons(small) == {
        "wrong_type": ["s3,x,2,"],
        "malformed": ["s4,1"],
        "unmatched": ["s5,77,1,"],
        "malformed_file": [None],
    }
    assert all(batch["balanced"] for batch in small.batches())


def test_a_derived_expression_that_fails_parks_its_row(spark: SparkSession, small: SmallLoad) -> None:
    small.define(
        yaml(derive="{total: quantity * price, share: 10 / quantity, big: quantity + 2147483600}").replace(
            COLUMNS, "[sale_id, total, share, big]"
        )
    )
    small.feed("\n".join([sale(1, 1), sale(2, 1, quantity=0), sale(3, 1, quantity=100), sale(4, 2)]) + "\n")
    small.publish()
    small.run(spark)
    assert sorted(small.facts()["sale_id"].to_pylist()) == ["s1", "s4"]
    details = {row["raw"]: (row["reason"], row["detail"]) for row in small.parked().to_pylist()}
    assert details == {
        sale(2, 1, quantity=0): ("derive_failed", "share: 10 / quantity"),
        sale(3, 1, quantity=100): ("derive_failed", "big: quantity + 2147483600"),
    }


def test_keep_fills_in_defaults_and_fail_writes_nothing(spark: SparkSession, small: SmallLoad) -> None:
    small.define(yaml(unmatched="keep\n        defaults: {surrogate_key: -1}"))
    small.feed(sale(1, 1) + "\n" + sale(2, 99) + "\n")
    small.publish()
    small.run(spark)
    kept = {
        row["sale_id"]: (row["surrogate_key"], row["price"], row["total"])
        for row in small.facts().to_pylist()
    }
    assert kept == {"s1": (1001, Decimal("1.00"), Decimal("2.00")), "s2": (-1, None, None)}

    small.define(yaml(unmatched="fail"))
    small.feed(sale(3, 1) + "\n" + sale(4, 98) + "\n")
    with pytest.raises(BatchError, match="product: 98"):
        small.run(spark)
    assert small.facts().num_rows == 2 and len(small.batches()) == 1
    with pytest.raises(BatchError):
        small.run(spark)

    products([*range(10), 98])
    small.publish()
    with pytest.raises(BatchError):
        small.run(spark)  # the batch keeps its plan, and with it the old snapshot
    assert replan(small.definition) == 1
    small.run(spark)
    assert small.facts().num_rows == 4


def test_replan_refuses_a_batch_that_is_partly_written(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n" + sale(2, 99) + "\n")
    small.publish()

    def die_after_facts(step: str, batch: int) -> None:
        if step == "parked":
            raise RuntimeError("as if killed")

    with pytest.raises(RuntimeError):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_after_facts)
    with pytest.raises(LoadStateError, match="already written to facts"):
        replan(small.definition)
    small.run(spark)
    assert small.facts().num_rows == 1 and small.parked().num_rows == 1


def test_a_begun_batch_is_finished_under_its_own_definition(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.feed(sale(2, 2) + "\n")
    small.publish()

    def die_before_facts(step: str, batch: int) -> None:
        if step == "facts":
            raise RuntimeError("as if killed")

    with pytest.raises(RuntimeError):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_before_facts)
    small.define(yaml(derive="{total: 'cast(quantity * price * 100 as decimal(21,2))'}"))
    small.run(spark)
    totals = {row["sale_id"]: row["total"] for row in small.facts().to_pylist()}
    assert totals == {"s1": Decimal("2.00"), "s2": Decimal("400.00")}


def test_a_definition_may_gain_a_column_and_nothing_else(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()
    small.run(spark)
    grown = COLUMNS.replace("total,", "total, half,")
    small.define(yaml(derive="{total: quantity * price, half: quantity / 2}", columns=grown))
    small.feed(sale(2, 2) + "\n")
    small.run(spark)
    assert {row["sale_id"]: row["half"] for row in small.facts().to_pylist()} == {"s1": None, "s2": 1.0}
    small.define(yaml(derive="{total: quantity * price, half: quantity}", columns=grown))
    with pytest.raises(LoadStateError, match="'half' is double in the table and int in the definition"):
        small.run(spark)
    small.define(yaml())
    with pytest.raises(LoadStateError, match="'half' is no longer in the definition"):
        small.run(spark)


def test_a_new_snapshot_is_taken_up_between_two_batches_without_a_restart(
    spark: SparkSession, small: SmallLoad
) -> None:
    small.publish()
    small.feed(sale(1, 1) + "\n")
    runner = threading.Thread(target=small.run, args=(spark,), kwargs={"until_idle": False, "run_for": 25})
    runner.start()
    wait_for_batches(small, 1)
    products(range(10), cents=50)
    small.publish()
    small.feed(sale(2, 1) + "\n")
    wait_for_batches(small, 2)
    runner.join()
    assert {row["sale_id"]: row["price"] for row in small.facts().to_pylist()} == {
        "s1": Decimal("1.00"),
        "s2": Decimal("1.50"),
    }
    assert [batch["lookups"][0]["snapshot"] for batch in small.batches()] == [1, 2]


def wait_for_batches(load: SmallLoad, count: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if len(read_rows(LoadHome(load.name).batches, ["batch"])) >= count:
            return
        time.sleep(0.2)
    pytest.fail(f"waited in vain for {count} batches")


def test_overrides_of_a_run_are_in_its_plan_and_ledger(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()
    small.run(spark, algorithm="inlj", memory=3_000_000)
    (batch,) = small.batches()
    (lookup,) = batch["lookups"]
    assert (lookup["algorithm"], lookup["memory"]) == ("inlj", 3_000_000)
    assert 0 < lookup["peak_bytes"] <= 3_000_000
    plan = read_plan("small", 0)
    assert plan is not None and plan.algorithms == {"product": "inlj"}
    small.feed(sale(2, 1) + "\n")
    small.run(spark)
    assert small.batches()[1]["lookups"][0]["algorithm"] == "x-hybridjoin"  # what `auto` stands for


def test_what_cannot_run_is_refused_with_what_to_do(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    with pytest.raises(SnapshotError, match="freshet sort small"):
        small.run(spark)
    small.publish()
    small.define(yaml().replace("stream/small", "stream/elsewhere"))
    with pytest.raises(FreshetError, match=r"elsewhere.*does not\s+exist"):
        small.run(spark)
    small.define(yaml(derive="{total: quantity + to_date(sale_id) * 5}"))
    with pytest.raises(DefinitionError, match=r"derive\.total"):
        small.run(spark)


def test_a_second_run_waits_for_the_lease_of_the_first(
    small: SmallLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    from freshet.streaming.lease import held_lease

    monkeypatch.setenv("FRESHET_LEASE_SECONDS", "1")
    with (
        held_lease("small"),
        pytest.raises(LoadStateError, match="is being run by process"),
        held_lease("small", patience=1.5),
    ):
        pytest.fail("two drivers hold one lease")
    with held_lease("small", patience=0):
        pass
