"""The enrich run: bad input, policies, definitions that change, snapshots that come while it runs."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from freshet.delta import read_rows
from freshet.errors import BatchError, DefinitionError, FreshetError, LoadStateError, SnapshotError
from freshet.home import LoadHome
from freshet.quality.validate import validate
from freshet.streaming.checkpoint import Checkpoint
from freshet.streaming.enrich import EnrichOptions, enrich
from freshet.streaming.plan import plan_file, read_plan, replan, stream_id
from freshet.streaming.planning import Planner
from freshet.streaming.sources import split_settings
from tests.integration.loads import SmallLoad, die_at, master_table

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
    return {reason: sorted(raws, key=str) for reason, raws in found.items()}


def test_every_bad_record_is_parked_with_its_reason_and_raw_text(
    spark: SparkSession, small: SmallLoad
) -> None:
    two = [sale(90, 1) + between + sale(91, 1) for between in ("", "|", "]", ",")]
    malformed = ["{", "[1]", '"text"', "nonsense", *two, sale(92, 1) + " rest", sale(93, 1) + " rest}"]
    wrong_type = [
        '{"sale_id":"t1","product_id":"one","quantity":1}',
        '{"sale_id":"t2","product_id":1.5,"quantity":1}',
        '{"sale_id":"t3","product_id":1,"quantity":99999999999}',
        '{"sale_id":"t4","product_id":1,"quantity":1,"sold_at":"yesterday"}',
    ]
    null_key = [sale(80, None), '{"sale_id":"s81","quantity":1}']
    null_id = ['{"product_id":1,"quantity":1}', "{}"]
    unmatched = [sale(70, 99), sale(71, -1)]
    good = [sale(number, number % 10) for number in range(19)]
    good.append("{'sale_id':'s}19','product_id':1,'quantity':1,'more':{'x':'}'}}")
    shops = "product_id when 7 then null when 8 then '' when 9 then '__HIVE_DEFAULT_PARTITION__'"
    derived = f"{{total: quantity * price, shop: \"case {shops} else 'Köln/Süd=1' end\"}}"
    partitioned = yaml(derive=derived, columns=COLUMNS.replace("total", "total, shop"))
    small.define(partitioned.replace("table: facts,", "table: facts, partition_by: [shop],"))
    small.feed("\n".join([*malformed, "", *wrong_type, "   ", *null_key, *null_id, *unmatched, *good]) + "\n")
    small.publish()
    small.run(spark)
    assert reasons(small) == {
        "malformed": sorted(malformed),
        "wrong_type": sorted(wrong_type),
        "null_key": sorted(null_key),
        "null_event_id": sorted(null_id),
        "unmatched": sorted(unmatched),
        "partition_value": sorted([good[8], good[9], good[18]]),
    }
    facts = {row["sale_id"]: row["shop"] for row in small.facts().to_pylist()}
    assert len(facts) == len(good) - 3
    assert {name for name, shop in facts.items() if shop is None} == {"s7", "s17"}
    assert set(facts.values()) == {None, "Köln/Süd=1"}
    (batch,) = small.batches()
    assert batch["rows_in"] == len(malformed) + 4 + 2 + 2 + 2 + 20 and batch["balanced"]
    details = {row["raw"]: row["detail"] for row in small.parked().to_pylist()}
    assert details[wrong_type[0]] == 'product_id: "one" is not bigint'
    assert details[good[8]] == "shop: '' in a partition would be read as null"
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
    small.publish()
    header = "\n \n'sale_id',product_id,quantity,sold_at\n"
    small.feed(header + "s1,1,2,2026-01-01T10:00:00Z\n's,2',2,2,NA\ns3,x,NA,NA\ns4,1\ns5,77,1,\n", "csv")
    small.feed("product_id,sale_id,quantity,sold_at\n1,s9,1,\n", "csv")
    options = 'header: true, quote: "\'", nullValue: NA'
    for wrong in ("timestampFormat: foo QQQQQ", "dateFormat: YYYY", "locale: xx-YY"):
        small.define(yaml(format="csv", options=f"{{{options}, {wrong}}}"))
        name = wrong.split(":")[0]
        with pytest.raises(DefinitionError, match=rf"small\.yaml .*\n  line \d+: stream\.options\.{name} = "):
            small.run(spark)
        assert not LoadHome("small").warehouse.exists() and read_plan("small", 0) is None
    times = "timestampFormat: \"yyyy-MM-dd'T'HH:mm:ss[XXX]\", locale: en-US"
    small.define(yaml(format="csv", options=f"{{{options}, {times}}}"))
    small.run(spark)
    assert sorted(small.facts()["sale_id"].to_pylist()) == ["s,2", "s1"]
    assert reasons(small) == {
        "wrong_type": ["s3,x,NA,NA"],
        "malformed": ["s4,1"],
        "unmatched": ["s5,77,1,"],
        "malformed_file": [None],
    }
    assert all(batch["balanced"] for batch in small.batches())
    details = {row["raw"]: row["detail"] for row in small.parked().to_pylist()}
    assert details["s3,x,NA,NA"] == 'product_id: "x" is not bigint'


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


def test_an_expression_that_repeats_what_fails_parks_its_row(spark: SparkSession, small: SmallLoad) -> None:
    """What is shared is not computed ahead of the try."""
    share = "{share: '10 / quantity + round(10 / quantity, 2)', total: quantity * price}"
    small.define(yaml(derive=share, columns="[sale_id, share, total]"))
    small.feed(sale(1, 1) + "\n" + sale(2, 1, quantity=0) + "\n")
    small.publish()
    small.run(spark)
    assert small.facts()["share"].to_pylist() == [10.0]
    assert reasons(small) == {"derive_failed": [sale(2, 1, quantity=0)]}


def test_an_absurd_event_time_stops_neither_the_stream_nor_its_validation(
    spark: SparkSession, small: SmallLoad
) -> None:
    absurd = [
        sale(number, 1).replace('"2026-01-01T10:00:00Z"', moment)
        for number, moment in enumerate(("1767261600000", '"9999-12-31T23:59:59Z"', '"0001-01-01T00:00:00Z"'))
    ]
    small.feed("\n".join([*absurd, sale(3, 1)]) + "\n")
    small.publish()
    small.run(spark)
    (batch,) = small.batches()
    assert batch["balanced"] and batch["rows_in"] == 4
    assert batch["max_event_time"] == datetime(2026, 1, 1, 10, tzinfo=UTC)
    facts = small.facts().sort_by("sale_id")
    microseconds = facts["sold_at"].cast(pa.int64()).to_pylist()
    seconds = [1767261600000, 253402300799, -62135596800, 1767261600]
    assert microseconds == [second * 1_000_000 for second in seconds]
    result = validate(small.definition, spark)
    assert result.success, list(result.lines())
    assert result.rows == 4
    assert result.freshness["newest_event"] == "2026-01-01T10:00:00+00:00"


def test_a_draft_that_a_kill_left_in_an_empty_checkpoint_is_in_nobodys_way(
    spark: SparkSession, small: SmallLoad
) -> None:
    small.publish()
    small.feed(sale(1, 1))
    for log in ("offsets", "commits"):
        folder = LoadHome("small").checkpoint / log
        folder.mkdir(parents=True)
        for name in (".0.5f41ea3d.tmp", "..0.5f41ea3d.tmp.crc"):
            (folder / name).touch()
    assert small.run(spark).facts == 1


def test_a_stream_that_moved_to_another_folder_is_refused_before_anything_is_read(
    spark: SparkSession, small: SmallLoad
) -> None:
    small.publish()
    small.feed(sale(1, 1))
    assert small.run(spark).facts == 1
    other = small.stream.with_name("other")
    other.mkdir()
    (other / "later.json").write_text(sale(2, 2))
    small.define(yaml().replace("path: stream/small", "path: stream/other"))
    with pytest.raises(
        LoadStateError, match=r"stream/other \(stream.path\), but batch 0 was loaded from .*small/000"
    ):
        small.run(spark)
    small.define(yaml())
    small.feed(sale(3, 3))
    assert small.run(spark).facts == 1


def test_a_file_that_is_moved_in_late_is_loaded(spark: SparkSession, small: SmallLoad) -> None:
    """Spark passes over files that are much older than those it has seen, unless it is told not to."""
    small.publish()
    os.utime(small.feed(sale(1, 1) + "\n"))
    small.run(spark)
    os.utime(small.feed(sale(2, 1) + "\n"), (1_600_000_000, 1_600_000_000))
    small.run(spark)
    assert sorted(small.facts()["sale_id"].to_pylist()) == ["s1", "s2"]


def test_a_wrong_value_inside_a_nested_column_is_parked(spark: SparkSession, small: SmallLoad) -> None:
    columns = "quantity: int, sold_at: timestamp"
    nested = f"{columns}, order: 'struct<qty:int>', parts: 'array<struct<n:int>>'"
    small.define(yaml(columns="[sale_id, price, order]").replace(columns, nested))
    bad = '{"sale_id":"n1","product_id":1,"quantity":1,"order":{"qty":"abc"}}'
    good = '{"sale_id":"n2","product_id":1,"parts":[{"n":1},{"n":2}],"order":{"qty":5},"quantity":1}'
    two = [good + between + good for between in ("", "|", "]", ",")]
    small.feed("\n".join([bad, good, *two, good + " rest}"]) + "\n")
    small.publish()
    small.run(spark)
    assert small.facts()["order"].to_pylist() == [{"qty": 5}]
    assert reasons(small) == {"wrong_type": [bad], "malformed": sorted([*two, good + " rest}"])}


def test_csv_fields_of_any_length_and_files_of_any_name(spark: SparkSession, small: SmallLoad) -> None:
    small.define(yaml(format="csv", options="{header: true}"))
    header = "sale_id,product_id,quantity,sold_at\n"
    long = "x" * 200_000
    small.feed(f"{header}{long},1,2,\n{long},1\n", "csv")
    wide = "," * 21_000
    small.feed(b"\xef\xbb\xbf" + f"{header}bom,1,2,\n{wide}\n".encode(), "csv")
    small.feed(gzip.compress(f"{header}gz,1,2,\n".encode()), "csv.gz")
    wrong = small.feed("product_id,sale_id,quantity,sold_at\n1,s9,1,\n", "csv")
    wrong.rename(wrong.with_name("sales (1),=+@&#%?ü.csv"))
    long_header = small.feed(f"{long},b\n1,s9\n", "csv")
    small.publish()
    small.run(spark, max_files=10)
    assert sorted(small.facts()["sale_id"].to_pylist()) == ["bom", "gz", long]
    assert reasons(small) == {"malformed": [wide, f"{long},1"], "malformed_file": [None, None]}
    sources = {row["source_file"] for row in small.parked().to_pylist() if row["reason"] == "malformed_file"}
    assert len(sources) == 2 and any(source.endswith(long_header.name) for source in sources)
    assert all(batch["balanced"] for batch in small.batches())


def test_files_that_break_or_vanish_while_they_are_read_are_parked_whole(
    spark: SparkSession, small: SmallLoad
) -> None:
    small.feed(sale(1, 1) + "\n")
    small.feed(gzip.compress((sale(2, 1) + "\n").encode()), "json.gz")
    small.feed(gzip.compress((sale(3, 1) + "\n").encode() * 2000)[:60], "json.gz")
    small.feed("no gzip", "json.gz")
    fleeting = small.feed(sale(4, 1) + "\n")
    small.publish()

    def vanish(step: str, batch: int) -> None:
        if step == "plan":
            fleeting.unlink(missing_ok=True)

    options = EnrichOptions(until_idle=True, max_files=10)
    enrich(small.definition, options, spark=spark, report=lambda line: None, listener=vanish)
    assert sorted(small.facts()["sale_id"].to_pylist()) == ["s1", "s2"]
    assert all(batch["balanced"] for batch in small.batches())
    details = {Path(row["source_file"]).name: row["detail"] for row in small.parked().to_pylist()}
    assert details.pop("004.json") == "the file is gone"
    assert set(details) == {"002.json.gz", "003.json.gz"}
    assert all(detail.startswith("not a readable json file: java.") for detail in details.values())


def test_a_begun_batch_wants_its_files_as_they_were(spark: SparkSession, small: SmallLoad) -> None:
    kept = small.feed(sale(1, 1) + "\n" + sale(2, 99) + "\n")
    small.publish()
    with pytest.raises(RuntimeError, match="as if killed"):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_at("parked"))
    was = kept.read_bytes(), (kept.stat().st_atime, kept.stat().st_mtime)
    kept.write_text(sale(1, 1) + "\n" + sale(2, 2) + "\n")
    with pytest.raises(LoadStateError, match=r"000\.json has changed since batch 0 .*is in facts already"):
        small.run(spark)
    kept.unlink()
    with pytest.raises(LoadStateError, match=r"000\.json is gone since batch 0 .*Put it back as it was"):
        small.run(spark)
    kept.write_bytes(was[0])
    os.utime(kept, was[1])
    small.run(spark)
    assert small.facts().num_rows == 1 and small.parked().num_rows == 1

    lost = small.feed(sale(3, 3) + "\n")
    with pytest.raises(RuntimeError, match="as if killed"):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_at("join"))
    lost.unlink()
    with pytest.raises(LoadStateError, match="freshet replan small"):
        small.run(spark)
    assert replan(small.definition) == 1
    small.run(spark)
    assert reasons(small) == {"unmatched": [sale(2, 99)], "malformed_file": [None]}


def test_a_default_is_given_in_the_type_of_its_column(spark: SparkSession, small: SmallLoad) -> None:
    small.define(yaml(unmatched="keep\n        defaults: {price: 0.5}"))
    small.feed(sale(1, 99) + "\n")
    small.publish()
    small.run(spark)
    assert small.facts()["price"].to_pylist() == [Decimal("0.50")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"unmatched": "keep\n        defaults: {price: cheap}"},
            r"defaults\.price = 'cheap': no decimal\(10,2\)",
        ),
        (
            {"unmatched": "keep\n        defaults: {surrogate_key: 1.5}"},
            r"defaults\.surrogate_key = 1\.5: no bigint .*Write a value of that type",
        ),
        ({"memory": "2KB"}, r"memory = '2KB': .*give it at least [\d,]+ bytes"),
        (
            {"unmatched": "park\n        stream_key: sale_id"},
            r"stream_key = 'sale_id': .*Name a column of the same kind",
        ),
    ],
)
def test_what_a_lookup_cannot_do_is_refused_before_a_plan_is_fixed(
    spark: SparkSession, small: SmallLoad, change: dict[str, str], told: str
) -> None:
    small.feed(sale(1, 99) + "\n" + sale(2, 1) + "\n")
    small.publish()
    small.define(yaml(**change))
    with pytest.raises(FreshetError, match=rf"small\.yaml .*\n  line \d+: lookups\[0\]\.{told}"):
        small.run(spark)
    assert read_plan("small", 0) is None
    small.define(yaml())
    small.run(spark)  # put right, it goes on without further ado
    assert small.facts().num_rows == 1


def test_the_memory_of_a_run_is_checked_before_a_plan_is_fixed(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()
    with pytest.raises(FreshetError, match=r"The run's own memory for lookup 'product': .*give it at least"):
        small.run(spark, memory=2048)
    small.run(spark)
    assert small.facts().num_rows == 1


def test_a_lookup_by_another_key_wants_a_new_snapshot(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1001) + "\n")
    small.publish()
    by_surrogate = yaml(columns="[sale_id, price]").replace("key: product_id", "key: surrogate_key")
    small.define(
        by_surrogate.replace("add: [surrogate_key, price]", "stream_key: product_id\n        add: [price]")
    )
    with pytest.raises(
        SnapshotError, match=r"small\.yaml: .*field key .* 'surrogate_key'.*'product_id'.*freshet sort small"
    ):
        small.run(spark)
    small.publish()
    small.run(spark)
    assert small.facts()["price"].to_pylist() == [Decimal("1.00")]


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
    with pytest.raises(RuntimeError):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_at("parked"))
    with pytest.raises(LoadStateError, match="already written to facts"):
        replan(small.definition)
    plan = plan_file("small", 0)
    plan.rename(plan.with_suffix(".lost"))
    with pytest.raises(LoadStateError, match=r"Batch 0 of load 'small' is in facts, but its plan .* is gone"):
        small.run(spark)
    plan.with_suffix(".lost").rename(plan)
    small.run(spark)
    assert small.facts().num_rows == 1 and small.parked().num_rows == 1


def test_a_begun_batch_is_finished_under_its_own_definition(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.feed(sale(2, 2) + "\n")
    small.publish()
    with pytest.raises(RuntimeError):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_at("facts"))
    small.define(yaml(derive="{total: 'cast(quantity * price * 100 as decimal(21,2))'}"))
    small.run(spark)
    totals = {row["sale_id"]: row["total"] for row in small.facts().to_pylist()}
    assert totals == {"s1": Decimal("2.00"), "s2": Decimal("400.00")}


def test_a_begun_batch_is_finished_with_columns_that_newer_snapshots_lack(
    spark: SparkSession, small: SmallLoad
) -> None:
    small.feed(sale(1, 1) + "\n")
    small.feed(sale(2, 2) + "\n")
    small.publish()
    with pytest.raises(RuntimeError):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_at("facts"))
    small.define(
        yaml(derive="{price: 'cast(null as decimal(10,2))', total: 'cast(null as decimal(21,2))'}").replace(
            "add: [surrogate_key, price]", "add: [surrogate_key]"
        )
    )
    small.publish()
    small.run(spark)
    assert {row["sale_id"]: row["price"] for row in small.facts().to_pylist()} == {
        "s1": Decimal("1.00"),
        "s2": None,
    }


def test_a_driver_with_another_definition_does_not_touch_a_planned_batch(
    spark: SparkSession, small: SmallLoad
) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()
    old = small.definition
    with pytest.raises(RuntimeError):
        enrich(old, EnrichOptions(until_idle=True), spark=spark, listener=die_at("facts"))
    small.define(yaml(derive="{total: 'cast(0 as decimal(21,2))'}"))
    planner = Planner(small.definition, stream_id("small"), split_settings(spark), "UTC")
    with pytest.raises(LoadStateError, match="another definition"):
        planner.require_as_planned(planner.plan(0, Checkpoint(LoadHome("small").checkpoint).batch_input(0)))
    LoadHome("small").stream_id.unlink()
    with pytest.raises(LoadStateError, match=r"stream\.json was replaced"):
        enrich(old, EnrichOptions(until_idle=True), spark=spark)


def test_a_driver_that_wakes_up_after_a_reset_writes_nothing(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()

    def emptied_meanwhile(step: str, batch: int) -> None:
        if step == "facts":
            LoadHome("small").stream_id.unlink()

    with pytest.raises(LoadStateError, match="was reset"):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=emptied_meanwhile)
    assert small.facts().num_rows == 0


def test_a_definition_may_gain_a_column_and_nothing_else(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()
    small.run(spark)
    grown = COLUMNS.replace("total,", "total, half,")
    small.define(yaml(derive="{total: quantity * price, half: quantity / 2}", columns=grown))
    small.feed(sale(2, 2) + "\n")
    small.run(spark)
    assert {row["sale_id"]: row["half"] for row in small.facts().to_pylist()} == {"s1": None, "s2": 1.0}
    halved, moment = "half: quantity / 2", 'moment: "make_timestamp_ntz(2026, 1, 2, 3, 4, 5)"'
    grown = COLUMNS.replace("total,", "total, half, moment,")
    small.define(yaml(derive=f"{{total: quantity * price, {halved}, {moment}}}", columns=grown))
    small.feed(sale(3, 3) + "\n")
    small.run(spark)
    moments = {row["sale_id"]: row["moment"] for row in small.facts().to_pylist()}
    assert moments == {"s1": None, "s2": None, "s3": datetime(2026, 1, 2, 3, 4, 5)}  # noqa: DTZ001
    small.define(yaml(derive=f"{{total: quantity * price, half: quantity, {moment}}}", columns=grown))
    with pytest.raises(LoadStateError, match="'half' is double in the table and would be int"):
        small.run(spark)
    small.define(yaml())
    with pytest.raises(LoadStateError, match="'half' is no longer in the definition"):
        small.run(spark)


def test_a_master_column_of_another_type_is_refused_before_a_plan_is_fixed(
    spark: SparkSession, small: SmallLoad
) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()
    small.run(spark)
    master_table(
        "products (product_id bigint primary key, surrogate_key bigint, price double)", [(2, 2, 0.5)]
    )
    small.publish()
    small.feed(sale(2, 2) + "\n")
    told = r"'price' \(column 'price' of the master table products\) is decimal\(10,2\) .* would be double"
    with pytest.raises(LoadStateError, match=told):
        small.run(spark)
    assert not plan_file("small", 1).exists()
    products(range(10), cents=0)
    small.publish()
    small.run(spark)
    assert small.facts().num_rows == 2


def test_a_fact_table_renamed_or_partitioned_anew_is_refused(spark: SparkSession, small: SmallLoad) -> None:
    small.feed(sale(1, 1) + "\n")
    small.publish()
    with pytest.raises(RuntimeError):
        enrich(small.definition, EnrichOptions(until_idle=True), spark=spark, listener=die_at("facts"))
    small.define(yaml().replace("table: facts", "table: renamed"))
    with pytest.raises(LoadStateError, match=r"or the definition had another facts\.table then"):
        small.run(spark)
    small.define(yaml().replace("table: facts,", "table: facts, partition_by: [sale_id],"))
    with pytest.raises(LoadStateError, match=r"partitioned by \[\], not by \['sale_id'\]"):
        small.run(spark)


class Clock:
    """The clock by which a run ends, which a test can put forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def test_a_new_snapshot_is_taken_up_between_two_batches_of_a_run_that_ends_on_time(
    spark: SparkSession, small: SmallLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("freshet.streaming.enrich.time", clock)
    small.publish()
    small.feed(sale(1, 1) + "\n")
    hour = {"until_idle": False, "run_for": 3600}
    runner = threading.Thread(target=small.run, args=(spark,), kwargs=hour, daemon=True)
    runner.start()
    try:
        wait_for_batches(small, 1)
        products(range(10), cents=50)
        small.publish()
        small.feed(sale(2, 1) + "\n")
        wait_for_batches(small, 2)
        clock.ahead = 3500
        time.sleep(0.5)
        assert runner.is_alive()
        clock.ahead = 3600
        small.feed(sale(3, 1) + "\n")
    finally:
        clock.ahead = 3600
        runner.join(timeout=30)
    assert not runner.is_alive()
    loaded = {"s1": Decimal("1.00"), "s2": Decimal("1.50")}
    assert {row["sale_id"]: row["price"] for row in small.facts().to_pylist()} == loaded
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
    derived = "{total: quantity * price, tags: \"split(sale_id, '-')\"}"
    in_parts = yaml(derive=derived, columns=COLUMNS.replace("total", "total, tags"))
    small.define(in_parts.replace("table: facts,", "table: facts, partition_by: [tags],"))
    with pytest.raises(DefinitionError, match=r"facts\.partition_by\[0\] = 'tags': a column with parts"):
        small.run(spark)
    assert not LoadHome("small").warehouse.exists() and read_plan("small", 0) is None
    small.define(yaml().replace("stream/small", "stream/elsewhere"))
    with pytest.raises(FreshetError, match=r"elsewhere.*does not\s+exist"):
        small.run(spark)
    small.define(yaml(derive="{total: quantity + to_date(sale_id) * 5}"))
    with pytest.raises(DefinitionError, match=r"small\.yaml .*\n  line \d+: derive\.total = .*\. Correct it"):
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
