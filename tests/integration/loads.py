"""Small loads for the tests: a definition, a master table in SQLite, stream files, and the loaded rows."""

from __future__ import annotations

import os
import sqlite3
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from freshet.config import Definition, find_definition
from freshet.home import LoadHome, embedded_database, freshet_home, loads_folder
from freshet.sorting import sort
from freshet.streaming.enrich import EnrichOptions, EnrichResult, enrich


class SmallLoad:
    """A load of the test's own, below the test's FRESHET_HOME."""

    def __init__(self, name: str, yaml: str) -> None:
        self.name = name
        self.define(yaml)
        self.stream = freshet_home() / "stream" / name
        self.stream.mkdir(parents=True, exist_ok=True)
        self._files = 0

    def define(self, yaml: str) -> None:
        folder = loads_folder()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.yaml").write_text(textwrap.dedent(yaml))

    @property
    def definition(self) -> Definition:
        return find_definition(self.name)

    def feed(self, content: str | bytes, ending: str = "json") -> Path:
        """Add a file to the stream, newer than those before it."""
        file = self.stream / f"{self._files:03d}.{ending}"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(file, (1_700_000_000 + self._files, 1_700_000_000 + self._files))
        self._files += 1
        return file

    def publish(self) -> None:
        sort(self.definition)

    def run(self, spark: SparkSession, **options: Any) -> EnrichResult:
        given = {"until_idle": True, **options}
        return enrich(self.definition, EnrichOptions(**given), spark=spark, report=lambda line: None)

    def facts(self) -> pa.Table:
        return self._table(LoadHome(self.name).facts(self.definition.facts.table))

    def parked(self) -> pa.Table:
        return self._table(LoadHome(self.name).parked)

    def batches(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table(LoadHome(self.name).batches).to_pylist()
        return sorted(rows, key=lambda row: row["batch"])

    @staticmethod
    def _table(path: Path) -> pa.Table:
        return pa.table(DeltaTable(str(path)).to_pyarrow_table())


def master_table(ddl: str, rows: Sequence[Sequence[Any]]) -> None:
    """Create (anew) and fill a table of the embedded database; `ddl` is `name (columns)`."""
    with sqlite3.connect(embedded_database()) as database:
        database.execute(f"drop table if exists {ddl.split()[0]}")
        database.execute(f"create table {ddl}")
        marks = ", ".join("?" for _ in rows[0]) if rows else ""
        database.executemany(f"insert into {ddl.split()[0]} values ({marks})", rows)
    database.close()


def die_at(step: str) -> Callable[[str, int], None]:
    """A listener that ends a batch just before a step."""

    def listener(taken: str, batch: int) -> None:
        if taken == step:
            raise RuntimeError("as if killed")

    return listener
