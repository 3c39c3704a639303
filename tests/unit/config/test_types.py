"""Column types are Spark's, normalised, and each has its Arrow type."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from freshet.config import types
from freshet.config.types import ColumnTypeError, is_nested, normalise, to_arrow, to_ddl
from freshet.errors import FreshetError

UTC = datetime.UTC
ARROW: dict[str, tuple[pa.DataType, Any]] = {
    "tinyint": (pa.int8(), -128),
    "smallint": (pa.int16(), -32768),
    "int": (pa.int32(), 2**31 - 1),
    "bigint": (pa.int64(), 2**63 - 1),
    "float": (pa.float32(), 0.5),
    "double": (pa.float64(), 0.1),
    "boolean": (pa.bool_(), True),
    "string": (pa.string(), "größe"),
    "binary": (pa.binary(), b"\x00\xff"),
    "date": (pa.date32(), datetime.date(2024, 2, 29)),
    "timestamp": (pa.timestamp("us", tz="UTC"), datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)),
    "timestamp_ntz": (pa.timestamp("us"), datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)),  # noqa: DTZ001
    "decimal(10,2)": (pa.decimal128(10, 2), decimal.Decimal("12345678.90")),
    "decimal(38,38)": (pa.decimal128(38, 38), decimal.Decimal("0.00000000000000000000000000000000000001")),
    "array<int>": (pa.list_(pa.field("element", pa.int32())), [1, None, 3]),
    "map<string,double>": (pa.map_(pa.string(), pa.float64()), [("a", 1.5), ("b", None)]),
    "struct<city:string,zip:int>": (
        pa.struct([("city", pa.string()), ("zip", pa.int32())]),
        {"city": "Passau", "zip": None},
    ),
    "array<struct<tags:map<string,array<decimal(5,1)>>>>": (
        pa.list_(
            pa.field(
                "element",
                pa.struct(
                    [("tags", pa.map_(pa.string(), pa.list_(pa.field("element", pa.decimal128(5, 1)))))]
                ),
            )
        ),
        [{"tags": [("a", [decimal.Decimal("1.5"), None])]}],
    ),
}


def test_every_supported_type_is_among_those_tested() -> None:
    tested = {ddl.partition("(")[0].partition("<")[0] for ddl in ARROW}
    assert {ddl.partition("(")[0].partition("<")[0] for ddl in types.SUPPORTED} == tested


@pytest.mark.parametrize("ddl", ARROW)
def test_a_type_has_its_arrow_type_and_the_arrow_type_its_name(ddl: str) -> None:
    assert to_arrow(ddl) == ARROW[ddl][0]
    assert to_ddl(to_arrow(ddl)) == ddl


@pytest.mark.parametrize("ddl", ARROW)
def test_a_value_and_a_null_of_each_type_survive_arrow_and_delta(ddl: str, tmp_path: Path) -> None:
    column = pa.array([ARROW[ddl][1], None], type=to_arrow(ddl))
    write_deltalake(str(tmp_path / "table"), pa.table({"n": [0, 1], "column": column}))
    read = pa.table(DeltaTable(str(tmp_path / "table")).to_pyarrow_table()).sort_by("n")["column"]
    assert read.to_pylist() == column.to_pylist()
    assert to_ddl(read.type) == ddl


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("BIGINT", "bigint"),
        ("long", "bigint"),
        ("integer", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("decimal", "decimal(10,0)"),
        ("dec(5)", "decimal(5,0)"),
        (" NUMERIC ( 12 , 3 ) ", "decimal(12,3)"),
        ("Array< Long >", "array<bigint>"),
        ("map<string, integer>", "map<string,int>"),
        ("struct<a: INT, b string>", "struct<a:int,b:string>"),
        ("struct<Name:string>", "struct<Name:string>"),
    ],
)
def test_aliases_case_and_spaces_are_normalised(written: str, normal: str) -> None:
    assert normalise(written) == normal


SIMPLE = st.sampled_from([*types.SIMPLE, "decimal(7,3)"])
NESTED = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(lambda t: f"array<{t}>"),
        st.tuples(SIMPLE, inner).map(lambda kv: f"map<{kv[0]},{kv[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: f"struct<{','.join(f'f{n}:{t}' for n, t in enumerate(parts))}>"
        ),
    ),
    max_leaves=6,
)


@given(NESTED)
def test_any_nesting_comes_back_from_arrow_as_it_was(ddl: str) -> None:
    assert normalise(ddl) == ddl
    assert to_ddl(to_arrow(ddl)) == ddl


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("varchar(20)", "Did you mean string"),
        ("datetime", "Did you mean timestamp"),
        ("bigit", "Did you mean bigint"),
        ("intger", "Did you mean int?"),
        ("interval", "not supported"),
        ("variant", "not supported"),
        ("void", "not supported"),
        ("", "not a type"),
        (7, "not a type"),
        (None, "not a type"),
        ("decimal(39,2)", "out of range"),
        ("decimal(5,6)", "out of range"),
        ("decimal(0,0)", "out of range"),
        ("decimal(x,2)", "where a number belongs"),
        ("decimal(10", "needs quotes"),
        ("array", "ends too early"),
        ("array<int", "ends too early"),
        ("array(int)", "where '<' belongs"),
        ("array<int>>", "after its end"),
        ("int not null", "after its end"),
        ("map<string>", "where ',' belongs"),
        ("map<map<int,int>,int>", "map as a map's key"),
        ("map<array<map<int,int>>,int>", "map as a map's key"),
        ("struct<>", "field called '>'"),
        ("struct<a:int,A:int>", "twice"),
        ("struct<_a:int>", "field called '_a'"),
        ("array<" * 99 + "int" + ">" * 99, "nested too deeply"),
    ],
)
def test_a_type_that_cannot_be_is_refused_with_what_to_write(ddl: Any, said: str) -> None:
    with pytest.raises(ColumnTypeError) as refused:
        normalise(ddl)
    assert said in str(refused.value)
    assert str(ddl) in str(refused.value)
    assert isinstance(refused.value, FreshetError)


@pytest.mark.parametrize(
    ("arrow", "ddl"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(16), "binary"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.timestamp("s", tz="Europe/Berlin"), "timestamp"),
        (pa.large_list(pa.int8()), "array<tinyint>"),
        (pa.list_(pa.int8(), 3), "array<tinyint>"),
    ],
)
def test_arrow_types_that_hold_the_same_values_have_the_same_name(arrow: pa.DataType, ddl: str) -> None:
    assert to_ddl(arrow) == ddl


@pytest.mark.parametrize(
    "arrow",
    [pa.uint64(), pa.timestamp("ns"), pa.null(), pa.time64("us"), pa.duration("s"), pa.float16(), pa.date64(),
     pa.decimal256(50, 2), pa.struct([]), pa.list_(pa.uint8())],
)  # fmt: skip
def test_arrow_types_that_delta_would_change_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(ColumnTypeError, match="has no equal in Delta"):
        to_ddl(arrow)


def test_only_types_with_parts_are_nested() -> None:
    assert is_nested("array<int>")
    assert is_nested("struct<a:int>")
    assert is_nested("map<int,int>")
    assert not is_nested("decimal(10,2)")
