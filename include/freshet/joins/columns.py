"""Gathering master rows into columns: NumPy for fixed-width types, pyarrow for all others.

    page (or hot part)            columns under construction
    offsets [3, 0, 3]   ──take──►  … | r3 | r0 | r3 | …

Many small gathers, one from each page, fill one large batch, so that no batch is as small as a page's
share of it. It may have a bound in bytes: one wide row that many tuples ask for is copied for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def _take_type(arrow: pa.DataType) -> np.dtype[Any] | None:
    """A NumPy type as wide as a value, to move values by; None where values have no fixed whole width."""
    fixed = pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow) or pa.types.is_fixed_size_binary(arrow)
    if not fixed or pa.types.is_boolean(arrow) or arrow.bit_width == 0:
        return None
    width = arrow.bit_width // 8
    # Complex numbers are what NumPy moves fastest among the 16-byte types; the value is never computed with.
    return np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}.get(width, f"V{width}"))


def _is_sized(arrow: pa.DataType) -> bool:
    """Whether each value may have another size."""
    return _take_type(arrow) is None and not pa.types.is_boolean(arrow) and not pa.types.is_null(arrow)


class FixedColumn(NamedTuple):
    """The values of a fixed-width column, and the bits that say which are not null (None: all are not)."""

    values: npt.NDArray[Any]
    bits: npt.NDArray[np.uint8] | None
    first_bit: int

    def valid(self, offsets: Int64s) -> Bools:
        """Whether the values at these offsets are not null."""
        if self.bits is None:
            return np.ones(len(offsets), np.bool_)
        at = offsets + self.first_bit
        return (self.bits[at >> 3] >> (at & 7).astype(np.uint8) & 1).view(np.bool_)


class SizedColumn(NamedTuple):
    """The values of a column in which each may have another size."""

    values: pa.Array
    starts: npt.NDArray[Any] | None
    """Where the bytes of each text begin, and where those of the last end; None for all other values."""

    def sizes(self, offsets: Int64s) -> npt.NDArray[Any]:
        """The bytes of the values at these offsets; of nested values the mean."""
        if self.starts is None:
            return np.full(len(offsets), self.values.nbytes / len(self.values))
        return self.starts[offsets + 1] - self.starts[offsets]


def _sized_column(column: pa.Array, offset_type: np.dtype[Any] | None) -> SizedColumn:
    if offset_type is None or not len(column):
        return SizedColumn(column, None)
    return SizedColumn(column, np.frombuffer(column.buffers()[1], offset_type)[column.offset :])


def _offset_type(arrow: pa.DataType) -> np.dtype[Any] | None:
    """The NumPy type of the offsets between which texts and bytes lie; None for all other values."""
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return np.dtype(np.int32)
    if pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow):
        return np.dtype(np.int64)
    return None


Columns = Sequence[Any]
"""The columns of some master rows, ready to gather from: a FixedColumn or a SizedColumn each."""


def _fixed_column(column: pa.Array, take_type: np.dtype[Any]) -> FixedColumn:
    validity, data = column.buffers()
    first = column.offset
    if data is None:
        values = np.zeros(len(column), take_type)
    else:
        values = np.frombuffer(data, take_type, len(column), first * take_type.itemsize)
    bits = np.frombuffer(validity, np.uint8) if validity is not None and column.null_count else None
    return FixedColumn(values, bits, first)


class ColumnGather:
    """Master rows gathered into columns, up to a number of rows and, if one is given, of bytes.

    The bytes bound fixed-width values and all others each; a single row may be larger.
    """

    def __init__(self, schema: pa.Schema, rows: int, nbytes: int | None = None) -> None:
        self.schema = schema
        self.rows = 0
        self._take_types = [_take_type(field.type) for field in schema]
        self._offset_types = [_offset_type(field.type) for field in schema]
        fixed_bytes = sum(kind.itemsize for kind in self._take_types if kind is not None)
        self.capacity = rows if nbytes is None else max(1, min(rows, nbytes // max(fixed_bytes, 1)))
        self._most_bytes = nbytes
        self._sized = [at for at, field in enumerate(schema) if nbytes is not None and _is_sized(field.type)]
        self._start()

    def _start(self) -> None:
        self._fixed = [None if kind is None else np.empty(self.capacity, kind) for kind in self._take_types]
        self._valid: list[Bools | None] = [None] * len(self._take_types)
        self._pieces: list[list[pa.Array]] = [[] for _ in self._take_types]
        self._left = self._most_bytes or 0
        self.rows = 0

    def columns_of(self, batch: pa.RecordBatch) -> Columns:
        """The columns of a page or of the hot part, ready to gather from."""
        return [
            _sized_column(column, offset_type) if kind is None else _fixed_column(column, kind)
            for column, kind, offset_type in zip(
                batch.columns, self._take_types, self._offset_types, strict=True
            )
        ]

    def put(self, columns: Columns, offsets: Int64s) -> int:
        """Append the rows at these offsets, or as many as there is room for (one, if empty); how many."""
        fitting = self._fitting(columns, offsets)
        if fitting < len(offsets):
            offsets = offsets[:fitting]
        start, end = self.rows, self.rows + fitting
        indices: pa.Array | None = None
        for number, (column, target) in enumerate(zip(columns, self._fixed, strict=True)):
            if target is None:
                indices = pa.array(offsets) if indices is None else indices
                self._pieces[number].append(column.values.take(indices))
                continue
            # Clipping spares NumPy a checked copy; offsets are inside by construction.
            column.values.take(offsets, 0, target[start:end], "clip")
            valid = self._valid[number]
            if valid is None and column.bits is not None:
                valid = self._valid[number] = np.ones(self.capacity, np.bool_)
            if valid is not None:
                valid[start:end] = column.valid(offsets)
        self.rows = end
        return fitting

    def _fitting(self, columns: Columns, offsets: Int64s) -> int:
        """How many of the rows at these offsets, from the first, there is room for; their bytes are taken."""
        rows = min(len(offsets), self.capacity - self.rows)
        if not self._sized or not rows:
            return rows
        sizes: Any = sum(columns[at].sizes(offsets[:rows]) for at in self._sized)
        nbytes = int(sizes.sum())
        if nbytes > self._left:
            rows = int(np.searchsorted(np.cumsum(sizes), self._left, side="right")) or int(not self.rows)
            nbytes = int(sizes[:rows].sum())
        self._left -= nbytes
        return rows

    def finish(self, order: Int64s | None = None) -> pa.RecordBatch:
        """The gathered rows, in the given order if there is one; afterwards nothing is gathered."""
        rows = self.rows
        arrays = [self._array(number, order) for number in range(len(self._take_types))]
        self._start()
        return record_batch(arrays, self.schema, rows)

    def _array(self, number: int, order: Int64s | None) -> pa.Array:
        arrow = self.schema.field(number).type
        values, valid = self._fixed[number], self._valid[number]
        if values is None:
            pieces = self._pieces[number]
            whole = pa.concat_arrays(pieces) if pieces else pa.array([], arrow)
            return whole if order is None else whole.take(pa.array(order))
        if order is not None:
            values = values.take(order, mode="clip")
        elif self.rows <= self.capacity // 4:
            values = values[: self.rows].copy()  # a small batch shall not hold the memory of a full one
        bits = None
        if valid is not None:
            valid = valid[: self.rows] if order is None else valid[order]
            bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(arrow, self.rows, [bits, pa.py_buffer(values[: self.rows])])


def record_batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A record batch of so many rows, even if it has no columns."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.record_batch({"none": pa.nulls(rows)}).select([])
