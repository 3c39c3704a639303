"""Every supported column type comes through the stream into the fact table as it was, nulls included."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from freshet.config.types import SIMPLE, to_arrow
from tests.integration.loads import SmallLoad, master_table

VALUES: dict[str, Any] = {
    "tinyint": -128,
    "smallint": 32_767,
    "int": -(2**31),
    "bigint": 2**63 - 1,
    "float": 0.5,
    "double": 1e300,
    "boolean": True,
    "string": "Grüße, 'world' \"quoted\"",
    "binary": b"\x00\xff",
    "date": date(1969, 12, 31),
    "timestamp": datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
    "timestamp_ntz": datetime(2026, 3, 29, 2, 30, 0, 654321),  # noqa: DTZ001
    "decimal(38,9)": Decimal("12345678901234567890123456789.123456789"),
    "array<int>": [1, None, 3],
    "map<string,double>": [("a", 1.5), ("b", None)],
    "struct<x:int,y:array<string>>": {"x": 7, "y": ["p", "q"]},
}
DECIMAL = "the decimal"
COLUMNS = {f"c{number}": ddl for number, ddl in enumerate(VALUES)}
NOT_IN_CSV = ("binary", "array", "map", "struct")
CSV_COLUMNS = {name: ddl for name, ddl in COLUMNS.items() if not ddl.startswith(NOT_IN_CSV)}

DEFINITION = """
    load: types
    description: One column of every type
    stream:
      source: files
      path: stream/types
      format: {format}
      columns: {columns}
      event_id: id
    lookups:
      - {{name: thing, table: things, key: k, add: [label], memory: 1MB}}
    facts: {{table: facts, columns: {facts}}}
"""


@pytest.fixture
def types(freshet_home: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLoad:
    monkeypatch.setenv("FRESHET_LOADS", str(freshet_home / "definitions"))
    master_table("things (k bigint primary key, label varchar(10))", [(1, "one")])
    return SmallLoad("types", definition("parquet"))


def definition(source_format: str, columns: Mapping[str, str] = COLUMNS) -> str:
    return DEFINITION.format(
        format=source_format,
        columns=json.dumps({"id": "string", "k": "bigint", **columns}),
        facts=json.dumps(["id", "label", *columns]),
    )


def test_every_simple_type_has_a_value_here() -> None:
    assert set(SIMPLE) <= set(VALUES)


def test_csv_fields_of_every_simple_type_but_binary(spark: SparkSession, types: SmallLoad) -> None:
    types.define(definition("csv", CSV_COLUMNS))
    text = io.StringIO()
    writer = csv.writer(text, escapechar="\\", doublequote=False, lineterminator="\n")
    writer.writerow(["full", 1, *(as_csv(VALUES[ddl]) for ddl in CSV_COLUMNS.values())])
    writer.writerow(["null", 1, *(None for _ in CSV_COLUMNS)])
    types.feed(text.getvalue(), "csv")
    types.publish()
    types.run(spark)
    assert types.parked().num_rows == 0, types.parked().to_pylist()
    full, null = sorted(types.facts().to_pylist(), key=lambda row: str(row["id"]))
    assert {name: full[name] for name in CSV_COLUMNS} == {n: VALUES[ddl] for n, ddl in CSV_COLUMNS.items()}
    assert {null[name] for name in CSV_COLUMNS} == {None}


def test_parquet_columns_of_every_type(spark: SparkSession, types: SmallLoad) -> None:
    columns = {name: pa.array([value, None] * 2, to_arrow(ddl)) for (name, ddl), value in zip_values()}
    ids = ["full", "null", "full and unmatched", "null and unmatched"]
    table = pa.table({"id": ids, "k": pa.array([1, 1, 2, 2], pa.int64()), **columns})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    types.feed(buffer.getvalue(), "parquet")
    types.publish()
    types.run(spark)
    full, null = sorted(types.facts().to_pylist(), key=lambda row: str(row["id"]))
    assert {name: full[name] for name in COLUMNS} == {name: value for (name, _), value in zip_values()}
    assert {null[name] for name in COLUMNS} == {None}
    raw = {record["id"]: record for record in map(parse_exactly, types.parked()["raw"].to_pylist())}
    lost = {"id": "null and unmatched", "k": 2, **dict.fromkeys(COLUMNS)}
    assert raw == {lost["id"]: lost, "full and unmatched": raw["full and unmatched"]}
    full = raw["full and unmatched"]
    assert {name: full[name] for name in COLUMNS} == {
        name: in_raw(value) for (name, _), value in zip_values()
    }


def test_json_fields_of_every_type(spark: SparkSession, types: SmallLoad) -> None:
    types.define(definition("json"))
    record = {"id": "full", "k": 1, **{name: as_json(value) for (name, _), value in zip_values()}}
    # Python's json would write the decimal as a float.
    text = json.dumps(record).replace(f'"{DECIMAL}"', str(VALUES["decimal(38,9)"]))
    types.feed(text + "\n" + json.dumps({"id": "null", "k": 1}) + "\n")
    types.publish()
    types.run(spark)
    assert types.parked().num_rows == 0, types.parked().to_pylist()
    full, null = sorted(types.facts().to_pylist(), key=lambda row: str(row["id"]))
    assert {name: full[name] for name in COLUMNS} == {name: value for (name, _), value in zip_values()}
    assert {null[name] for name in COLUMNS} == {None}


def zip_values() -> list[tuple[tuple[str, str], Any]]:
    return [((name, ddl), VALUES[ddl]) for name, ddl in COLUMNS.items()]


def as_json(value: Any) -> Any:
    """A value as a JSON record carries it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return DECIMAL
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


def parse_exactly(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def in_raw(value: Any) -> Any:
    """A value as the raw record of a Parquet row has it."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return value
    return parse_exactly(json.dumps(as_json(value)))


def as_csv(value: Any) -> str:
    """A value as a CSV record carries it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
