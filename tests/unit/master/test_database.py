"""Master tables are read with the types they were declared with, and every value is checked."""

from __future__ import annotations

import sqlite3
from typing import Any

import pyarrow as pa
import pytest

from freshet.errors import MasterError
from freshet.home import embedded_database
from freshet.master import database
from freshet.master.column_types import arrow_type
from freshet.master.connections import engine_for
from freshet.master.database import read_batches, table_schema
from tests.masterdata import sqlite_table

WALL_CLOCK, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")

MYSQL_TYPES = {
    "tinyint(4)": pa.int8(),
    "tinyint(3) unsigned": pa.int16(),
    "tinyint(1)": pa.bool_(),
    "bit(1)": pa.bool_(),
    "smallint(6)": pa.int16(),
    "smallint unsigned": pa.int32(),
    "mediumint(9)": pa.int32(),
    "mediumint(8) unsigned zerofill": pa.int32(),
    "int": pa.int32(),
    "int(10) unsigned": pa.int64(),
    "bigint(20)": pa.int64(),
    "bigint(20) unsigned": pa.decimal128(20, 0),
    "year(4)": pa.int16(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,0) unsigned": pa.decimal128(38, 0),
    "float": pa.float32(),
    "float(5,2)": pa.float32(),
    "double": pa.float64(),
    "double(8,3) unsigned": pa.float64(),
    "char(3)": pa.string(),
    "varchar(255)": pa.string(),
    "longtext": pa.string(),
    "enum('a','b(1)')": pa.string(),
    "set('x','y')": pa.string(),
    "json": pa.string(),
    "uuid": pa.string(),
    "binary(16)": pa.binary(),
    "varbinary(20)": pa.binary(),
    "mediumblob": pa.binary(),
    "date": pa.date32(),
    "datetime": WALL_CLOCK,
    "datetime(6)": WALL_CLOCK,
    "timestamp": INSTANT,
    "timestamp(3)": INSTANT,
}
SQLITE_TYPES = {
    "INTEGER": pa.int64(),
    "INT": pa.int64(),
    "UNSIGNED BIG INT": pa.int64(),
    "BIGINT UNSIGNED": pa.int64(),
    "MEDIUMINT": pa.int32(),
    "SMALLINT": pa.int16(),
    "INT2": pa.int16(),
    "TINYINT": pa.int8(),
    "BOOLEAN": pa.bool_(),
    "REAL": pa.float64(),
    "FLOAT": pa.float64(),
    "DOUBLE PRECISION": pa.float64(),
    "NUMERIC(9, 3)": pa.decimal128(9, 3),
    "TEXT": pa.string(),
    "VARYING CHARACTER(20)": pa.string(),
    "NVARCHAR(100)": pa.string(),
    "CLOB": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "DATETIME": WALL_CLOCK,
    "TIMESTAMP": INSTANT,
}


@pytest.mark.parametrize(("declared", "arrow"), MYSQL_TYPES.items())
def test_types_of_mysql(declared: str, arrow: pa.DataType) -> None:
    assert arrow_type(declared, "mysql") == arrow


@pytest.mark.parametrize(("declared", "arrow"), SQLITE_TYPES.items())
def test_types_of_sqlite(declared: str, arrow: pa.DataType) -> None:
    assert arrow_type(declared, "sqlite") == arrow


@pytest.mark.parametrize(
    "declared", ["time", "bit(8)", "geometry", "decimal(39,2)", "", "numeric", "vector(3)"]
)
def test_a_type_that_cannot_be_read_is_refused_with_column_and_type(declared: str) -> None:
    sqlite_table(f"CREATE TABLE t (id INTEGER, odd {declared})", [])
    with pytest.raises(
        MasterError, match=r"column 'odd' of table 't' has the type '.*', which cannot be read"
    ):
        table_schema(engine_for(None), "t", ["id", "odd"])


def test_a_missing_table_is_refused_with_those_there_are() -> None:
    sqlite_table("CREATE TABLE apples (id INTEGER)", [])
    sqlite_table("CREATE TABLE pears (id INTEGER)", [])
    with pytest.raises(MasterError, match=r"no table 'plums' in SQLite .*; it has apples, pears$"):
        table_schema(engine_for(None), "plums", ["id"])


def test_an_empty_database_says_so() -> None:
    with pytest.raises(MasterError, match="it has no tables at all"):
        table_schema(engine_for(None), "plums", ["id"])


def test_a_missing_column_is_refused_with_those_there_are() -> None:
    sqlite_table("CREATE TABLE t (id INTEGER, name TEXT)", [])
    with pytest.raises(MasterError, match=r"table 't' in .* has no column price, colour; it has id, name$"):
        table_schema(engine_for(None), "t", ["id", "price", "colour"])


@pytest.mark.parametrize("declared", ["REAL", "DECIMAL(10,0)", "BLOB", "DATE", "BOOLEAN"])
def test_a_key_is_an_integer_or_text(declared: str) -> None:
    sqlite_table(f"CREATE TABLE t (id {declared})", [])
    with pytest.raises(MasterError, match=r"column 'id' of table 't' is a .* and cannot be a key"):
        table_schema(engine_for(None), "t", ["id"], key="id")


WRONG: list[tuple[str, Any]] = [
    ("BIGINT", "seven"), ("BIGINT", 1.5), ("BIGINT", b"7"), ("SMALLINT", 40000), ("TINYINT", 200),
    ("MEDIUMINT", 2**40), ("BOOLEAN", 2), ("BOOLEAN", "true"), ("REAL", "much"), ("REAL", b"1"),
    ("DECIMAL(5,2)", "x"), ("DECIMAL(5,2)", 1.234), ("DECIMAL(5,2)", 1234), ("DECIMAL(5,2)", float("inf")),
    ("TEXT", b"\xff"), ("BLOB", "text"), ("DATE", "2026-02-30"), ("DATE", 20260101), ("DATE", "yesterday"),
    ("DATETIME", "2026-01-01T00:00:00+01:00"), ("DATETIME", 1700000000), ("TIMESTAMP", "soon"),
    ("TIMESTAMP", 1700000000),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value"), WRONG)
def test_a_value_that_is_not_of_its_columns_type_is_refused(declared: str, value: Any) -> None:
    sqlite_table(f"CREATE TABLE t (id INTEGER, v {declared})", [(1, None), (22, value)])
    with pytest.raises(
        MasterError, match=r"table 't': column 'v' holds .* in the row with id = 22, which is not"
    ):
        list(read_batches(engine_for(None), "t", ["id", "v"], key="id"))


def test_a_long_wrong_value_is_shown_shortened() -> None:
    sqlite_table("CREATE TABLE t (id INTEGER, v BIGINT)", [(1, "x" * 5000)])
    with pytest.raises(MasterError) as refused:
        list(read_batches(engine_for(None), "t", ["id", "v"], key="id"))
    assert len(str(refused.value)) < 400


def test_names_that_need_quoting_are_quoted() -> None:
    with sqlite3.connect(embedded_database()) as connection:
        connection.execute('CREATE TABLE "odd ""name" (id INTEGER, "select" TEXT, "a b" REAL)')
        connection.execute('INSERT INTO "odd ""name" VALUES (1, \'x\', 2.5)')
    connection.close()
    (batch,) = read_batches(engine_for(None), 'odd "name', ["a b", "select"])
    assert batch.to_pylist() == [{"a b": 2.5, "select": "x"}]


def test_a_view_is_read_like_a_table() -> None:
    sqlite_table("CREATE TABLE t (id INTEGER, v TEXT)", [(1, "a"), (2, "b")])
    with sqlite3.connect(embedded_database()) as connection:
        connection.execute("CREATE VIEW only_b AS SELECT * FROM t WHERE v = 'b'")
    connection.close()
    (batch,) = read_batches(engine_for(None), "only_b", ["id"], key="id")
    assert batch.column("id").to_pylist() == [2]


def test_batches_are_bounded_in_bytes() -> None:
    sqlite_table("CREATE TABLE t (id INTEGER, v TEXT)", [(i, "x" * 50_000) for i in range(1200)])
    batches = list(read_batches(engine_for(None), "t", ["id", "v"]))
    assert sum(len(batch) for batch in batches) == 1200
    assert max(batch.nbytes for batch in batches) <= 1.5 * database.BATCH_BYTES


def test_batches_are_bounded_in_bytes_when_wide_rows_follow_narrow_ones() -> None:
    widths = [10] * 60_000 + [20_000] * 2_000 + [10] * 60_000
    sqlite_table("CREATE TABLE t (id INTEGER, v TEXT)", [(i, "x" * width) for i, width in enumerate(widths)])
    batches = list(read_batches(engine_for(None), "t", ["id", "v"]))
    read = pa.Table.from_batches(batches)
    assert read["id"].to_pylist() == list(range(len(widths)))
    assert [len(value) for value in read["v"].to_pylist()] == widths
    assert max(batch.nbytes for batch in batches) <= 1.2 * database.BATCH_BYTES
    assert len(batches) < 20, "narrow rows are not handed on in small pieces"


def test_an_empty_table_has_no_batches() -> None:
    sqlite_table("CREATE TABLE t (id INTEGER)", [])
    assert list(read_batches(engine_for(None), "t", ["id"])) == []
