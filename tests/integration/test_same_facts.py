"""The demo load gives the same tables from MariaDB as from SQLite, with the planted numbers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from freshet.config import Definition, read_definition
from freshet.home import PROJECT, LoadHome
from freshet.master.provision import demo_planted, provision
from freshet.sorting import sort
from freshet.streaming.enrich import EnrichOptions, enrich
from freshet.workload.sales import SalesSize
from tests.mariadb import Database

SMALL = SalesSize().scaled(sales=20_000, products=5_000)
NOW = datetime(2026, 11, 18, tzinfo=UTC)


def demo(load: str, connection: str | None) -> Definition:
    definition = read_definition(PROJECT / "include" / "loads" / "sales.yaml")
    lookup = definition.lookups[0].model_copy(update={"connection": connection})
    return definition.model_copy(update={"load": load, "lookups": (lookup,)})


def loaded(definition: Definition, spark: SparkSession) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The facts and parked rows after the whole chain, in an order of their own."""
    provision(definition, size=SMALL, now=NOW)
    sort(definition)
    enrich(definition, EnrichOptions(until_idle=True), spark=spark, report=lambda line: None)
    home = LoadHome(definition.load)
    return rows(home.facts("sales_facts"), "sale_id"), rows(home.parked, "id")


def rows(table: Path, order: str) -> pd.DataFrame:
    frame: Any = DeltaTable(str(table)).to_pyarrow_table().to_pandas()
    return frame.drop(columns="_loaded_at").sort_values(order, ignore_index=True)


def test_mariadb_and_sqlite_give_the_same_tables(
    spark: SparkSession, freshet_home: Path, mariadb: Database
) -> None:
    here_facts, here_parked = loaded(demo("here", None), spark)
    there_facts, there_parked = loaded(demo("there", "warehouse"), spark)
    pd.testing.assert_frame_equal(here_facts, there_facts)
    pd.testing.assert_frame_equal(here_parked, there_parked)
    planted = json.loads(demo_planted().read_text())
    assert here_parked["reason"].value_counts().to_dict() == planted
    assert len(here_facts) == SMALL.sales - sum(planted.values())
