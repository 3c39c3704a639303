"""What may partition the facts, told from the types that the fact table would have."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, StringType, StructField, StructType

from freshet.config import Definition, read_definition
from freshet.errors import DefinitionError
from freshet.streaming.partitions import check_partitions

EVENTS = """
load: events
stream: {path: in, format: json, columns: {id: string, k: bigint}, event_id: id}
lookups: [{name: l, table: t, key: k, add: [x]}]
facts:
  table: facts
  columns: [id, x]
  partition_by: [x]
"""


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Definition:
    monkeypatch.setenv("FRESHET_LOADS", str(tmp_path))
    (tmp_path / "events.yaml").write_text(EVENTS)
    return read_definition(tmp_path / "events.yaml")


def with_x(kind: DataType) -> StructType:
    return StructType([StructField("id", StringType()), StructField("x", kind)])


@pytest.mark.parametrize(
    ("kind", "told"),
    [(ArrayType(StringType()), r"a column with parts \(array<string>\)"), (BinaryType(), "a binary column")],
)
def test_an_added_column_that_cannot_partition_is_named_with_file_and_line(
    events: Definition, tmp_path: Path, kind: DataType, told: str
) -> None:
    place = rf"{tmp_path / 'events.yaml'} .*\n  line 8: facts\.partition_by\[0\] = 'x': "
    with pytest.raises(DefinitionError, match=rf"{place}{told} .*Choose another column"):
        check_partitions(events, with_x(kind))


def test_an_edited_file_is_not_blamed_for_what_was_read_before(events: Definition, tmp_path: Path) -> None:
    (tmp_path / "events.yaml").write_text(EVENTS.replace("[x]\n", "[id]\n"))
    with pytest.raises(
        DefinitionError, match=r"^The definition of load 'events' .* facts\.partition_by\[0\]"
    ):
        check_partitions(events, with_x(BinaryType()))


@pytest.mark.parametrize("kind", [StringType(), LongType()])
def test_a_column_of_single_values_may_partition(events: Definition, kind: DataType) -> None:
    check_partitions(events, with_x(kind))
