"""Where everything lives: the folders below FRESHET_HOME, each named once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def freshet_home() -> Path:
    """The folder of all data and state: FRESHET_HOME, by default `.freshet` in the project."""
    return Path(os.environ.get("FRESHET_HOME") or PROJECT / ".freshet").absolute()


def loads_folder() -> Path:
    """The folder of the load definitions: FRESHET_LOADS, by default `include/loads`."""
    return Path(os.environ.get("FRESHET_LOADS") or PROJECT / "include" / "loads").absolute()


def resolve(path: str | Path) -> Path:
    """A path of a definition: absolute, or relative to FRESHET_HOME."""
    return freshet_home() / path


@dataclass(frozen=True)
class LoadHome:
    """The folders and files of one load."""

    load: str

    @property
    def warehouse(self) -> Path:
        """The load's Delta tables."""
        return freshet_home() / "warehouse" / self.load

    def facts(self, table: str) -> Path:
        return self.warehouse / table

    @property
    def parked(self) -> Path:
        return self.warehouse / "parked"

    @property
    def batches(self) -> Path:
        return self.warehouse / "batches"

    @property
    def state(self) -> Path:
        """What the load must remember besides its tables."""
        return freshet_home() / "loads" / self.load

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint of the stream."""
        return self.state / "checkpoint"

    @property
    def stream_id(self) -> Path:
        """The id under which the stream's transactions are recorded in the tables."""
        return self.state / "stream.json"

    @property
    def plans(self) -> Path:
        """One plan a micro-batch."""
        return self.state / "plans"

    @property
    def lease(self) -> Path:
        return self.state / "lease.json"

    def snapshots(self, lookup: str) -> Path:
        """The published snapshots of one lookup, `v000001` and on."""
        return self.state / "snapshots" / lookup

    def counts(self, lookup: str) -> Path:
        """The last counted access frequencies of one lookup (Parquet: key, count)."""
        return self.state / "counts" / f"{lookup}.parquet"

    @property
    def validation(self) -> Path:
        """Validation results: `last.json`, `last_good.json` and Data Docs."""
        return self.state / "validation"

    @property
    def last_good(self) -> Path:
        return self.validation / "last_good.json"

    @property
    def last_validation(self) -> Path:
        return self.validation / "last.json"

    @property
    def data_docs(self) -> Path:
        return self.validation / "data_docs"


def embedded_database() -> Path:
    """The SQLite file used for lookups without a connection."""
    return freshet_home() / "master.db"
