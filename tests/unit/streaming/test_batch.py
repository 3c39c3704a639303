"""Steps of a batch that need no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from freshet.config import Definition
from freshet.home import LoadHome
from freshet.streaming.batch import BatchLoader
from freshet.streaming.ledger import Tally, ledger_row
from freshet.streaming.plan import Plan, create_plan
from freshet.streaming.planning import Planner
from freshet.streaming.tables import LoadTables, append_row

EVENTS: dict[str, Any] = {
    "load": "events",
    "stream": {"path": "in", "format": "json", "columns": {"id": "string"}, "event_id": "id"},
    "lookups": [{"name": "l", "table": "t", "key": "k", "stream_key": "id", "add": ["x"]}],
    "facts": {"table": "facts", "columns": ["id", "x"]},
}
FACTS = StructType(
    [StructField("id", StringType()), StructField("x", LongType()), StructField("_batch", LongType())]
)


class Begun:
    """Batch 0 of a load, planned from one stream file and one snapshot."""

    def __init__(self, home: Path) -> None:
        self.steps: list[tuple[str, int]] = []
        self.file = home / "in" / "a.json"
        self.file.parent.mkdir()
        self.file.write_text('{"id": "a"}\n')
        state = LoadHome("events")
        (state.checkpoint / "offsets").mkdir(parents=True)
        (state.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"logOffset": 0}')
        (state.checkpoint / "sources" / "0").mkdir(parents=True)
        source = json.dumps({"path": self.file.as_uri(), "batchId": 0})
        (state.checkpoint / "sources" / "0" / "0").write_text(f"v1\n{source}")
        state.stream_id.write_text(json.dumps({"stream_id": "s"}))
        (state.snapshots("l") / "v000001").mkdir(parents=True)
        definition = Definition.model_validate(EVENTS)
        planner = Planner(definition, stream_id="s", splits={}, time_zone="UTC")
        self.loader = BatchLoader(None, planner, lambda *step: self.steps.append(step))  # type: ignore[arg-type]
        self.input = self.loader.checkpoint.batch_input(0)
        self.plan = create_plan("events", planner.propose(0, self.input))
        self.tables = LoadTables(definition)
        self.tables.create(None, FACTS)  # type: ignore[arg-type]


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path))
    return Begun(tmp_path)


def in_ledger(plan: Plan) -> dict[str, Any]:
    tally = Tally(rows_in=1)
    tally.parked_by_reason["unmatched"] = 1
    return ledger_row(plan, tally, None, None, datetime.now(UTC), {"join": 1.0})


def test_of_a_batch_that_is_in_the_ledger_nothing_is_done_again(begun: Begun) -> None:
    row = in_ledger(begun.plan)
    append_row(row, begun.tables.batches, "s", 0)
    begun.file.unlink()
    (LoadHome("events").snapshots("l") / "v000001").rmdir()
    found = begun.loader.load(None, 0)  # type: ignore[arg-type]
    assert {name: found[name] for name in row if name != "lookups"} == {
        name: value for name, value in row.items() if name != "lookups"
    }
    assert begun.steps == [("plan", 0), ("commit", 0)]
