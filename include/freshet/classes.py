"""The archive of Java's classes: with it a Spark driver starts on two thirds of the computing.

A short-lived driver spends most of its time on loading and verifying some twenty thousand classes. Java can
keep them as they are after that (class data sharing). `python -m freshet.classes` runs a tiny load, has the
JVM write down what it has loaded, and sessions then start from the archive. A JVM that the archive does not
fit, another Java say, goes on without it.
"""

from __future__ import annotations

import json
import os
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from sqlalchemy import text

from freshet.config import find_definition
from freshet.home import LoadHome
from freshet.master.bulk import bulk_load
from freshet.master.connections import engine_for
from freshet.queries import query
from freshet.sorting import sort

LOAD = "training"
DEFINITION = f"""
load: {LOAD}
description: A load that uses what most loads use
stream:
  source: files
  path: stream
  format: json
  columns: {{id: string, key: bigint, quantity: int, at: timestamp}}
  event_id: id
  event_time: at
  max_files_per_batch: 1
lookups:
  - {{name: thing, table: things, key: key, add: [name, price], memory: 1MB}}
derive: {{total: quantity * price}}
facts: {{table: facts, columns: [id, name, total, at]}}
"""
THINGS = pa.table({"key": [1, 2], "name": ["one", "two"], "price": [Decimal("1.50"), Decimal("2.50")]})
BATCHES = 2


def write_archive() -> None:
    """Make the archive anew."""
    from freshet.streaming.enrich import EnrichOptions, enrich
    from freshet.streaming.session import build_session, class_archive, end_session

    archive = class_archive()
    archive.unlink(missing_ok=True)
    draft = archive.with_suffix(".draft")
    with tempfile.TemporaryDirectory(prefix="freshet-training-") as folder:
        os.environ["FRESHET_HOME"] = folder
        os.environ["FRESHET_LOADS"] = str(Path(folder, "definitions"))
        os.environ["FRESHET_SPARK_MASTER"] = "local[1]"  # not the cluster that loads run on
        os.environ["FRESHET_JAVA_OPTIONS"] = f'"-XX:ArchiveClassesAtExit={draft}" -XX:TieredStopAtLevel=1'
        _make_load(Path(folder))
        spark = build_session("freshet-training")
        result = enrich(find_definition(LOAD), EnrichOptions(until_idle=True), spark)
        spark.read.format("delta").load(str(LoadHome(LOAD).facts("facts"))).collect()
        end_session(spark)
    if result.batches != BATCHES or not draft.exists():
        raise RuntimeError(f"{result} and {draft} {'is' if draft.exists() else 'is not'} there")
    draft.rename(archive)


def _make_load(home: Path) -> None:
    (home / "definitions").mkdir()
    (home / "definitions" / f"{LOAD}.yaml").write_text(DEFINITION)
    engine = engine_for(None)
    with engine.begin() as connection:
        connection.execute(text(query("training/create_things")))
    bulk_load(engine, "things", THINGS)
    (home / "stream").mkdir()
    for number in range(BATCHES):
        record = {"id": f"r{number}", "quantity": 1, "at": "2026-01-01T00:00:00Z"}
        lines = [json.dumps({**record, "key": key}) for key in (1, 3)]  # 3 is parked
        (home / "stream" / f"{number}.json").write_text("\n".join(lines) + "\n")
    sort(find_definition(LOAD))


if __name__ == "__main__":
    write_archive()
