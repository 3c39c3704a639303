"""What a join sees of R, the master table: rows in rank order, cut into pages, found by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MISSING = -1
"""The rank `locate` gives to a key that R does not have."""


class MasterStore(Protocol):
    """R ranked by access frequency: rank 0 is the hottest row.

    Page i holds the ranks i * page_rows to (i + 1) * page_rows - 1; the last page may be short.
    A store is opened with the columns a lookup adds, and its pages have exactly those.
    """

    @property
    def rows(self) -> int:
        """R_t, the number of rows."""
        ...

    @property
    def page_rows(self) -> int:
        """Rows in a page (but perhaps the last)."""
        ...

    @property
    def pages(self) -> int:
        """N_R, the number of pages."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of a page, in the order the store was opened with."""
        ...

    @property
    def row_bytes(self) -> float:
        """v_R, the mean bytes of a row in memory (the opened columns)."""
        ...

    @property
    def outside_bytes(self) -> Mapping[str, int]:
        """Bytes left to the operating system (a memory-mapped index, mapped pages), by name."""
        ...

    def locate(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """The rank of each key, or MISSING (nulls too). Reads no page."""
        ...

    def page(self, number: int) -> pa.RecordBatch:
        """One page of R. The caller counts it as one page read."""
        ...

    def page_counts(self) -> npt.NDArray[np.int64]:
        """How often the rows of each page are asked for, as far as is known (0 everywhere: it is not)."""
        ...

    def page_bytes(self, number: int) -> int:
        """The bytes that reading this page moves."""
        ...
