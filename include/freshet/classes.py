"""The archive of Java's classes: with it a Spark driver starts on two thirds of the computing.

A short-lived driver spends most of its time on loading and verifying some twenty thousand classes. Java can
keep them as they are after that (class data sharing). `python -m freshet.classes` runs a tiny load, has the
JVM write down what it has loaded, and sessions then start from the archive. A JVM that the archive does not
fit, another Java say, goes on without it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from pathlib import Path

from freshet.config import find_definition
from freshet.home import LoadHome, embedded_database
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
    with sqlite3.connect(embedded_database()) as database:
        database.execute("create table things (key bigint primary key, name text, price decimal(10,2))")
        database.executemany("insert into things values (?, ?, ?)", [(1, "one", "1.50"), (2, "two", "2.50")])
    database.close()
    (home / "stream").mkdir()
    for number in range(BATCHES):
        record = {"id": f"r{number}", "quantity": 1, "at": "2026-01-01T00:00:00Z"}
        lines = [json.dumps({**record, "key": key}) for key in (1, 3)]  # 3 is parked
        (home / "stream" / f"{number}.json").write_text("\n".join(lines) + "\n")
    sort(find_definition(LOAD))


if __name__ == "__main__":
    write_archive()
