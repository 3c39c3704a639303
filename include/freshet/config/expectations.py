"""The expectations a definition may name and their arguments: those Great Expectations computes on Spark.

They stand here, and not with the validation, because importing Great Expectations takes seconds. A test
compares them with Great Expectations' own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from freshet.config.names import suggestion
from freshet.config.problems import Field, Problem

# One expectation a line: its name, then its arguments, with ! the required ones, and with the kind of an
# argument where that is not the usual one of the name.
_TABLE = """
    column_distinct_values_to_be_in_set column! value_set!
    column_distinct_values_to_contain_set column! value_set!
    column_distinct_values_to_equal_set column! value_set!
    column_kl_divergence_to_be_less_than column! partition_object threshold internal_weight_holdout \
        tail_weight_holdout bucketize_data min_value max_value
    column_max_to_be_between column! min_value max_value strict_min strict_max
    column_mean_to_be_between column! min_value max_value strict_min strict_max
    column_median_to_be_between column! min_value max_value strict_min strict_max
    column_min_to_be_between column! min_value max_value strict_min strict_max
    column_most_common_value_to_be_in_set column! value_set! ties_okay
    column_pair_values_a_to_be_greater_than_b column_A! column_B! mostly or_equal ignore_row_if:pair
    column_pair_values_to_be_equal column_A! column_B! mostly ignore_row_if:pair
    column_pair_values_to_be_in_set column_A! column_B! mostly value_pairs_set! ignore_row_if:pair
    column_proportion_of_non_null_values_to_be_between column! min_value:number max_value:number \
        strict_min strict_max
    column_proportion_of_unique_values_to_be_between column! min_value:number max_value:number \
        strict_min strict_max
    column_quantile_values_to_be_between column! quantile_ranges! allow_relative_error
    column_stdev_to_be_between column! min_value:number max_value:number strict_min strict_max
    column_sum_to_be_between column! min_value max_value strict_min strict_max
    column_to_exist column! column_index
    column_unique_value_count_to_be_between column! min_value:whole max_value:whole strict_min strict_max
    column_value_lengths_to_be_between column! mostly min_value:whole max_value:whole strict_min strict_max
    column_value_lengths_to_equal column! mostly value!
    column_value_z_scores_to_be_less_than column! mostly threshold! double_sided!
    column_values_to_be_between column! mostly min_value max_value strict_min strict_max
    column_values_to_be_dateutil_parseable column! mostly
    column_values_to_be_decreasing column! mostly strictly
    column_values_to_be_in_set column! mostly value_set!
    column_values_to_be_in_type_list column! mostly type_list
    column_values_to_be_increasing column! mostly strictly
    column_values_to_be_json_parseable column! mostly
    column_values_to_be_null column! mostly
    column_values_to_be_of_type column! mostly type_!
    column_values_to_be_unique column! mostly
    column_values_to_match_json_schema column! mostly json_schema!
    column_values_to_match_regex column! mostly regex
    column_values_to_match_regex_list column! mostly regex_list! match_on
    column_values_to_match_strftime_format column! mostly strftime_format!
    column_values_to_not_be_in_set column! mostly value_set!
    column_values_to_not_be_null column! mostly
    column_values_to_not_match_regex column! mostly regex!
    column_values_to_not_match_regex_list column! mostly regex_list!
    compound_columns_to_be_unique column_list:several! mostly ignore_row_if
    multicolumn_sum_to_equal column_list:several! mostly ignore_row_if sum_total!
    select_column_values_to_be_unique_within_record column_list:several! mostly ignore_row_if
    table_column_count_to_be_between min_value max_value
    table_column_count_to_equal value:whole!
    table_columns_to_match_ordered_list column_list
    table_columns_to_match_set column_set exact_match
    table_row_count_to_be_between min_value:whole max_value:whole strict_min strict_max
    table_row_count_to_equal value:whole!
"""

COLUMN_ARGUMENTS = ("column", "column_A", "column_B")
COLUMN_LIST_ARGUMENTS = ("column_list",)
GENERAL_ARGUMENTS = (
    "id", "meta", "notes", "result_format", "catch_exceptions", "rendered_content", "batch_id", "windows",
    "severity", "description",
)  # fmt: skip
"""What every expectation takes, and what has no part in what it expects."""

_CONDITION = ("row_condition", "condition_parser")
_WITHOUT_CONDITION = (
    "column_to_exist", "table_column_count_to_be_between", "table_column_count_to_equal",
    "table_columns_to_match_ordered_list", "table_columns_to_match_set",
)  # fmt: skip
_BOUNDED = ("expect_column_values_to_be_between", "expect_column_value_lengths_to_be_between")
"""Expectations that must have one bound at least."""
_MAY_BE_NULL = frozenset(
    """
    min_value max_value row_condition condition_parser description meta notes partition_object threshold
    internal_weight_holdout tail_weight_holdout ties_okay or_equal column_index strictly type_list column_list
    column_set exact_match id batch_id windows rendered_content
    """.split()
)
_DATE = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})([T ]\d{1,2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?", re.ASCII
)


@dataclass(frozen=True)
class Argument:
    """An argument of an expectation."""

    kind: str
    required: bool = False


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[-+]?\d+(\.\d+)?", value, re.ASCII) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[-+]?\d+", value, re.ASCII) is not None
    return isinstance(value, int) and not isinstance(value, bool)


def _is_bound(value: Any) -> bool:
    match = _DATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return _is_number(value)
    try:
        date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)


def _is_quantiles(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.keys() != {"quantiles", "value_ranges"}:
        return False
    quantiles, ranges = value["quantiles"], value["value_ranges"]
    return (
        isinstance(quantiles, list)
        and all(map(_is_number, quantiles))
        and _is_pairs(ranges)
        and all(bound is None or _is_number(bound) for pair in ranges for bound in pair)
        and all(float(low) <= float(high) for low, high in ranges if None not in (low, high))
        and len(quantiles) == len(ranges)
    )


def _is_format(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        datetime.strptime(datetime(2026, 1, 31, tzinfo=UTC).strftime(value), value).replace(tzinfo=UTC)
    except (ValueError, re.error):
        return False
    return True


def _one_of(*words: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in words, f"one of {', '.join(words)}"


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "bound": (_is_bound, "a number, a date or a timestamp, such as 1 or 2026-01-31"),
    "column": (lambda value: True, "a column of the facts"),
    "condition": (lambda value: isinstance(value, str), "a condition, such as quantity > 1"),
    "flag": (lambda value: isinstance(value, bool), "true or false"),
    "flag or text": (lambda value: isinstance(value, (bool, str)), "true, false or a text"),
    "format": (_is_format, 'a format of dates, such as "%Y-%m-%d"'),
    "list": (lambda value: isinstance(value, list) and bool(value), "a list with at least one value"),
    "mapping": (lambda value: isinstance(value, Mapping), "a mapping"),
    "nothing": (lambda value: value is None, "null: it has no meaning here"),
    "result": _one_of("BOOLEAN_ONLY", "BASIC", "SUMMARY", "COMPLETE"),
    "several": (lambda value: _is_texts(value) and len(value) > 1, "a list of at least two columns"),
    "missing": _one_of("all_values_are_missing", "any_value_is_missing", "never"),
    "notes": (lambda value: isinstance(value, str) or _is_texts(value), "a text, or a list of texts"),
    "number": (_is_number, "a number, such as 0.5"),
    "pair": _one_of("both_values_are_missing", "either_value_is_missing", "neither"),
    "pairs": (_is_pairs, "a list of lists of two values each"),
    "parser": _one_of("great_expectations", "great_expectations__experimental__", "pandas", "spark"),
    "quantiles": (
        _is_quantiles,
        "a mapping of quantiles to a list of numbers and of value_ranges to as many lists of two",
    ),
    "severity": _one_of("critical", "warning", "info"),
    "share": (lambda value: _is_number(value) and 0 <= float(value) <= 1, "a number from 0 to 1"),
    "text": (lambda value: isinstance(value, str), "a text"),
    "texts": (_is_texts, "a list of texts, at least one"),
    "which": _one_of("any", "all"),
    "whole": (_is_whole, "a whole number, such as 10"),
}
"""How a value of each kind is told, and what it is called."""

_USUAL = {
    "min_value": "bound", "max_value": "bound", "row_condition": "condition", "value_set": "list",
    "column_set": "list", "strftime_format": "format", "allow_relative_error": "flag or text",
    "partition_object": "mapping", "json_schema": "mapping", "meta": "mapping", "ignore_row_if": "missing",
    "notes": "notes", "value": "number", "sum_total": "number", "threshold": "number",
    "value_pairs_set": "pairs", "condition_parser": "parser", "quantile_ranges": "quantiles",
    "severity": "severity", "mostly": "share", "internal_weight_holdout": "share",
    "tail_weight_holdout": "share", "regex_list": "texts", "type_list": "texts", "column_list": "texts",
    "match_on": "which", "column_index": "whole", **dict.fromkeys(COLUMN_ARGUMENTS, "column"),
    "regex": "text", "type_": "text", "description": "text", "id": "text",
    "batch_id": "text", "result_format": "result", "windows": "nothing", "rendered_content": "nothing",
    **dict.fromkeys(("strict_min", "strict_max", "bucketize_data", "ties_okay", "or_equal", "double_sided",
                     "strictly", "exact_match", "catch_exceptions"), "flag"),
}  # fmt: skip
"""The kind of an argument of this name."""


def _arguments(name: str, written: list[str]) -> dict[str, Argument]:
    optional = () if name in _WITHOUT_CONDITION else _CONDITION
    found = {}
    for text in (*written, *optional, *GENERAL_ARGUMENTS):
        argument, _, kind = text.rstrip("!").partition(":")
        found[argument] = Argument(kind or _USUAL[argument], text.endswith("!"))
    return found


EXPECTATIONS: Mapping[str, Mapping[str, Argument]] = {
    f"expect_{name}": _arguments(name, written)
    for name, *written in (line.split() for line in _TABLE.splitlines() if line.strip())
}
"""The arguments of each expectation by their names."""


def argument_problems(expectation: Mapping[str, Any], field: Field) -> Iterator[Problem]:
    """What Great Expectations would refuse of the arguments of an expectation it has."""
    type_ = expectation["type"]
    known = EXPECTATIONS[type_]
    given = {name: value for name, value in expectation.items() if name != "type"}
    for name, value in given.items():
        if name not in known:
            takes = [argument for argument in known if argument not in GENERAL_ARGUMENTS]
            yield Problem((*field, name), "unknown argument", suggestion(name, takes), value=value)
        elif not _fits(name, known[name], value):
            words = _KINDS[known[name].kind][1]
            yield Problem((*field, name), f"not {words}", f"Write {name}: {words}", value=value)
    for name, argument in known.items():
        if argument.required and name not in given:
            yield Problem((*field, name), "missing", f"Write {name}: {_KINDS[argument.kind][1]}")
    if type_ in _BOUNDED and given.get("min_value") is None and given.get("max_value") is None:
        yield Problem((*field, "min_value"), "missing, as is max_value", "Write one of them, or both")
    low, high = (given.get(name, "") for name in ("min_value", "max_value"))
    if _is_number(low) and _is_number(high) and float(low) > float(high):
        yield Problem(
            (*field, "max_value"), "less than min_value", "Write them the other way round", value=high
        )


def _fits(name: str, argument: Argument, value: Any) -> bool:
    if value is None and name in _MAY_BE_NULL and not argument.required:
        return True
    return _KINDS[argument.kind][0](value)
