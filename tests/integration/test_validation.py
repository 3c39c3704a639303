"""Validation with Spark, Delta and Great Expectations: planted errors are caught, named and quarantined."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from freshet.config import Definition
from freshet.errors import LoadStateError, ValidationError
from freshet.home import PROJECT
from freshet.quality import quarantine as quarantining
from freshet.quality import validate as validating
from freshet.quality.changes import read_changes
from freshet.quality.checks import UNIQUE
from freshet.quality.newrows import NewRows
from freshet.quality.pointer import last_good
from freshet.quality.quarantine import quarantine
from freshet.quality.result import ValidationResult, last_validation
from freshet.quality.unique import EventIds
from freshet.quality.validate import validate
from tests.integration.validation_fixture import FACTS_SCHEMA, LOADED_AT, SALES, SOLD_AT, Load, sale, sales

pytestmark = pytest.mark.usefixtures("freshet_home")


def by_check(result: ValidationResult) -> dict[str, set[Any]]:
    """What failed: by check the failing event ids, or batches."""
    return {one.check: set(one.failing_ids) | set(one.failing_batches) for one in result.failed}


def validate_job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validate_job", PROJECT / "jobs" / "validate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession) -> Callable[[str], int]:
    """The job as spark-submit runs it, in the tests' own session; its exit code."""
    loads = tmp_path / "loads"
    loads.mkdir()
    (loads / "sales.yaml").write_text(yaml.safe_dump(SALES, sort_keys=False))
    monkeypatch.setenv("FRESHET_LOADS", str(loads))

    def run(load: str) -> int:
        monkeypatch.setattr("sys.argv", ["validate.py", "--load", load])
        return int(validate_job().main())

    return run


def snippets(document: str) -> list[str]:
    """The Python in a document."""
    return re.findall(r"```python\n(.*?)```", (PROJECT / document).read_text(), re.DOTALL)


def readme_snippets(load: Load) -> list[str]:
    """The README's, with the table and a column of this load, relative to the working folder as there."""
    ours = {
        ".freshet/warehouse/orders/order_facts": os.path.relpath(load.facts_path),
        "customer_segment": "supplier_id",
    }
    text = "\0".join(snippets("README.md"))
    for theirs, replacement in ours.items():
        assert theirs in text
        text = text.replace(theirs, replacement)
    return text.split("\0")


def test_good_facts_pass_and_every_documented_reader_sees_the_last_good_version(
    spark: SparkSession, run_job: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    load = Load()
    load.publish_products(1)
    load.publish_products(2)
    load.batch(sales(0, 60), parked=3)
    load.batch(sales(60, 40, version=2), snapshots={"product": 2})
    assert run_job("sales") == 0
    assert "validation of sales passed: 100 new facts" in capsys.readouterr().out
    good = load.version()
    assert last_good(load.definition) == good

    result = last_validation(load.definition)
    assert result
    assert {"key sale_id", "event id unique", "batch", "lookup product", "derived total"} <= {
        one.check for one in result.expectations
    }
    assert not result.unchecked
    pages = [page.read_text() for page in load.home.data_docs.rglob("validations/**/*.html")]
    assert any("total is what its expression gives" in page for page in pages)
    assert any("Every batch has given out what it took in" in page for page in pages)

    load.batch([sale("not yet validated")])
    assert load.version() > good
    rows = (*sales(0, 60), *sales(60, 40, version=2))
    expected = {row["sale_id"] for row in rows}
    version, spark_, delta, duck = snippets("docs/validation.md")
    scope: dict[str, Any] = {"spark": spark}
    exec(version, scope)
    exec(spark_, scope)
    assert {row["sale_id"] for row in scope["facts"].collect()} == expected
    exec(delta, scope)
    assert set(scope["facts"]["sale_id"].to_pylist()) == expected
    exec(duck, scope)
    assert scope["answer"] == [(100, pytest.approx(sum(row["total"] for row in rows)))]

    spark_, delta, duck = readme_snippets(load)
    scope = {"spark": spark, "version": good}
    exec(spark_, scope)
    assert scope["facts"].count() == 100
    exec(delta, scope)
    assert set(scope["facts"]["sale_id"].to_pylist()) == expected
    exec(duck, scope)
    totals: dict[int, float] = defaultdict(float)
    for row in rows:
        totals[row["supplier_id"]] += row["total"]
    assert dict(scope["totals"]) == pytest.approx(totals)


def test_what_cannot_be_validated_ends_the_job_with_2(
    run_job: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job("sales") == 2
    assert "There is no fact table" in capsys.readouterr().err
    assert run_job("saless") == 2
    assert "There is no load 'saless'" in capsys.readouterr().err


def test_when_nothing_is_new_the_pointer_follows_the_table_without_any_job(spark: SparkSession) -> None:
    load = Load()
    load.publish_products()
    load.batch(sales(0, 5))
    load.trust()
    DeltaTable(str(load.facts_path)).optimize.compact()
    load.append_facts([], None, None)
    before = jobs(spark)
    result = validate(load.definition, spark)
    assert result.success
    assert result.rows == 0
    assert last_good(load.definition) == load.version() == result.to_version
    assert jobs(spark) == before


def jobs(spark: SparkSession) -> int:
    """How many jobs the session has run."""
    store = spark.sparkContext._jsc.sc().statusStore()
    return int(store.jobsList(None).size())


def test_every_planted_error_is_caught_with_its_rows_and_quarantine_frees_the_load(
    spark: SparkSession,
) -> None:
    load = Load()
    load.publish_products(1)
    load.publish_products(2)
    load.batch(sales(0, 10))
    load.trust()
    good = load.version()
    load.batch(
        [
            *sales(100, 3),
            sale(None),  # type: ignore[arg-type]
            sale("twice"),
            sale("twice"),
            sale("two versions", quantity=2),
            sale("two versions", quantity=3),
            sale("S000003"),
            sale("wrong total", total=9.0),
            sale("other snapshot", version=2),
            sale("out of range", quantity=1000),
        ],
        parked=2,
    )
    load.batch([sale("second snapshot", version=2)], snapshots={"product": 2})
    load.append_facts([sale("foreign")], batch=1, transaction=None)
    load.append_facts([sale("from nowhere")], batch=999, transaction=None)
    load.append_facts(sales(0, 1), batch=0, transaction=None)

    result = validate(load.definition, spark)
    assert not result.success
    assert last_good(load.definition) == result.last_good == good
    assert by_check(result) == {
        "key sale_id": {None},
        "event id unique": {"twice", "two versions", "S000003", "S000000"},
        "batch": {"foreign", "from nowhere", "S000000"},
        "lookup product": {"other snapshot"},
        "derived total": {"wrong total", "other snapshot"},
        "expectations[0]": {"out of range"},
        "ledger records": {999},
        "ledger facts_difference": {0, 1, 999},
    }
    named = {row.event_id: row.reasons for row in result.failing_rows}
    assert named["wrong total"] == ("derived total: is 9.0, should be 3.0",)
    assert "lookup product: surrogate_key 2001 is not in snapshot 1 of product" in named["other snapshot"]
    assert result.failing_count == 10

    assert quarantine(load.definition, spark) == 10
    assert quarantine(load.definition, spark) == 0
    assert sorted(row["sale_id"] for row in load.facts()) == sorted(
        [
            *(row["sale_id"] for row in (*sales(0, 10), *sales(100, 3))),
            *("twice", "two versions", "second snapshot"),
        ]
    )
    assert {row["quantity"] for row in load.facts() if row["sale_id"] == "two versions"} == {2}
    parked = [row for row in load.parked() if row["reason"] == "quarantined"]
    assert len({row["id"] for row in parked}) == len(parked) == 10
    by_id = {json.loads(row["raw"]).get("sale_id"): row for row in parked}
    assert by_id["wrong total"]["id"].startswith("facts#wrong total#")
    assert by_id["wrong total"]["detail"] == "derived total: is 9.0, should be 3.0"
    assert by_id["wrong total"]["_batch"] == 1
    assert by_id["foreign"]["_batch"] is None

    result = validate(load.definition, spark)
    assert result.success, list(result.lines())
    assert last_good(load.definition) == load.version()


class _KilledError(Exception):
    """Stands for the end of the process."""


def _killed(*_: object) -> None:
    raise _KilledError


def complete(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Whole rows in an order, to be compared."""
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def load_with_failing_facts() -> Load:
    """Three good facts, and four that fail: two wrong totals and the later rows of two events."""
    load = Load()
    load.publish_products()
    load.batch(sales(0, 5))
    load.trust()
    load.batch(
        [
            *sales(10, 3),
            sale("twice"),
            sale("twice"),
            sale("two batches", quantity=3),
            sale("wrong total", total=9.0),
            sale("wrong as well", total=9.0),
        ]
    )
    load.batch([sale("two batches", quantity=2)])
    return load


def good_facts(load: Load) -> list[dict[str, Any]]:
    """The facts of that load that do not fail, of the events loaded twice the earliest."""
    kept: dict[str, dict[str, Any]] = {}
    for row in sorted(load.facts(), key=lambda row: row["_batch"]):
        if not row["sale_id"].startswith("wrong"):
            kept.setdefault(row["sale_id"], row)
    return list(kept.values())


def put_right(spark: SparkSession, load: Load, sale_id: str) -> None:
    spark.sql(f"UPDATE delta.`{load.facts_path}` SET total = 3.0 WHERE sale_id = '{sale_id}'")


@pytest.mark.parametrize("at_last", [quarantine, validate])
def test_a_quarantine_killed_at_every_step_in_turn_is_finished_by_the_next_quarantine_or_validation(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, at_last: Callable[..., Any]
) -> None:
    load = load_with_failing_facts()
    right = complete(good_facts(load))
    assert validate(load.definition, spark).failing_count == 4
    for step in ("_removed", "_park", "keep_result", "_forget"):
        with monkeypatch.context() as patched:
            patched.setattr(quarantining, step, _killed)
            with pytest.raises(_KilledError):
                quarantine(load.definition, spark)
    at_last(load.definition, spark)
    assert complete(load.facts()) == right
    parked = [json.loads(row["raw"]) for row in load.parked()]
    assert sorted((row["sale_id"], row["quantity"], row["_batch"]) for row in parked) == [
        ("twice", 2, 1),
        ("two batches", 2, 2),
        ("wrong as well", 2, 1),
        ("wrong total", 2, 1),
    ]
    result = validate(load.definition, spark)
    assert result.success, list(result.lines())
    assert quarantine(load.definition, spark) == 0


def test_what_has_changed_since_the_validation_is_validated_again_before_anything_moves(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    run_job: Callable[[str], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = load_with_failing_facts()
    assert run_job("sales") == 3
    assert "wrong total: derived total: is 9.0, should be 3.0" in capsys.readouterr().out

    # A row is put right while a quarantine lies killed: it is given up.
    with monkeypatch.context() as patched:
        patched.setattr(quarantining, "_removed", _killed)
        with pytest.raises(_KilledError):
            quarantine(load.definition, spark)
    put_right(spark, load, "wrong total")
    with pytest.raises(ValidationError, match=r"were changed or deleted .* Validate again first"):
        quarantine(load.definition, spark)
    shutil.rmtree(load.home.validation / "failing")
    with pytest.raises(ValidationError, match=r"are no longer in .* Validate again first: freshet validate"):
        quarantine(load.definition, spark)
    assert load.parked() == []
    assert validate(load.definition, spark).failing_count == 3

    # Another is put right in the last moment of a quarantine.
    holds = quarantining._holds

    def put_right_behind_the_check(*given: Any) -> bool:
        answer = holds(*given)
        if answer:
            put_right(spark, load, "wrong as well")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(quarantining, "_holds", put_right_behind_the_check)
        for _ in range(2):  # the second time it is right before the quarantine begins
            with pytest.raises(ValidationError, match="Validate again first: freshet validate sales"):
                quarantine(load.definition, spark)
    assert load.parked() == []

    assert validate(load.definition, spark).failing_count == 2
    assert quarantine(load.definition, spark) == 2
    right = {"wrong total", "wrong as well"}
    assert right <= {row["sale_id"] for row in load.facts()}
    assert not right & {json.loads(row["raw"])["sale_id"] for row in load.parked()}
    result = validate(load.definition, spark)
    assert result.success, list(result.lines())


def test_quarantine_goes_on_beside_a_running_load_and_after_compaction(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load = load_with_failing_facts()
    right = good_facts(load)
    validate(load.definition, spark)
    DeltaTable(str(load.facts_path)).optimize.compact()
    later = sales(50, 2)
    comes_between(monkeypatch, tmp_path, lambda: load.batch(later, finished=False))
    assert quarantine(load.definition, spark) == 4
    stamped = [{**row, "_batch": 3} for row in later]
    assert complete(load.facts()) == complete([*right, *stamped])
    # The facts before the unfinished batch have rows that are parked by now.
    with pytest.raises(LoadStateError, match=r"Batch 3 .* is not finished.*`freshet enrich sales`"):
        validate(load.definition, spark)
    load.record(3, facts=len(later))
    result = validate(load.definition, spark)
    assert result.success, list(result.lines())


def comes_between(monkeypatch: pytest.MonkeyPatch, folder: Path, write: Callable[[], object]) -> None:
    """Have something else write while the facts are being removed for the first time."""
    reading, written = folder / "reading", folder / "written"
    leaving = quarantining._leaving

    def wait_for(file: Path) -> None:
        deadline = time.monotonic() + 300
        while not file.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited in vain for {file}")
            time.sleep(0.05)

    @F.udf("string")
    def wait(raw):
        reading.touch()
        wait_for(written)
        return raw

    def write_then() -> None:
        wait_for(reading)
        write()
        written.touch()

    threading.Thread(target=write_then, daemon=True).start()
    monkeypatch.setattr(
        quarantining, "_leaving", lambda *frames: leaving(*frames).withColumn("_raw", wait("_raw"))
    )


def test_a_validation_killed_before_its_result_is_kept_leaves_the_last_one_whole(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = load_with_failing_facts()
    validate(load.definition, spark)
    load.batch([sale("wrong later", total=9.0)])
    with monkeypatch.context() as patched:
        patched.setattr(validating, "keep_result", _killed)
        with pytest.raises(_KilledError):
            validate(load.definition, spark)
    assert quarantine(load.definition, spark) == 4
    assert by_check(validate(load.definition, spark)) == {"derived total": {"wrong later"}}
    assert len(list((load.home.validation / "failing").iterdir())) == 1


def test_wrong_books_and_stale_facts_fail_and_cannot_be_quarantined(spark: SparkSession) -> None:
    load = Load()
    load.publish_products()
    load.batch(sales(0, 5))
    load.trust()
    load.batch(sales(10, 5), finished=False)  # its row in the ledger is missing
    load.batch(sales(20, 5), rows_in=6, balanced=False)
    load.batch(sales(30, 5), facts=6, rows_in=6)  # one fact is missing
    load.batch([], parked=2, rows_in=3)
    stale = load.definition.model_copy(update={"freshness": 30.0})

    result = validate(stale, spark)
    assert by_check(result) == {
        "ledger records": {1},
        "ledger missing_before": {2},
        "ledger facts_difference": {1, 3},
        "ledger difference": {2, 4},
        "ledger balanced": {2},
        "freshness": set(),
    }
    assert result.freshness["age_seconds"] == (LOADED_AT - SOLD_AT).total_seconds()
    assert last_good(load.definition) == 0
    with pytest.raises(ValidationError, match="nothing to quarantine: ledger records"):
        quarantine(load.definition, spark)


OF_NO_SINGLE_ROW: dict[str, Any] = {
    "expectations": [
        {"type": "expect_column_values_to_be_of_type", "column": "quantity", "type_": "StringType"},
        {"type": "expect_column_values_to_match_regex", "column": "sale_id", "regex": "("},
        {"type": "expect_column_values_to_be_between", "column": "quantity", "max_value": 100},
    ]
}


def test_expectations_that_name_no_row_or_cannot_be_computed_do_not_hide_the_failing_rows(
    spark: SparkSession,
) -> None:
    load = Load(OF_NO_SINGLE_ROW)
    load.publish_products()
    load.batch([*sales(0, 5), sale("too many", quantity=101)])
    result = validate(load.definition, spark)
    failed = {one.check: one for one in result.expectations if not one.success}
    assert set(failed) == {"expectations[0]", "expectations[1]", "expectations[2]"}
    assert "Unclosed group" in (failed["expectations[1]"].error or "")
    assert result.failing_count == 1
    assert last_good(load.definition) is None
    assert quarantine(load.definition, spark) == 1


def test_only_new_files_are_read_and_an_unfinished_batch_is_left_for_later(spark: SparkSession) -> None:
    load = Load()
    load.publish_products()
    load.batch(sales(0, 5))
    load.trust()
    old = set(load.facts_path.glob("*.parquet"))
    load.batch(sales(10, 5))
    finished = load.version()
    load.batch(sales(20, 5), finished=False)
    for file in old:
        file.unlink()  # reading it would fail
    result = validate(load.definition.model_copy(update={"freshness": 86400.0}), spark)
    assert result.success, list(result.lines())
    assert (result.rows, result.to_version, result.held_back) == (5, finished, 2)
    assert last_good(load.definition) == finished


IDS = {
    "number": ("decimal(38,9)", "cast('12345678901234567890123456789.123456789' as decimal(38,9))"),
    "bytes": ("binary", "x'00ff'"),
    "day": ("date", "date_from_unix_date(5000000)"),
    "moment": ("timestamp", "timestamp_micros(9000000000000000000)"),
    "clock_set_back": ("timestamp", "timestamp'2026-10-25 01:30:00.000001Z'"),
    "zoneless": ("timestamp_ntz", "timestamp_ntz'2026-03-29 02:30:00.000001'"),
}


@pytest.fixture
def driver_in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("driver_in_tokyo")
def test_a_repeated_event_is_found_whatever_the_type_of_its_id(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "facts"
    values = ", ".join(f"{value} AS `{name}`" for name, (_, value) in IDS.items())
    for _ in range(2):
        rows = spark.sql(f"SELECT {values}, 0L AS _batch, timestamp'2026-03-01 12:00:00Z' AS _loaded_at")
        rows.write.format("delta").mode("append").save(str(table))
    changes = read_changes(table, 0, lambda app, version: None, lambda batch: False)
    zone = "spark.sql.session.timeZone"
    spark.conf.set(zone, "Europe/Berlin")
    try:
        assert {name: repeated(NewRows(spark, told_apart_by(name), table, changes)) for name in IDS} == {
            name: ["the event id was in the table before"] for name in IDS
        }
    finally:
        spark.conf.set(zone, "UTC")


def told_apart_by(event_id: str) -> Definition:
    """A definition with all of IDS, by one of which events are told apart."""
    columns = {name: ddl for name, (ddl, _) in IDS.items()} | {"product_id": "bigint"}
    stream = {"path": "in", "format": "parquet", "columns": columns, "event_id": event_id}
    facts = {"table": "facts", "columns": [*IDS]}
    return Definition.from_dict({**SALES, "stream": stream, "derive": {}, "facts": facts, "expectations": []})


def repeated(new: NewRows) -> list[str]:
    """What the check of the event id says of each new row."""
    ids = EventIds(new, new.survey())
    try:
        return [row[UNIQUE.column] for row in ids.check(new.frame).select(UNIQUE.column).collect()]
    finally:
        ids.forget()


def test_rewritten_files_and_deletion_vectors_are_read_as_the_table_reads_them(spark: SparkSession) -> None:
    load = Load()
    load.publish_products()
    load.batch(sales(0, 5))
    load.trust()
    load.batch(sales(10, 5))
    DeltaTable(str(load.facts_path)).optimize.compact()
    load.batch(sales(20, 2))
    load.append_facts([sale("S000011", key=2)], batch=1, transaction=None)
    table = f"delta.`{load.facts_path}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM {table} WHERE sale_id = 'S000001'")  # it was validated, and may go
    result = validate(load.definition, spark)
    assert result.rows == 4 + 5 + 2 + 1
    assert by_check(result) == {
        "event id unique": {"S000011"},
        "batch": {"S000011"},
        "ledger facts_difference": {1},
    }


BY_DAY: dict[str, Any] = {
    "stream": {
        **SALES["stream"],
        "columns": {"day": "date", "product_id": "bigint", "quantity": "int"},
        "event_id": "day",
        "event_time": None,
    },
    "facts": {"table": "days", "columns": ["day", "surrogate_key", "supplier_id", "quantity", "total"]},
}


def test_a_failing_fact_is_named_though_python_has_no_such_event_id(spark: SparkSession) -> None:
    load = Load(BY_DAY, FACTS_SCHEMA.replace("sale_id string", "day date"))
    load.publish_products()
    far_off: Any = pa.scalar(5_000_000, pa.int32()).cast(pa.date32())
    load.batch([{**sale("of that day", total=9.0), "day": far_off, "sold_at": None}])
    result = validate(load.definition, spark)
    assert by_check(result) == {"derived total": {"+15659-07-15"}}
    assert [row.event_id for row in result.failing_rows] == ["+15659-07-15"]


WITH_SHOPS: dict[str, Any] = {
    "stream": {**SALES["stream"], "columns": {**SALES["stream"]["columns"], "shop_id": "bigint"}},
    "lookups": [
        *SALES["lookups"],
        {"name": "shop", "table": "shops", "key": "id", "stream_key": "shop_id", "add": ["town"]},
    ],
    "facts": {**SALES["facts"], "columns": [*SALES["facts"]["columns"], "shop_id", "town"]},
}


def test_facts_loaded_before_the_definition_had_a_lookup_need_not_have_its_key(spark: SparkSession) -> None:
    load = Load(facts_schema=f"{FACTS_SCHEMA}, shop_id bigint, town string")
    load.publish_products()
    load.batch(sales(0, 3))
    load.definition = Load(WITH_SHOPS).definition
    load.publish([{"id": 7, "town": "Ulm"}], "shop", "id")
    here: dict[str, Any] = {"shop_id": 7, "town": "Ulm"}
    load.batch([sale("sold", **here), sale("no shop")], snapshots={"product": 1, "shop": 1})
    result = validate(load.definition, spark)
    assert by_check(result) == {"key shop_id": {"no shop"}, "lookup shop": {"no shop"}}


ORDERS: dict[str, Any] = {
    "load": "orders",
    "stream": {
        "path": "in",
        "format": "parquet",
        "columns": {
            "order_no": "bigint",
            "customer_code": "string",
            "amount": "decimal(10,2)",
            "day": "date",
        },
        "event_id": "order_no",
    },
    "lookups": [
        {
            "name": "customer",
            "table": "customers",
            "key": "code",
            "stream_key": "customer_code",
            "add": {"customer": "name", "region_id": "region"},
            "unmatched": "keep",
            "defaults": {"customer": "unknown"},
        },
        {
            "name": "region",
            "table": "regions",
            "key": "id",
            "stream_key": "region_id",
            "add": ["tax", "tags"],
            "unmatched": "keep",
        },
    ],
    "derive": {
        "taxed": "amount * tax",
        "label": "concat(customer, '/', region_id)",
        "weekday": "dayofweek(day)",
        "per_tax": "CAST(1 / tax AS DOUBLE)",
    },
    "facts": {
        "table": "orders_facts",
        "columns": ["order_no", "customer_code", "amount", "customer", "tags", "taxed", "label", "weekday"],
        "partition_by": ["customer"],
    },
    "expectations": [],
}
ORDERS_SCHEMA = """
    order_no bigint, customer_code string, amount decimal(10,2), customer string, tags map<string,int>,
    taxed double, label string, weekday int, _batch bigint, _loaded_at timestamp
"""
CUSTOMERS: list[dict[str, Any]] = [
    {"code": "a", "name": "Ann", "region": 1},
    {"code": "b", "name": None, "region": 2},
    {"code": "c", "name": "Cy [%] é", "region": None},
]
REGIONS: list[dict[str, Any]] = [
    {"id": 1, "tax": 0.5, "tags": [("x", 1)]},
    {"id": 2, "tax": 0.0, "tags": None},
]
REGIONS_SCHEMA = pa.schema({"id": pa.int64(), "tax": pa.float64(), "tags": pa.map_(pa.string(), pa.int32())})


def order(
    number: int, code: str, customer: str | None, taxed: float | None, label: str | None
) -> dict[str, Any]:
    return {
        "order_no": number,
        "customer_code": code,
        "amount": 10,
        "customer": customer,
        "tags": None,
        "taxed": taxed,
        "label": label,
        "weekday": 1,
    }


def test_chained_lookups_kept_rows_and_what_cannot_be_checked(spark: SparkSession) -> None:
    load = Load(ORDERS, ORDERS_SCHEMA)
    load.publish(CUSTOMERS, "customer", "code")
    load.publish(REGIONS, "region", "id", REGIONS_SCHEMA)
    load.batch(
        [
            order(1, "a", "Ann", 5.0, "Ann/1"),
            order(2, "b", None, 0.0, None),
            order(3, "c", "Cy [%] é", None, None),
            order(4, "z", "unknown", None, None),
            order(5, "a", "Bob", 5.0, "Bob/1"),
            order(6, "z", None, None, None),
            order(7, "a", "Ann", 4.0, "Ann/1"),
            order(8, "b", None, 0.0, "Ann/2"),
        ],
        snapshots={"customer": 1, "region": 1},
    )
    result = validate(load.definition, spark)
    assert by_check(result) == {
        "lookup customer": {5, 6},
        "derived taxed": {7},
        "derived label": {8},
    }
    assert set(result.unchecked) == {"lookup region, column tags", "derived weekday"}
    assert "day of 'dayofweek(day)' cannot be had" in result.unchecked["derived weekday"]
