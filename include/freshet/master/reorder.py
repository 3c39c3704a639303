"""Rows brought into rank order in bounded memory, however many and however wide they are.

The rows lie in a file in the order in which they came. One pass deals them to buckets of consecutive
ranks, each small enough to be sorted in memory; then bucket after bucket is read and sorted.

    widths by rank    3 3 3 3 90 80 5 5 5 ...      of groups of ranks, if there are very many
    buckets           [ 0        ][ 1       ]      cut where the bytes so far reach the next multiple
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from freshet.master.batches import gathered, row_widths
from freshet.master.ranking import Ranks

Int64s = npt.NDArray[np.int64]

_RANK = pa.int64()
_OUTPUT_BYTES = 4 * 1024 * 1024
# Ranks are measured in so many groups at most: bounds the memory, and a group of even wide rows stays small.
_MOST_GROUPS = 1 << 20
_MEASURED_ROWS = 1 << 20


class RowFile:
    """Record batches in a file, read from front to back; open only while it is written to or read."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self.bytes = 0
        path.touch()

    def append(self, batch: pa.RecordBatch) -> None:
        # Each time a stream of its own behind the others, for Arrow cannot go on with one that was ended.
        with pa.OSFile(str(self.path), "ab") as file, pa.ipc.new_stream(file, self.schema) as stream:
            stream.write_batch(batch)
        self.rows += len(batch)
        self.bytes += batch.nbytes

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        # Not mapped: a mapping would keep all that was read in memory until the end.
        with pa.OSFile(str(self.path)) as file:
            while file.tell() < file.size():
                yield from pa.ipc.open_stream(file)

    def remove(self) -> None:
        self.path.unlink()

    @property
    def row_bytes(self) -> float:
        return self.bytes / max(self.rows, 1)


class MasterRows(RowFile):
    """The rows of a master table in the order in which they came, and in a second file how wide each is."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        super().__init__(path, schema)
        self._widths = path.with_name(f"{path.name}.widths")
        self._widths.touch()

    def append(self, batch: pa.RecordBatch) -> None:
        super().append(batch)
        with self._widths.open("ab") as file:
            file.write(row_widths(batch).data)

    def widths(self, start: int, count: int) -> Int64s:
        """The bytes of some rows, in the order in which they came."""
        return np.fromfile(self._widths, np.int64, count, offset=start * 8)

    def remove(self) -> None:
        super().remove()
        self._widths.unlink()


def in_rank_order(rows: MasterRows, ranks: Ranks, work: Path, memory: int) -> Iterator[pa.RecordBatch]:
    """All rows by rising rank. The file of rows is used up."""
    # Dealing out so many bytes at once, and sorting a bucket of so many, takes copies of them.
    for bucket in _deal(rows, ranks, work, memory // 8):
        yield from _sorted_bucket(bucket)
        bucket.remove()


def _deal(rows: MasterRows, ranks: Ranks, work: Path, nbytes: int) -> list[RowFile]:
    """Distribute the rows to files of consecutive ranks with about so many bytes each."""
    # The rank is the last column, whatever name the master's columns have.
    schema = rows.schema.append(pa.field("rank", _RANK))
    group_ranks, bucket_of_group = _cut(rows, ranks, nbytes)
    buckets: dict[int, RowFile] = {}
    start = 0
    # Many rows at a time: a bucket's share of one batch would be too small to write it on its own.
    for batch in gathered(rows, nbytes):
        rank = np.asarray(ranks.of_row[start : start + len(batch)])
        start += len(batch)
        tagged = pa.RecordBatch.from_arrays([*batch.columns, pa.array(rank)], schema=schema)
        for number, positions in _by_bucket(bucket_of_group[rank // group_ranks]):
            if number not in buckets:
                buckets[number] = RowFile(work / f"bucket-{number}", schema)
            buckets[number].append(tagged.take(pa.array(positions)))
    rows.remove()
    return [buckets[number] for number in sorted(buckets)]


def _cut(rows: MasterRows, ranks: Ranks, nbytes: int) -> tuple[int, Int64s]:
    """How many consecutive ranks make a group, and the bucket of each group.

    A bucket gets less than so many bytes and one group.
    """
    group_ranks = max(1, -(-rows.rows // _MOST_GROUPS))
    sizes = group_bytes(rows, ranks, group_ranks, _RANK.bit_width // 8)
    before = np.cumsum(sizes) - sizes
    return group_ranks, (before // nbytes).astype(np.int64)


def group_bytes(rows: MasterRows, ranks: Ranks, group_ranks: int, more: int = 0) -> npt.NDArray[np.float64]:
    """The bytes of each group of so many consecutive ranks, with so many more for each row."""
    groups = -(-rows.rows // group_ranks)
    sizes = np.zeros(groups)
    for start in range(0, rows.rows, _MEASURED_ROWS):
        group = ranks.of_row[start : start + _MEASURED_ROWS] // group_ranks
        sizes += np.bincount(group, rows.widths(start, len(group)) + more, groups)
    return sizes


def _by_bucket(buckets: Int64s) -> Iterator[tuple[int, Int64s]]:
    order = np.argsort(buckets, kind="stable")
    numbers, starts = np.unique(buckets[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def _sorted_bucket(bucket: RowFile) -> Iterator[pa.RecordBatch]:
    tagged = pa.concat_batches(list(bucket))
    *columns, ranks = tagged.columns
    order = np.argsort(ranks.to_numpy())
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(tagged.schema)[:-1]))
    size = max(1, int(_OUTPUT_BYTES / max(bucket.row_bytes, 1)))
    for start in range(0, len(order), size):
        yield rows.take(pa.array(order[start : start + size]))
