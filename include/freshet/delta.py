"""Delta tables read without Spark.

Rows are read through Arrow's own file system. The one that deltalake brings calls back into Python from
Arrow's threads, and a thread that does so while the interpreter ends aborts the process (exit code 134).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable


def open_table(path: Path) -> DeltaTable | None:
    """The newest version of the table, or None when there is no table yet."""
    from deltalake import DeltaTable

    return DeltaTable(str(path)) if DeltaTable.is_deltatable(str(path)) else None


def dataset(path: Path) -> ds.Dataset | None:
    """The rows of the newest version, to be scanned, or None when there is no table yet."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    table = open_table(path)
    if table is None:
        return None
    return table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(path), LocalFileSystem()))


def read_rows(
    path: Path, columns: list[str] | None = None, where: ds.Expression | None = None
) -> list[dict[str, Any]]:
    """The rows of the newest version of a small table; none when there is no table yet."""
    found = dataset(path)
    return (
        []
        if found is None
        else found.to_table(columns=columns, filter=where).to_pylist(maps_as_pydicts="strict")
    )
