"""Snapshots: the rows of a master table in rank order, immutable and numbered.

    <load>/snapshots/<lookup>/v000001/
        pages.arrow       Arrow IPC, one record batch a page, the key and the columns the lookup adds
        index/            key -> rank
        counts.npy        the access frequency of each rank
        page_bytes.npy    the bytes of each column in each page
        manifest.json     what all this is, with checksums; written last

A folder with a version's name is a published snapshot and never changes. It is read through memory maps:
opening one costs neither memory nor time for its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.errors import SnapshotError
from freshet.home import LoadHome
from freshet.master.index import open_index
from freshet.master.manifest import Manifest, check_sizes, damaged, read_manifest, verify

PAGES = "pages.arrow"
INDEX = "index"
COUNTS = "counts.npy"
PAGE_BYTES = "page_bytes.npy"

_VERSION = re.compile(r"v(\d{6,})")


def snapshot_path(load: str, lookup: str, version: int) -> Path:
    """The folder of one version of a lookup's snapshot."""
    return version_path(LoadHome(load).snapshots(lookup), version)


def version_path(folder: Path, version: int) -> Path:
    """The folder of one version among the snapshots in `folder`."""
    return folder / f"v{version:06d}"


def versions(folder: Path) -> list[int]:
    """The versions published in a folder of snapshots, oldest first."""
    if not folder.is_dir():
        return []
    found = (_VERSION.fullmatch(entry.name) for entry in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def latest(load: str, lookup: str) -> int | None:
    """The newest published version of a lookup's snapshot; None before the first."""
    published = versions(LoadHome(load).snapshots(lookup))
    return published[-1] if published else None


class SnapshotStore:
    """A published snapshot as a join reads it (a MasterStore).

    `columns` are the master columns to read, or a mapping of the names they get to master columns.
    Every open compares the manifest with the files' sizes; `full` compares their contents as well.
    """

    def __init__(self, path: Path, columns: Sequence[str] | Mapping[str, str], *, full: bool = False) -> None:
        self.path = path
        self.manifest: Manifest = verify(path) if full else read_manifest(path)
        check_sizes(path, self.manifest)
        wanted = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        stored = [name for name, _ in self.manifest.schema]
        missing = [name for name in wanted.values() if name not in stored]
        if missing:
            raise SnapshotError(
                f"snapshot {path} has no column {', '.join(missing)}, only {', '.join(stored)}. It was "
                f"sorted under another definition: publish one with `freshet sort {path.parents[2].name}`"
            )
        self._positions = [stored.index(name) for name in wanted.values()]
        try:
            self._map = pa.memory_map(str(path / PAGES))
            self._reader = pa.ipc.open_file(self._map)
        except (pa.ArrowInvalid, OSError) as error:
            raise damaged(path, f"{PAGES} is not readable ({error})") from error
        pages = self._reader.num_record_batches
        if pages != self.manifest.pages:
            raise damaged(path, f"{PAGES} has {pages} pages instead of {self.manifest.pages}")
        self._index = open_index(path / INDEX)
        fields = [self._reader.schema.field(position) for position in self._positions]
        self._schema = pa.schema([field.with_name(name) for name, field in zip(wanted, fields, strict=True)])
        total = sum(self.manifest.column_bytes[name] for name in wanted.values())
        self._row_bytes = total / max(self.rows, 1)
        try:
            by_column = np.load(path / PAGE_BYTES, mmap_mode="r")
            self._page_bytes = by_column[:, self._positions].sum(axis=1)
        except (ValueError, IndexError, OSError) as error:
            raise damaged(path, f"{PAGE_BYTES} is not readable ({error})") from error

    @property
    def rows(self) -> int:
        return self.manifest.rows

    @property
    def page_rows(self) -> int:
        return self.manifest.page_rows

    @property
    def pages(self) -> int:
        return self.manifest.pages

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def row_bytes(self) -> float:
        return self._row_bytes

    @property
    def outside_bytes(self) -> Mapping[str, int]:
        return {"index": self._index.nbytes, "pages": self._map.size()}

    def locate(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        return self._index.locate(keys)

    def page(self, number: int) -> pa.RecordBatch:
        if not 0 <= number < self.pages:
            raise IndexError(f"page {number} of a snapshot with {self.pages} pages")
        try:
            batch = self._reader.get_batch(number)
        except (pa.ArrowInvalid, OSError) as error:
            raise damaged(self.path, f"page {number} is not readable ({error})") from error
        # Columns not asked for are mapped only. A selection keeps the rows even of a page without columns.
        return batch.select(self._positions).rename_columns(self._schema.names)

    def page_bytes(self, number: int) -> int:
        return int(self._page_bytes[number])

    def page_counts(self) -> npt.NDArray[np.int64]:
        if not self.rows:
            return np.zeros(0, np.int64)
        return np.add.reduceat(self.counts(), np.arange(0, self.rows, self.page_rows))

    def counts(self) -> npt.NDArray[np.int64]:
        """The access frequency of each rank, memory-mapped."""
        counts: npt.NDArray[np.int64] = np.load(self.path / COUNTS, mmap_mode="r")
        return counts


def open_snapshot(
    path: Path, columns: Sequence[str] | Mapping[str, str], *, full: bool = False
) -> SnapshotStore:
    """A published snapshot, opened for a join with the columns it adds."""
    return SnapshotStore(path, columns, full=full)


def read_pages(
    path: Path, columns: Sequence[str] | Mapping[str, str], numbers: Iterable[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Pages of a snapshot: those asked for, or all of them in rank order."""
    store = open_snapshot(path, columns)
    for number in range(store.pages) if numbers is None else numbers:
        yield store.page(number)
