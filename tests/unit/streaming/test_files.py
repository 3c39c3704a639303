"""Which files of a batch are refused, and which errors are not the file's."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.config import Definition
from freshet.errors import LoadStateError
from freshet.streaming.files import GONE, refused_files


def load(source_format: str, columns: dict[str, str], **options: str) -> Definition:
    stream = {"path": "s", "format": source_format, "columns": columns, "event_id": "order_no"}
    return Definition.model_validate(
        {
            "load": "files",
            "stream": {**stream, "options": options},
            "lookups": [{"name": "l", "table": "t", "key": "k", "stream_key": "order_no", "add": ["x"]}],
            "facts": {"table": "f", "columns": ["order_no", "x"]},
        }
    )


def problem(definition: Definition, file: Path) -> str | None:
    return refused_files(definition, (file.as_uri(),)).get(file.as_uri())


@pytest.fixture
def of_parquet(tmp_path: Path) -> Any:
    """What is wrong with a Parquet file that has these columns, when a definition wants column c so."""

    def found(columns: dict[str, pa.Array], ddl: str, **options: Any) -> str | None:
        pq.write_table(pa.table(columns), tmp_path / "a.parquet", **options)
        return problem(load("parquet", {"order_no": "string", "c": ddl}), tmp_path / "a.parquet")

    return found


def test_other_types_inside_a_column_are_refused(of_parquet: Any) -> None:
    def inside(found: pa.Array, ddl: str) -> str | None:
        return of_parquet({"c": found}, ddl)

    assert inside(pa.array([[1, 2]]), "array<bigint>") is None
    assert inside(pa.array([[1]], pa.list_(pa.int32())), "array<bigint>") is None
    assert inside(pa.array([{"a": 1, "more": "x"}]), "struct<a:bigint>") is None
    assert inside(pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "map<string,bigint>") is None
    assert "array<int>" in (inside(pa.array([["a"]]), "array<int>") or "")
    assert "struct" in (inside(pa.array([{"a": "x"}]), "struct<a:int>") or "")
    assert "struct" in (inside(pa.array([{"A": "x"}]), "struct<a:int>") or "")
    text_map = pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string()))
    assert "map" in (inside(text_map, "map<string,int>") or "")


def test_large_types_and_old_times_are_those_that_spark_reads(of_parquet: Any) -> None:
    lists = pa.array([["a"]], pa.large_list(pa.large_string()))
    assert of_parquet({"c": lists}, "array<string>") is None
    assert "large_list" in of_parquet({"c": lists}, "array<int>")
    assert of_parquet({"c": pa.array([b"a"], pa.large_binary())}, "binary") is None
    times = {"c": pa.array([0], pa.timestamp("us", "UTC"))}
    assert of_parquet(times, "timestamp", use_deprecated_int96_timestamps=True) is None
    assert of_parquet(times, "date", use_deprecated_int96_timestamps=True)


def test_case_does_not_tell_two_columns_apart(of_parquet: Any) -> None:
    assert of_parquet({"C": pa.array([1], pa.int32())}, "int") is None
    assert of_parquet({"C": pa.array(["x"])}, "int") == "column 'C' is string, not int"
    assert of_parquet({"c": pa.array([1]), "C": pa.array([1])}, "bigint") == "column 'c' is there 2 times"


def test_a_header_with_a_byte_order_mark_is_a_header(tmp_path: Path) -> None:
    definition = load("csv", {"order_no": "string"}, header="true")
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbforder_no\r\n1\r\n")
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbfnumber\n1\n")
    assert problem(definition, tmp_path / "a.csv") is None
    assert problem(definition, tmp_path / "b.csv") == "the header names number; the definition names order_no"


@pytest.mark.parametrize(
    ("options", "text", "told"),
    [
        ({}, "order_no,c\n", None),
        ({}, "\n \r\norder_no,c\n", None),
        ({}, "\nc,order_no\n", "the header names c, order_no; the definition names order_no, c"),
        ({}, "\n\n", None),
        ({"quote": "'"}, "'order_no','c'\n", None),
        (
            {"quote": "'"},
            '"order_no",c\n',
            'the header names "order_no", c; the definition names order_no, c',
        ),
        ({"delimiter": ";", "quote": "|", "escape": "^"}, "|order_no|;|c|\n", None),
    ],
)
def test_a_header_is_read_with_the_options_of_the_stream(
    tmp_path: Path, options: dict[str, str], text: str, told: str | None
) -> None:
    definition = load("csv", {"order_no": "string", "c": "int"}, header="true", **options)
    (tmp_path / "a.csv").write_text(text)
    assert problem(definition, tmp_path / "a.csv") == told


@pytest.mark.parametrize("source_format", ["json", "csv", "parquet"])
def test_a_file_is_refused_when_it_is_gone_and_not_when_the_machine_cannot_read_it(
    tmp_path: Path, source_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = load(source_format, {"order_no": "string"})
    assert problem(definition, tmp_path / "a") == GONE

    def fail(*given: Any, **options: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(LoadStateError, match=r"Too many open files.*run enrich again"):
        problem(definition, tmp_path / "a")
