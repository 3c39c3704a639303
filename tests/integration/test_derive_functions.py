"""What definitions may use in derived columns, compared with Spark itself."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from freshet.config.expressions import findings
from freshet.config.functions import AGGREGATES, ALLOWED, CHANGING
from tests.unit.config.test_expressions import COLUMNS, OTHERS, PLAIN

SYNTAX = {"cast", "try_cast", "timestampadd", "timestampdiff"}
"""Allowed words that are Spark's grammar, not functions of its registry."""

SEVERAL_ROWS = ("agg_funcs", "window_funcs", "generator_funcs")

SCHEMA = """
    quantity int, sale_price decimal(10,2), day date, tags array<string>,
    address struct<city:string>, prices map<string,double>, note string
"""


@pytest.fixture(scope="module")
def groups(spark: SparkSession) -> dict[str, str]:
    """The group of every built-in function, from Spark's registry."""
    jvm: Any = spark._jvm
    entries = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.expressions().iterator()
    found = {}
    while entries.hasNext():
        entry = entries.next()
        found[str(entry._1())] = str(entry._2()._1().getGroup())
    return found


def test_every_allowed_function_is_one_of_sparks_and_of_one_row(groups: dict[str, str]) -> None:
    assert ALLOWED - SYNTAX - set(groups) == set()
    assert {name for name in ALLOWED & set(groups) if groups[name] in SEVERAL_ROWS} == set()


def test_every_function_of_several_rows_is_refused_as_such(groups: dict[str, str]) -> None:
    several = {name for name, group in groups.items() if group in SEVERAL_ROWS}
    assert several - AGGREGATES == set()


def test_every_function_that_changes_between_retries_is_one_of_sparks(groups: dict[str, str]) -> None:
    assert CHANGING - set(groups) == set()


def test_the_expressions_that_are_accepted_are_right_and_deterministic_in_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], SCHEMA)
    for expression in PLAIN + OTHERS:
        assert findings(expression, COLUMNS) == []
        plan: Any = frame.selectExpr(f"{expression}\n AS derived")._jdf.queryExecution().analyzed()
        assert plan.deterministic(), expression
