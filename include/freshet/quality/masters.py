"""Snapshots of master data as Spark frames: read page by page in the workers, never whole in one process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshet.config import Lookup
from freshet.config.types import to_arrow, to_ddl
from freshet.home import LoadHome
from freshet.master.files import write_json
from freshet.master.manifest import read_manifest
from freshet.master.snapshot import open_snapshot, read_pages, snapshot_path
from freshet.outofcore import LEAST_MEMORY, bounded_database
from freshet.quality.files import read_json
from freshet.quality.pages import PageReader
from freshet.queries import duckdb_name, query

VERSION = "_m_version"
KEY = "_m_key"
BROADCAST_BYTES = 32 * 1024 * 1024
"""The largest snapshot that is sent to every task; larger ones are joined by a shuffle that can spill."""


def master_column(name: str) -> str:
    """The name a master column has beside the fact's own column."""
    return f"_m_{name}"


@dataclass(frozen=True)
class Master:
    """The snapshots of one lookup that the new rows were loaded from."""

    spark: SparkSession
    load: str
    lookup: Lookup
    versions: Sequence[int]

    def frame(self, added: Sequence[str]) -> DataFrame:
        """All rows of all versions: the version, the key, and some of the columns the lookup adds."""
        columns = {KEY: self.lookup.key, **{master_column(name): self.lookup.add[name] for name in added}}
        frames = [
            self._version(version, columns).withColumn(VERSION, F.lit(version).cast("bigint"))
            for version in self.versions
        ]
        return reduce(DataFrame.unionByName, frames)

    def _version(self, version: int, columns: Mapping[str, str]) -> DataFrame:
        path = snapshot_path(self.load, self.lookup.name, version)
        store = open_snapshot(path, columns)
        types = {field.name: to_ddl(field.type) for field in store.schema}
        schema = pa.schema([pa.field(name, to_arrow(ddl)) for name, ddl in types.items()])
        slices = max(1, min(store.pages, 2 * self.spark.sparkContext.defaultParallelism))
        pages = self.spark.range(0, store.pages, 1, slices)
        return pages.mapInArrow(
            PageReader(path, columns, schema), ", ".join(f"`{name}` {ddl}" for name, ddl in types.items())
        )

    def small(self, added: Sequence[str]) -> bool:
        """Whether the frame may be sent to every task."""
        names = {self.lookup.key, *(self.lookup.add[name] for name in added)}
        total = 0
        for version in self.versions:
            manifest = read_manifest(snapshot_path(self.load, self.lookup.name, version))
            total += sum(manifest.column_bytes[name] for name in names)
        return total <= BROADCAST_BYTES

    def unique_column(self, candidates: Sequence[str]) -> str | None:
        """The first of these added columns that tells the rows apart in every version.

        A snapshot never changes, so what was found out about one is kept.
        """
        columns = list(dict.fromkeys(self.lookup.add[name] for name in candidates))
        unique = set.intersection(*(self._unique_columns(version, columns) for version in self.versions))
        return next((name for name in candidates if self.lookup.add[name] in unique), None)

    def _unique_columns(self, version: int, columns: Sequence[str]) -> set[str]:
        file = LoadHome(self.load).validation / "unique" / f"{self.lookup.name}-{version}.json"
        known: dict[str, bool] = read_json(file) or {}
        asked = [name for name in columns if name not in known]
        if asked:
            known |= self._distinct(version, asked)
            write_json(file, known)
        return {name for name in columns if known[name]}

    def _distinct(self, version: int, columns: Sequence[str]) -> dict[str, bool]:
        """Whether each master column has another value, and one, in every row of a version."""
        path = snapshot_path(self.load, self.lookup.name, version)
        store = open_snapshot(path, columns)
        scratch = LoadHome(self.load).validation / "unique"
        scratch.mkdir(parents=True, exist_ok=True)
        found = {}
        with (
            tempfile.TemporaryDirectory(dir=scratch) as folder,
            bounded_database(Path(folder), LEAST_MEMORY) as database,
        ):
            for name in columns:
                pages = pa.RecordBatchReader.from_batches(store.schema, read_pages(path, columns))
                database.register("pages", pages)
                counted = database.execute(query("duckdb/distinct_values", column=duckdb_name(name)))
                found[name] = counted.fetchall() == [(store.rows,)]
        return found
