"""What ended a streaming query, told to people."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.errors import LoadStateError
from freshet.streaming.checkpoint import Checkpoint
from freshet.streaming.enrich import Query

LOG = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 0."
COMMITS = "[STREAM_FAILED] … exception: Concurrent update to the log. Multiple streaming jobs detected for 1"
START = "org.apache.spark.sql.streaming.SparkConcurrentModificationException: another attempt to start query"
FILES = (
    "[STREAM_FAILED] … Multiple streaming queries are concurrently using file:/c/sources/0. SQLSTATE: XXKST"
)
FIRST = (
    "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location offsets should be empty on batch 0"
)


@pytest.mark.parametrize(
    "said", [LOG, COMMITS, START, FILES, FIRST], ids=["log", "commits", "start", "files", "first"]
)
def test_a_second_driver_on_the_checkpoint_is_named(said: str, tmp_path: Path) -> None:
    run: Any = SimpleNamespace(checkpoint=Checkpoint(tmp_path))
    with pytest.raises(LoadStateError, match="Another driver works on the checkpoint"):
        Query(run, loader=Any, only_one=False)._explain(RuntimeError(said))  # type: ignore[arg-type]
