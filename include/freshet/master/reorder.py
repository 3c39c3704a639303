"""Rows brought into rank order in bounded memory, however many and however wide they are.

The rows lie in a file in the order in which they came. One pass deals them to buckets of consecutive
ranks, each small enough to be sorted in memory; then bucket after bucket is read and sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.master.ranking import Ranks

_RANK = "_rank"
_OUTPUT_BYTES = 4 * 1024 * 1024


class RowFile:
    """Record batches in a file, written once and read from front to back."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self.bytes = 0
        self._writer = pa.ipc.new_stream(str(path), schema)

    def append(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.rows += len(batch)
        self.bytes += batch.nbytes

    def close(self) -> None:
        self._writer.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        # Not mapped: a mapping would keep all that was read in memory until the end.
        with pa.OSFile(str(self.path)) as file:
            yield from pa.ipc.open_stream(file)

    @property
    def row_bytes(self) -> float:
        return self.bytes / max(self.rows, 1)


def in_rank_order(rows: RowFile, ranks: Ranks, work: Path, memory: int) -> Iterator[pa.RecordBatch]:
    """All rows by rising rank. The file of rows is used up."""
    # Sorting a bucket takes a copy of it, and rows need not be equally wide: leave room for that.
    buckets = max(1, -(-rows.bytes * 8 // memory))
    bucket_rows = -(-rows.rows // buckets)
    for bucket in _deal(rows, ranks, work, bucket_rows):
        yield from _sorted_bucket(bucket)
        bucket.path.unlink()


def _deal(rows: RowFile, ranks: Ranks, work: Path, bucket_rows: int) -> list[RowFile]:
    """Distribute the rows to files of so many consecutive ranks each."""
    buckets: dict[int, RowFile] = {}
    with ExitStack() as closing:
        start = 0
        for batch in rows:
            rank = np.asarray(ranks.of_row[start : start + len(batch)])
            start += len(batch)
            tagged = batch.append_column(_RANK, pa.array(rank))
            for number, positions in _by_bucket(rank // bucket_rows):
                if number not in buckets:
                    buckets[number] = RowFile(work / f"bucket-{number}", tagged.schema)
                    closing.callback(buckets[number].close)
                buckets[number].append(tagged.take(pa.array(positions)))
    rows.path.unlink()
    return [buckets[number] for number in sorted(buckets)]


def _by_bucket(buckets: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    order = np.argsort(buckets, kind="stable")
    numbers, starts = np.unique(buckets[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def _sorted_bucket(bucket: RowFile) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(list(bucket))
    order = np.argsort(rows.column(_RANK).to_numpy())
    rows = rows.drop_columns(_RANK)
    size = max(1, int(_OUTPUT_BYTES / max(bucket.row_bytes, 1)))
    for start in range(0, len(order), size):
        yield from rows.take(pa.array(order[start : start + size])).combine_chunks().to_batches()
