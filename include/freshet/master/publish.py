"""Writing a snapshot: beside the published ones, out of sight, and into its place by one rename."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.errors import SnapshotError
from freshet.master.files import remove_abandoned, sync, sync_tree
from freshet.master.index import IndexBuilder
from freshet.master.manifest import MANIFEST, Manifest, checksums
from freshet.master.snapshot import COUNTS, INDEX, PAGE_BYTES, PAGES, version_path, versions

UNPUBLISHED = ".unpublished-"

MEAN_PAGE = 256 * 1024
LARGEST_PAGE = 1024 * 1024
MOST_PAGES = 1 << 20
"""More pages than this are not made for the sake of a few wide rows: each costs some hundred bytes."""


def choose_page_rows(row_bytes: float) -> int:
    """How many rows make a page: the largest power of two whose page is on average not above 256 KiB.

    Half of that to all of it is large enough to amortise the cost of a read and small enough that a small
    budget still holds many pages.
    """
    rows = int(MEAN_PAGE / max(row_bytes, 1.0))
    return 1 << max(rows.bit_length() - 1, 0)


def fewest_page_rows(rows: int) -> int:
    """The smallest power of two of rows with which a table has no more than MOST_PAGES pages."""
    return 1 << max(-(-rows // MOST_PAGES) - 1, 0).bit_length()


def limit_page_rows(page_rows: int, least: int, least_bytes: npt.NDArray[np.float64]) -> int:
    """The page's rows halved until no page is above 1 MiB, or until there are the least.

    `least_bytes` are the bytes of each page if all had the least rows: wide rows may stand together.
    """
    while page_rows > least:
        firsts = np.arange(0, len(least_bytes), page_rows // least)
        if np.add.reduceat(least_bytes, firsts).max(initial=0) <= LARGEST_PAGE:
            break
        page_rows //= 2
    return page_rows


def _open_counts(path: Path, rows: int) -> npt.NDArray[np.int64]:
    if rows:
        return np.lib.format.open_memmap(path, "w+", np.dtype("<i8"), (rows,))
    nothing = np.empty(0, "<i8")  # an empty file cannot be mapped
    np.save(path, nothing)
    return nothing


class SnapshotWriter:
    """A snapshot while it is written.

    It is fed all rows in rank order and then published, or leaves no trace. Memory is bounded by a page
    and a fed batch, besides what the index needs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        key: str,
        schema: pa.Schema,
        rows: int,
        page_rows: int,
        watermark: Mapping[str, Any],
        ranked_by: str,
    ) -> None:
        self.folder = folder
        self.key = key
        self.schema = schema
        self.rows = rows
        self.page_rows = page_rows
        self.watermark = dict(watermark)
        self.ranked_by = ranked_by
        self.added = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(folder, UNPUBLISHED)
        self._draft = Path(tempfile.mkdtemp(prefix=UNPUBLISHED, dir=folder))
        self._draft.chmod(0o755)
        self._index = IndexBuilder(self._draft / INDEX, rows, schema.field(key).type)
        self._counts = _open_counts(self._draft / COUNTS, rows)
        self._sink = pa.OSFile(str(self._draft / PAGES), "wb")
        self._pages = pa.ipc.new_file(self._sink, schema)

    def __enter__(self) -> SnapshotWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sink.close()
        shutil.rmtree(self._draft, ignore_errors=True)  # once published it is no longer there

    def add(self, rows: pa.RecordBatch, counts: npt.ArrayLike) -> None:
        """Take the next rows in rank order, and how often each was asked for."""
        if self.added + len(rows) > self.rows:
            raise SnapshotError(f"more than the announced {self.rows:,} rows were added to a snapshot")
        self._index.add(rows.column(self.key))
        self._counts[self.added : self.added + len(rows)] = counts
        self.added += len(rows)
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= self.page_rows:
            self._write_pages(whole=True)

    def publish(self) -> int:
        """Make the snapshot the newest version, at once and for good; the number it got."""
        self._finish_files()
        contents = checksums(self._draft)
        sync_tree(self._draft)
        while True:
            version = (versions(self.folder) or [0])[-1] + 1
            manifest = self._draft / MANIFEST
            manifest.write_text(self._manifest(version, contents).to_json(), encoding="utf-8")
            sync(manifest)
            sync(self._draft)
            if self._take_place(version):
                sync(self.folder)
                return version

    def _take_place(self, version: int) -> bool:
        """Rename the draft to its version; false if another publisher was faster with this number."""
        try:
            self._draft.rename(version_path(self.folder, version))
        except OSError as error:
            # A folder with something in it is never replaced by a rename.
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def _finish_files(self) -> None:
        if self.added != self.rows:
            raise SnapshotError(f"{self.added:,} rows were added to a snapshot of {self.rows:,}")
        self._write_pages(whole=False)
        self._pages.close()
        self._sink.close()
        self._index.finish()
        if isinstance(self._counts, np.memmap):
            self._counts.flush()
        self._page_bytes = self._measure()
        np.save(self._draft / PAGE_BYTES, self._page_bytes)

    def _write_pages(self, *, whole: bool) -> None:
        waiting = pa.Table.from_batches(self._waiting, self.schema)
        end = len(waiting) - len(waiting) % self.page_rows if whole else len(waiting)
        for start in range(0, end, self.page_rows):
            self._write_page(waiting.slice(start, min(self.page_rows, end - start)))
        rest = waiting.slice(end)
        self._waiting = rest.to_batches()
        self._waiting_rows = len(rest)

    def _write_page(self, page: pa.Table) -> None:
        (batch,) = page.combine_chunks().to_batches()
        self._pages.write_batch(batch)

    def _measure(self) -> npt.NDArray[np.int64]:
        """The bytes of each column in each page, as a reader gets them."""
        with pa.memory_map(str(self._draft / PAGES)) as file:
            pages = pa.ipc.open_file(file)
            numbers = range(pages.num_record_batches)
            sizes = [[column.nbytes for column in pages.get_batch(number).columns] for number in numbers]
        return np.array(sizes, "<i8").reshape(-1, len(self.schema))

    def _manifest(self, version: int, contents: Mapping[str, Any]) -> Manifest:
        totals = self._page_bytes.sum(axis=0)
        return Manifest(
            version=version,
            rows=self.rows,
            page_rows=self.page_rows,
            key=self.key,
            key_type=str(self.schema.field(self.key).type),
            schema=tuple((field.name, str(field.type)) for field in self.schema),
            column_bytes=dict(zip(self.schema.names, totals.tolist(), strict=True)),
            watermark=self.watermark,
            ranked_by=self.ranked_by,
            created_at=datetime.now(UTC).isoformat(),
            checksums=dict(contents),
        )
