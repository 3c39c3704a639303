"""Where everything lives: the folders below FRESHET_HOME, each named once."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from freshet.errors import DISK_FULL, FreshetError, disk_is_full

PROJECT = Path(__file__).resolve().parents[2]

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
_NOT_MADE = (errno.ENOENT, errno.EEXIST)
"""What making a folder ends with where there can be none, or where a file has its name."""


_PATTERN_SIGNS = "*?[]{}\\^|"
"""What Spark or DuckDB takes for a pattern in a path, or Delta cannot have in one."""


def freshet_home() -> Path:
    """The folder of all data and state: FRESHET_HOME, by default `.freshet` in the project."""
    home = _home()
    if set(str(home)) & set(_PATTERN_SIGNS):
        raise FreshetError(
            f"FRESHET_HOME, {home}, cannot be used: files in it would not be found because of the signs in "
            f"its path. Set it to a folder whose path has none of {' '.join(_PATTERN_SIGNS)}"
        )
    return home


def _home() -> Path:
    return Path(os.environ.get("FRESHET_HOME") or PROJECT / ".freshet").absolute()


def home_is_unusable(error: BaseException) -> str | None:
    """What to tell people when an error means that FRESHET_HOME cannot be written; else nothing."""
    if not isinstance(error, OSError):
        return None
    home = _home()
    above = isinstance(error.filename, str) and Path(error.filename) in (home, *home.parents)
    below = str(home) in str(error)  # errors of other libraries have the path in their text only
    if not (error.errno in _REFUSED and (above or below)) and not (error.errno in _NOT_MADE and above):
        return None
    place = f"{error.filename}: " if error.filename else ""
    return (
        f"FRESHET_HOME, {home}, cannot be used ({place}{error.strerror}). "
        "Give yourself the right to write there, or set FRESHET_HOME to a folder of your own."
    )


def for_people(error: BaseException) -> str | None:
    """What to tell people of an error that they can put right; nothing of any other, which is a defect."""
    if isinstance(error, FreshetError):
        return str(error)
    return f"{DISK_FULL}." if disk_is_full(error) else home_is_unusable(error)


def loads_folder() -> Path:
    """The folder of the load definitions: FRESHET_LOADS, by default `include/loads`."""
    return Path(os.environ.get("FRESHET_LOADS") or PROJECT / "include" / "loads").absolute()


def resolve(path: str | Path) -> Path:
    """A path of a definition: absolute, or relative to FRESHET_HOME."""
    return freshet_home() / path


def local_path(uri: str) -> Path:
    """The path behind a file's URI, however Spark has written it."""
    return Path(unquote(urlparse(uri).path))


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

    @property
    def pending_quarantine(self) -> Path:
        """What a quarantine that has begun moves; gone when it is done."""
        return self.validation / "quarantine.json"

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
    def validation_lock(self) -> Path:
        """The lock that lets one validation, quarantine or reset of the load work at a time.

        It lies outside what a reset deletes: held there, a deleted lock would no longer keep anybody out.
        """
        return self.state / "validation.lock"

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
