"""The table of expectations and their arguments is Great Expectations' own."""

from __future__ import annotations

from typing import Any

import pytest
from great_expectations.expectations.registry import get_expectation_impl

from freshet.config.expectations import COLUMN_ARGUMENTS, EXPECTATIONS, argument_problems

GLITCHES = {"library_metadata"}
"""A description of the expectation itself, which some of them take for an argument."""

RIGHT: dict[str, Any] = {
    **dict.fromkeys(COLUMN_ARGUMENTS, "c"),
    "value_set": [1, 2],
    "value_pairs_set": [[1, 2]],
    "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[1, None]]},
    "value": 1,
    "threshold": 1.5,
    "double_sided": True,
    "type_": "IntegerType",
    "json_schema": {},
    "strftime_format": "%Y-%m-%d",
    "regex": "a",
    "regex_list": ["a"],
    "column_list": ["c", "d"],
    "sum_total": 1,
}
VALUES: list[Any] = [
    None, True, 0, 1, 3, -1, 0.5, 1.5, 2.0, "", "x", "5", "0.5", "2026-01-31", "2026-01-31 10:00:00",
    "2026-01-31T10:00:00Z", "2026-13-45", "any", "never", "neither", "warning", "spark", "%Y", "%Q", [],
    ["a"], [1], [[1, 2]], [[1, 2, 3]], {}, {"a": 1}, {"quantiles": [0.5], "value_ranges": [[1, 2], [3, 4]]},
    {"quantiles": [0.5], "value_ranges": [[2, 1]]}, {"quantiles": [0.1], "value_ranges": [[1, 2]]},
]  # fmt: skip


def taken(type_: str, arguments: dict[str, Any]) -> bool:
    """Whether Great Expectations makes an expectation of it."""
    try:
        get_expectation_impl(type_)(**arguments)
    except Exception:
        return False
    return True


def needed(type_: str) -> dict[str, Any]:
    """The fewest arguments with which an expectation is right."""
    wanted = {name: RIGHT[name] for name, argument in EXPECTATIONS[type_].items() if argument.required}
    return wanted | ({"min_value": 0} if "min_value" in EXPECTATIONS[type_] else {})


@pytest.mark.parametrize("type_", EXPECTATIONS)
def test_the_arguments_are_those_of_great_expectations(type_: str) -> None:
    fields = {
        name: field.required
        for name, field in get_expectation_impl(type_).__fields__.items()
        if name not in GLITCHES
    }
    assert {name: argument.required for name, argument in EXPECTATIONS[type_].items()} == fields


@pytest.mark.parametrize("type_", EXPECTATIONS)
def test_the_fewest_arguments_are_right(type_: str) -> None:
    assert list(argument_problems({"type": type_, **needed(type_)}, ())) == []
    assert taken(type_, needed(type_))


@pytest.mark.parametrize("type_", EXPECTATIONS)
def test_what_great_expectations_refuses_is_refused(type_: str) -> None:
    for name in EXPECTATIONS[type_].keys() - {*COLUMN_ARGUMENTS}:
        for value in VALUES:
            arguments = {**needed(type_), name: value}
            if not taken(type_, arguments):
                assert list(argument_problems({"type": type_, **arguments}, ())), (name, value)


@pytest.mark.parametrize("type_", EXPECTATIONS)
def test_without_a_required_argument_it_is_refused(type_: str) -> None:
    for name, argument in EXPECTATIONS[type_].items():
        if argument.required:
            rest = {other: value for other, value in needed(type_).items() if other != name}
            (problem,) = argument_problems({"type": type_, **rest}, ())
            assert (problem.field, problem.what) == ((name,), "missing")


def test_bounds_are_needed_and_in_order() -> None:
    for bounds, told in (
        ({}, "missing, as is max_value"),
        ({"min_value": 2, "max_value": 1}, "less than min"),
    ):
        asked = {"type": "expect_column_values_to_be_between", "column": "c", **bounds}
        (problem,) = argument_problems(asked, ())
        assert told in problem.what


@pytest.mark.parametrize(
    "right",
    [
        {"min_value": "2026-01-31", "max_value": "2026-02-01T10:00:00+01:00", "strict_min": True},
        {"min_value": 0.5, "max_value": None, "mostly": 0.99, "row_condition": "c > 1"},
        {"min_value": 1, "meta": {"a": 1}, "notes": ["n"], "severity": "warning", "description": "d"},
    ],
)
def test_right_arguments_are_accepted(right: dict[str, Any]) -> None:
    type_ = "expect_column_values_to_be_between"
    assert list(argument_problems({"type": type_, "column": "c", **right}, ())) == []
    assert taken(type_, {"column": "c", **right})
