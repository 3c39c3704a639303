"""What the integration tests share: one Spark session for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshet.streaming.session import build_session
from tests.mariadb import mariadb, mariadb_server  # noqa: F401


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, kept for the whole run."""
    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRESHET_SPARK_MASTER", "local[2]")
        patch.setenv("FRESHET_SPARK_LOG", "ERROR")
        session = build_session(
            "freshet-tests",
            {
                "spark.sql.shuffle.partitions": "2",
                "spark.databricks.delta.snapshotPartitions": "2",
                "spark.sql.warehouse.dir": str(scratch / "warehouse"),
                "spark.local.dir": str(scratch / "local"),
            },
        )
    yield session
    session.stop()


@pytest.fixture
def freshet_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A FRESHET_HOME of the test's own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("FRESHET_HOME", str(home))
    return home
