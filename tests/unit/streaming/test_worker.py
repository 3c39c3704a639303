"""What a worker does with the records of a partition, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from freshet.streaming.records import BROKEN, SOUND
from freshet.streaming.worker import META_FIELDS, PARKED, STATS, PartitionTask

COLUMNS = {"id": "string", "place": "string"}
TABS_ONLY = ("\t", SOUND)
"""Between two tabs CSV has a record of nulls."""


def of_tabbed_csv(*lines: tuple[str, int]) -> list[dict[str, object]]:
    """What comes of lines, given with how far Spark's parser believes them."""
    fields = [[*line.split("\t"), None] for line, _ in lines]
    batch = pa.record_batch(
        {
            "id": pa.array([values[0] or None for values in fields], pa.string()),
            "place": pa.array([values[1] or None for values in fields], pa.string()),
            "_raw": [line for line, _ in lines],
            "_file": ["file:/a.csv"] * len(lines),
            "_block": [0] * len(lines),
            "_suspect": pa.array([trust for _, trust in lines], pa.int8()),
        }
    )
    schema = pa.schema([*((name, pa.string()) for name in COLUMNS), *META_FIELDS])
    task = PartitionTask("load", "csv", COLUMNS, "id", False, "\t", (), schema)
    rows = [row for part in task([batch]) for row in part.to_pylist()]
    return [row for row in rows if row["_kind"] != STATS]


@pytest.mark.parametrize("neighbour", [("a\tb", SOUND), ("", BROKEN), ("x", BROKEN)])
def test_a_csv_line_of_tabs_is_a_record_whatever_stands_beside_it(neighbour: tuple[str, int]) -> None:
    rows = of_tabbed_csv(TABS_ONLY, neighbour)
    parked = {row["_row"]: row["_reason"] for row in rows if row["_kind"] == PARKED}
    assert parked.pop(0) == "null_event_id"
    assert parked == ({1: "malformed"} if neighbour[0] == "x" else {})
