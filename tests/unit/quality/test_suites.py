"""The definition's own expectations: made by Great Expectations, or refused with their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from freshet.config import Definition, read_definition
from freshet.config.expectations import EXPECTATIONS
from freshet.errors import DefinitionError
from freshet.quality.checks import BATCH, UNIQUE
from freshet.quality.suites import FACTS, FRESHNESS, LEDGER, build_suites, own_expectations

ORDERS: dict[str, Any] = {
    "load": "orders",
    "stream": {
        "path": "in",
        "format": "json",
        "columns": {"id": "string", "k": "int", "amount": "int"},
        "event_id": "id",
    },
    "lookups": [{"name": "p", "table": "p", "key": "k", "add": ["a"]}],
    "facts": {"table": "orders_facts", "columns": ["id", "a", "amount"]},
}

Define = Callable[[dict[str, Any]], Definition]


@pytest.fixture
def define(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Define:
    """Writes a definition with one expectation to the loads folder and reads it."""
    monkeypatch.setenv("FRESHET_LOADS", str(tmp_path))

    def write(expectation: dict[str, Any]) -> Definition:
        file = tmp_path / "orders.yaml"
        file.write_text(yaml.safe_dump({**ORDERS, "expectations": [expectation]}))
        return read_definition(file)

    return write


def test_an_expectation_is_made_with_its_arguments(define: Define) -> None:
    asked = {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 1, "mostly": 0.9}
    (made,) = own_expectations(define(asked))
    assert made.expectation_type == asked["type"]
    assert made.configuration.kwargs | asked == made.configuration.kwargs | {"type": asked["type"]}


@pytest.mark.parametrize(
    ("expectation", "told"),
    [
        (
            {"type": "expect_column_values_to_be_between", "column": "amount", "min": 1},
            ["expectations[0].min = 1", "unknown argument", "min_value, max_value"],
        ),
        (
            {"type": "expect_column_values_to_be_in_set", "column": "amount", "value_set": 5},
            ["expectations[0].value_set = 5"],
        ),
        (
            {"type": "expect_column_value_lengths_to_equal", "column": "id"},
            ["expectations[0]", "value: field required"],
        ),
        (
            {"type": "expect_column_values_to_be_between", "column": "amount"},
            ["expectations[0]", "min_value and max_value cannot both be None"],
        ),
    ],
)
def test_what_great_expectations_refuses_is_told_with_its_place(
    expectation: dict[str, Any], told: list[str]
) -> None:
    recorded = Definition.from_dict({**ORDERS, "expectations": [expectation]})
    with pytest.raises(DefinitionError) as refused:
        own_expectations(recorded)
    for part in ("Load 'orders'", *told):
        assert part in str(refused.value)


def test_an_unknown_expectation_is_refused_with_the_nearest_one() -> None:
    unknown = Definition.from_dict({**ORDERS, "expectations": [{"type": "expect_colum_to_exist"}]})
    with pytest.raises(DefinitionError, match=r"expectations\[0\]\.type.*expect_column_to_exist"):
        own_expectations(unknown)


def test_every_expectation_a_definition_may_name_is_known_to_great_expectations() -> None:
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    assert set(EXPECTATIONS) <= set(list_registered_expectation_implementations())


def test_the_suites_hold_checks_ledger_and_freshness_only_with_a_limit() -> None:
    definition = Definition.from_dict(ORDERS)
    suites = build_suites(definition, [BATCH, UNIQUE], None)
    assert set(suites) == {FACTS, LEDGER}
    assert [one.column for one in suites[FACTS].expectations] == ["_check_batch", "_check_unique"]  # type: ignore[attr-defined]
    assert FRESHNESS in build_suites(definition, [], 60.0)
