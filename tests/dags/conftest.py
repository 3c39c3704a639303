"""What the DAG tests share: load definitions, and the DagBag that Airflow makes of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from freshet.home import PROJECT

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

# Airflow reads this when it is first imported, and would otherwise write into the user's home folder.
AIRFLOW_HOME = tempfile.TemporaryDirectory(prefix="freshet-airflow-")
os.environ["AIRFLOW_HOME"] = AIRFLOW_HOME.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

ORDERS: dict[str, Any] = {
    "load": "orders",
    "description": "Orders with their customers",
    "stream": {
        "path": "in/orders",
        "format": "csv",
        "columns": {"order_id": "string", "customer": "string", "day": "date"},
        "event_id": "order_id",
        "max_files_per_batch": 5,
        "trigger_interval": "500ms",
    },
    "lookups": [
        {
            "name": "customer",
            "connection": "crm",
            "table": "customers",
            "key": "code",
            "stream_key": "customer",
            "add": ["city", "region"],
            "algorithm": "inlj",
            "memory": "3MB",
        },
        {"name": "region", "table": "regions", "key": "region", "add": ["tax"], "memory": "1MB"},
    ],
    "facts": {"table": "order_facts", "columns": ["order_id", "city", "tax", "day"]},
    "enrich": {"schedule": "@continuous", "run_for": "90s", "until_idle": True},
    "resort": {"schedule": "15 3 * * *", "min_gain": 0.2},
}


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one usable definition, `orders`."""
    folder = tmp_path / "loads"
    folder.mkdir()
    (folder / "orders.yaml").write_text(yaml.safe_dump(ORDERS, sort_keys=False))
    monkeypatch.setenv("FRESHET_LOADS", str(folder))
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def fill_bag(loads: Path) -> Callable[[], DagBag]:
    """Fill a DagBag from the project's DAG files, as Airflow does it."""
    from airflow.dag_processing.dagbag import DagBag

    return lambda: DagBag(dag_folder=PROJECT / "dags")
