"""Definitions are read from files, one bad file at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml

from freshet.config import (
    Definition,
    all_definitions,
    find_definition,
    read_definition,
)
from freshet.errors import DefinitionError
from freshet.home import PROJECT

Write = Callable[..., Path]

DESIGN = """
load: sales
description: Point-of-sale updates, enriched from the product master
stream:
  source: files                      # files | kafka
  path: demo/sales                   # relative to FRESHET_HOME, or absolute
  format: json                       # json (lines) | csv | parquet
  columns: {sale_id: string, product_id: bigint, quantity: int, sold_at: timestamp}
  event_id: sale_id
  event_time: sold_at
lookups:
  - name: product
    connection: warehouse
    table: products
    key: product_id
    stream_key: product_id
    add: [surrogate_key, supplier_id, sale_price]
    unmatched: park
    algorithm: auto
    memory: 64MB
derive: {total: quantity * sale_price}
facts:
  table: sales_facts
  columns: [sale_id, surrogate_key, supplier_id, quantity, total, sold_at]
  partition_by: []
resort: {schedule: "@daily", min_gain: 0.05}
expectations:
  - {type: expect_column_values_to_be_between, column: quantity, min_value: 1, max_value: 1000}
"""


def test_the_example_of_the_design_reads_as_it_means(write: Write) -> None:
    definition = read_definition(write(DESIGN))
    assert definition.load == "sales"
    assert definition.stream.source == "files"
    assert definition.stream.columns["product_id"] == "bigint"
    (product,) = definition.lookups
    assert product.connection == "warehouse"
    assert product.add == {name: name for name in ("surrogate_key", "supplier_id", "sale_price")}
    assert product.memory == 64 * 1024 * 1024
    assert definition.derive == {"total": "quantity * sale_price"}
    assert definition.facts.columns[-1] == "sold_at"
    assert definition.expectations[0]["max_value"] == 1000


def test_what_is_left_out_has_its_documented_default(write: Write, sales: dict[str, Any]) -> None:
    definition = read_definition(write(sales))
    stream, lookup = definition.stream, definition.lookups[0]
    assert (stream.source, stream.options, stream.trigger_interval) == ("files", {}, 1.0)
    assert (stream.max_files_per_batch, stream.max_bytes_per_batch) == (16, None)
    assert (lookup.connection, lookup.stream_key, lookup.unmatched) == (None, "product_id", "park")
    assert (lookup.algorithm, lookup.memory, lookup.defaults, lookup.settings) == ("auto", 64 << 20, {}, {})
    assert definition.facts.partition_by == ()
    assert (definition.enrich.schedule, definition.enrich.run_for, definition.enrich.until_idle) == (
        "@continuous",
        1800.0,
        False,
    )
    assert (definition.resort.schedule, definition.resort.min_gain) == ("@daily", 0.05)
    assert (definition.description, definition.expectations) == ("", ())


def test_every_field_can_be_written(write: Write, sales: dict[str, Any]) -> None:
    sales["stream"] |= {
        "format": "csv",
        "options": {"header": True, "delimiter": ";", "nullValue": ""},
        "trigger_interval": "500ms",
        "max_files_per_batch": 4,
        "max_bytes_per_batch": "256MB",
    }
    sales["lookups"][1] |= {
        "defaults": {"supplier_name": "unknown"},
        "algorithm": "x-hybridjoin",
        "settings": {"hot_rows": 500},
    }
    sales["lookups"][0] |= {"algorithm": "inlj", "memory": "1GB", "unmatched": "fail"}
    sales["facts"]["partition_by"] = ["sold_at"]
    sales["enrich"] = {"schedule": "*/5 * * * *", "run_for": "4m", "until_idle": True}
    sales["resort"] = {"schedule": None, "min_gain": 0}
    definition = read_definition(write(sales))
    assert definition.stream.options == {"header": "true", "delimiter": ";", "nullValue": ""}
    assert definition.stream.trigger_interval == 0.5
    assert definition.stream.max_bytes_per_batch == 256 << 20
    assert definition.lookups[1].defaults == {"supplier_name": "unknown"}
    assert definition.lookups[1].add == {"supplier_name": "name"}
    assert definition.enrich.run_for == 240.0
    assert definition.resort.schedule is None


def test_a_later_lookup_may_use_a_column_of_an_earlier_one_as_key(
    write: Write, sales: dict[str, Any]
) -> None:
    assert read_definition(write(sales)).lookups[1].stream_key == "supplier_id"


def test_a_derived_column_may_use_an_earlier_one_and_stay_out_of_the_facts(
    write: Write, sales: dict[str, Any]
) -> None:
    sales["derive"] = {"net": "quantity * sale_price", "total": "round(net * 1.19, 2)"}
    assert list(read_definition(write(sales)).derive) == ["net", "total"]


def test_column_types_are_normalised(write: Write, sales: dict[str, Any]) -> None:
    sales["stream"]["columns"]["product_id"] = "LONG"
    assert read_definition(write(sales)).stream.columns["product_id"] == "bigint"


@pytest.mark.parametrize("sort_keys", [False, True])
def test_a_definition_recorded_as_json_comes_back_equal_and_in_order(
    write: Write, sales: dict[str, Any], sort_keys: bool
) -> None:
    sales["derive"] = {"z": "quantity * 2", "total": "z + 1"}
    definition = read_definition(write(sales))
    recorded = json.loads(json.dumps(definition.as_dict(), sort_keys=sort_keys))
    again = Definition.from_dict(recorded)
    assert again == definition
    assert again.as_dict() == recorded
    assert list(again.derive) == ["z", "total"]
    assert list(again.stream.columns) == list(definition.stream.columns)


def test_a_definition_without_derived_columns_and_with_freshness_comes_back_equal(
    write: Write, sales: dict[str, Any]
) -> None:
    del sales["derive"]
    sales["facts"]["columns"].remove("total")
    sales["expectations"] = []
    definition = read_definition(write(sales | {"freshness": "1d"}))
    assert definition.freshness == 86400.0
    assert Definition.from_dict(json.loads(json.dumps(definition.as_dict()))) == definition


def test_equal_definitions_written_differently_are_recorded_equally(
    write: Write, sales: dict[str, Any]
) -> None:
    first = read_definition(write(sales)).as_dict()
    sales["lookups"][0] |= {"memory": 64 << 20, "stream_key": "product_id", "unmatched": "park"}
    sales["stream"]["columns"]["quantity"] = "INTEGER"
    assert read_definition(write(sales)).as_dict() == first


def test_a_record_of_another_version_is_refused_in_one_sentence(write: Write, sales: dict[str, Any]) -> None:
    recorded = read_definition(write(sales)).as_dict() | {"from_the_future": 1}
    with pytest.raises(DefinitionError, match="from_the_future"):
        Definition.from_dict(recorded)


def test_a_definition_cannot_be_changed(write: Write, sales: dict[str, Any]) -> None:
    definition = read_definition(write(sales))
    with pytest.raises(pydantic.ValidationError):
        definition.load = "other"


def test_yaml_scalars_that_look_like_something_else_stay_text(write: Write) -> None:
    text = DESIGN.replace("quantity: int", "quantity: int, no: string, on: date, y: int").replace(
        "min_value: 1, max_value: 1000", "min_value: 2024-01-01, description: 12:30"
    )
    definition = read_definition(write(text))
    assert {"no": "string", "on": "date", "y": "int"}.items() <= definition.stream.columns.items()
    assert definition.expectations[0]["min_value"] == "2024-01-01"
    assert definition.expectations[0]["description"] == "12:30"
    json.dumps(definition.as_dict())


def test_anchors_and_merged_mappings_work(write: Write) -> None:
    text = DESIGN.replace("  - name: product\n", "  - &product\n    name: product\n").replace(
        "derive:", "  - {<<: *product, name: other, add: {other_key: surrogate_key}}\nderive:"
    )
    definition = read_definition(write(text))
    assert definition.lookups[1].table == "products"
    assert definition.lookups[1].add == {"other_key": "surrogate_key"}


def test_a_load_is_found_by_its_name_and_not_by_its_file(write: Write, sales: dict[str, Any]) -> None:
    write(sales, "whatever.yml")
    assert find_definition("sales").load == "sales"


def test_an_unknown_load_is_answered_with_the_nearest_name(write: Write, sales: dict[str, Any]) -> None:
    write(sales)
    with pytest.raises(DefinitionError, match=r"no load 'sale' in .*loads.*Did you mean 'sales'\?"):
        find_definition("sale")


def test_one_bad_file_does_not_take_the_others_down(write: Write, sales: dict[str, Any]) -> None:
    write(sales, "good.yaml")
    write("load: [", "broken.yaml")
    write(sales | {"load": "wrong", "lookups": 3}, "wrong.yaml")
    write("not a definition", "notes.txt")
    write("also: [not", ".hidden.yaml")
    definitions, errors = all_definitions()
    assert [definition.load for definition in definitions] == ["sales"]
    assert sorted(str(error).split(" is not")[0].rpartition("/")[2] for error in errors) == [
        "broken.yaml",
        "wrong.yaml",
    ]
    assert find_definition("sales").load == "sales"
    with pytest.raises(DefinitionError, match="lookups = 3"):
        find_definition("wrong")


def test_two_files_with_the_same_load_are_both_refused(write: Write, sales: dict[str, Any]) -> None:
    write(sales, "a.yaml")
    write(sales | {"load": "Sales"}, "b.yaml")
    write(sales | {"load": "other"}, "c.yaml")
    definitions, errors = all_definitions()
    assert [definition.load for definition in definitions] == ["other"]
    assert len(errors) == 2
    assert "a.yaml is not a usable load definition" in str(errors[0])
    assert "load = 'sales': b.yaml defines this load too. Rename or remove one of them." in str(errors[0])
    with pytest.raises(DefinitionError, match="defines this load too"):
        find_definition("sales")


def test_a_missing_folder_is_an_error_that_names_the_variable(loads: Path) -> None:
    loads.rmdir()
    definitions, errors = all_definitions()
    assert definitions == []
    assert "FRESHET_LOADS" in str(errors[0])
    with pytest.raises(DefinitionError, match="FRESHET_LOADS"):
        find_definition("sales")


def test_an_empty_folder_has_no_loads_and_no_errors(loads: Path) -> None:
    assert all_definitions() == ([], [])


def test_the_definitions_that_come_with_freshet_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRESHET_LOADS", raising=False)
    definitions, errors = all_definitions()
    assert errors == []
    sales = next(definition for definition in definitions if definition.load == "sales")
    assert sales.enrich.schedule is None
    assert sales.enrich.until_idle


def test_reading_definitions_imports_nothing_slow() -> None:
    program = (
        "import sys; from freshet.config import all_definitions; definitions, errors = all_definitions();"
        "assert definitions and not errors;"
        "slow = {'pyarrow', 'pandas', 'pyspark', 'duckdb', 'sqlglot', 'numpy', 'deltalake', 'croniter'};"
        "sys.exit(', '.join(slow & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_reference_names_every_field_and_every_type() -> None:
    from freshet.config import types
    from freshet.config.models import Definition, Enrich, Facts, Lookup, Resort, Stream

    reference = (PROJECT / "docs" / "load-definitions.md").read_text()
    fields = [
        name for model in (Definition, Stream, Lookup, Facts, Enrich, Resort) for name in model.model_fields
    ]
    assert [name for name in fields if f"`{name}`" not in reference] == []
    assert [name for name in types.SUPPORTED if f"`{name}`" not in reference] == []


def test_the_examples_of_the_reference_are_right(write: Write) -> None:
    reference = (PROJECT / "docs" / "load-definitions.md").read_text()
    examples = [part.partition("```")[0] for part in reference.split("```yaml\n")[1:]]
    whole = [example for example in examples if yaml.safe_load(example).get("load")]
    assert whole
    for example in whole:
        read_definition(write(example))
