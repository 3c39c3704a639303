"""Gathering master rows into columns: NumPy for fixed-width types, pyarrow for all others.

    page (or hot part)            columns under construction
    offsets [3, 0, 3]   ──take──►  … | r3 | r0 | r3 | …

Many small gathers, one from each page, fill one large batch, so that no batch is as small as a page's
share of it.
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


Columns = Sequence[Any]
"""The columns of some master rows, ready to gather from: a FixedColumn or an Arrow array each."""


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
    """Master rows gathered into columns, up to a number of rows."""

    def __init__(self, schema: pa.Schema, capacity: int) -> None:
        self.schema = schema
        self.capacity = capacity
        self.rows = 0
        self._take_types = [_take_type(field.type) for field in schema]
        self._start()

    def _start(self) -> None:
        self._fixed = [None if kind is None else np.empty(self.capacity, kind) for kind in self._take_types]
        self._valid: list[Bools | None] = [None] * len(self._take_types)
        self._pieces: list[list[pa.Array]] = [[] for _ in self._take_types]
        self.rows = 0

    def columns_of(self, batch: pa.RecordBatch) -> Columns:
        """The columns of a page or of the hot part, ready to gather from."""
        return [
            column if kind is None else _fixed_column(column, kind)
            for column, kind in zip(batch.columns, self._take_types, strict=True)
        ]

    def put(self, columns: Columns, offsets: Int64s) -> None:
        """Append the rows at these offsets; they must fit."""
        start, end = self.rows, self.rows + len(offsets)
        indices: pa.Array | None = None
        for number, (column, target) in enumerate(zip(columns, self._fixed, strict=True)):
            if target is None:
                indices = pa.array(offsets) if indices is None else indices
                self._pieces[number].append(column.take(indices))
                continue
            # Clipping spares NumPy a checked copy; offsets are inside by construction.
            column.values.take(offsets, 0, target[start:end], "clip")
            valid = self._valid[number]
            if valid is None and column.bits is not None:
                valid = self._valid[number] = np.ones(self.capacity, np.bool_)
            if valid is not None:
                valid[start:end] = column.valid(offsets)
        self.rows = end

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
