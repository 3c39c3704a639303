"""A definition to spoil, and a folder to put it in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

SALES: dict[str, Any] = {
    "load": "sales",
    "stream": {
        "path": "demo/sales",
        "format": "json",
        "columns": {"sale_id": "string", "product_id": "bigint", "quantity": "int", "sold_at": "timestamp"},
        "event_id": "sale_id",
        "event_time": "sold_at",
    },
    "lookups": [
        {
            "name": "product",
            "table": "products",
            "key": "product_id",
            "add": ["surrogate_key", "supplier_id", "sale_price"],
        },
        {
            "name": "supplier",
            "table": "suppliers",
            "key": "id",
            "stream_key": "supplier_id",
            "add": {"supplier_name": "name"},
            "unmatched": "keep",
        },
    ],
    "derive": {"total": "quantity * sale_price"},
    "facts": {
        "table": "sales_facts",
        "columns": ["sale_id", "surrogate_key", "quantity", "total", "sold_at"],
    },
}


@pytest.fixture
def sales() -> dict[str, Any]:
    """A right definition, free to change."""
    return copy.deepcopy(SALES)


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of load definitions, in force."""
    folder = tmp_path / "loads"
    folder.mkdir()
    monkeypatch.setenv("FRESHET_LOADS", str(folder))
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def write(loads: Path) -> Callable[..., Path]:
    """Writes a definition, or any text, into a file of the loads folder."""

    def write_file(content: dict[str, Any] | str, name: str = "sales.yaml") -> Path:
        path = loads / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return path

    return write_file
