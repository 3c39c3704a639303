"""Reading pages of a snapshot inside Spark's Python workers. Imports little: each worker pays for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from freshet.master.snapshot import read_pages


@dataclass(frozen=True)
class PageReader:
    """What a worker does: turn page numbers into the pages' rows."""

    path: Path
    columns: Mapping[str, str]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for page in read_pages(self.path, self.columns, batch["id"].to_pylist()):
                yield page.cast(self.schema)
