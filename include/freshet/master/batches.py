"""Record batches of rows that need not be equally wide: gathered by bytes, and measured row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SIZED = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)


def gathered(
    batches: Iterable[pa.RecordBatch], nbytes: int, most_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Small batches put together, each time as many as have so many bytes (or rows)."""
    waiting: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        held += batch.nbytes
        if held >= nbytes or (most_rows is not None and rows >= most_rows):
            yield pa.concat_batches(waiting)
            waiting, rows, held = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


def row_widths(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes of each row."""
    widths = np.zeros(len(batch), np.int64)
    for column in batch.columns:
        if any(is_type(column.type) for is_type in _SIZED):
            widths += pc.binary_length(column).fill_null(0).to_numpy()
        widths += _fixed_width(column.type)
    return widths


def _fixed_width(arrow: pa.DataType) -> int:
    """The bytes of a value besides its text, whatever the value."""
    return -(-arrow.bit_width // 8) if pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow) else 8
