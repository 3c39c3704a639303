"""Derived columns are expressions of one row that give the same value in every retry."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.config.expressions import _is_plain, _thorough, findings
from freshet.config.functions import AGGREGATES, ALLOWED, BARE, CHANGING

COLUMNS = ["quantity", "sale_price", "day", "tags", "address", "prices", "note"]

PLAIN = [
    "quantity * sale_price",
    "Quantity*2",
    "-quantity + (sale_price / 2.5) % 7",
    "round(quantity * sale_price, 2)",
    "upper(trim(note))",
]
OTHERS = [
    "cast(quantity * sale_price as decimal(12,2))",
    "case when quantity > 10 then 'bulk' else 'single' end",
    "coalesce(note, 'rand()')",
    "address.city",
    "tags[0]",
    "prices['net']",
    "transform(tags, tag -> concat(tag, note))",
    "filter(tags, (tag, i) -> i > quantity)",
    "exists(tags, t -> t = 'x')",
    "if(quantity in (1, 2), 1, 0)",
    "date_format(day, 'yyyy-MM')",
    "extract(year from day)",
    "day + interval 1 day",
    "date '2024-01-01'",
    "note like any ('a%', 'b%')",
    "try_divide(sale_price, quantity)",
    "`quantity` DIV 2",
    "note is not null and quantity between 1 and 5",
    "struct(quantity as n)",
    "quantity::bigint",
    "unix_timestamp(day)",
    "quantity -- the number sold",
]


@pytest.mark.parametrize("expression", PLAIN + OTHERS)
def test_deterministic_expressions_of_one_row_are_accepted(expression: str) -> None:
    assert findings(expression, COLUMNS) == []


@pytest.mark.parametrize("expression", PLAIN)
def test_plain_expressions_need_no_sql_parser(expression: str) -> None:
    assert _is_plain(expression, set(COLUMNS))


def test_the_sql_parser_is_imported_only_for_what_is_not_plain() -> None:
    program = (
        "import sys; from freshet.config.expressions import findings;"
        "findings('quantity * 2', ['quantity']); assert 'sqlglot' not in sys.modules;"
        "findings('quantity > 2', ['quantity']); assert 'sqlglot' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


PIECES = st.sampled_from(
    [*COLUMNS, *"+-*/%(), ", "nothing", "1", "2.5", ".5", "007", "1_0", "1e3", "5j", "5L", "round(", "abs(",
     "rand()", "upper", "--"]
)  # fmt: skip


@given(st.lists(PIECES, min_size=1, max_size=8).map("".join))
def test_what_is_taken_for_plain_passes_the_sql_parser_too(expression: str) -> None:
    known = set(COLUMNS)
    if _is_plain(expression, known):
        assert list(_thorough(expression, COLUMNS, known, {})) == []


@pytest.mark.parametrize("function", sorted(CHANGING))
def test_functions_that_change_between_retries_are_refused(function: str) -> None:
    assert f"{function} may give another value in a retry" in _said(f"concat(note, {function}())")


@pytest.mark.parametrize("function", sorted(BARE))
def test_they_are_refused_without_parentheses_too_unless_a_column_has_the_name(function: str) -> None:
    assert _said(f"concat(note, {function})") == [f"{function} may give another value in a retry"]
    assert findings(f"concat(note, {function})", [*COLUMNS, function]) == []


@pytest.mark.parametrize("function", sorted(AGGREGATES))
def test_functions_of_several_rows_are_refused(function: str) -> None:
    assert f"{function} is not a function of one row" in _said(f"1 + {function}(quantity)")


def test_no_function_is_both_allowed_and_refused() -> None:
    assert not ALLOWED & CHANGING
    assert not ALLOWED & AGGREGATES


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("quantiy * sale_price", "there is no column 'quantiy'"),
        ("quantiy > 1", "there is no column 'quantiy'"),
        ("adress.city", "there is no column 'adress'"),
        ("`odd name` + 1", "there is no column 'odd name'"),
        ("roundd(quantity, 2)", "roundd is not a function that a derived column may use"),
        ("my_udf(quantity)", "my_udf is not a function that a derived column may use"),
        ("`rand`(1)", "rand may give another value in a retry"),
        ("system.builtin.rand()", "rand may give another value in a retry"),
        ("RAND ( 7 )", "rand may give another value in a retry"),
        ("unix_timestamp()", "unix_timestamp may give another value in a retry"),
        ("timestamp 'now'", "depends on the time at which it runs ('now', 'today', …)"),
        ("date ' Today'", "depends on the time at which it runs ('now', 'today', …)"),
        ("quantity +", "not a Spark SQL expression: something is missing"),
        ("round(quantity,", "not a Spark SQL expression: Expecting )"),
        ("'open", "not a Spark SQL expression: a quote or a comment is not closed"),
        ("", "no expression"),
        ("  ", "no expression"),
        ("quantity, 1", "not one expression"),
        ("quantity) + (1", "not one expression"),
        ("quantity) from x where (1 = 1", "not one expression"),
        ("quantity as q", "gives the value a name"),
        ("quantity q", "gives the value a name"),
        ("*", "* is not a value"),
        ("(select max(x) from t)", "contains a subquery"),
        ("quantity in (select 1)", "contains a subquery"),
        ("exists(select 1)", "contains a subquery"),
        ("sum(quantity) over (partition by note)", "contains a window function"),
        (":day", "contains a parameter or a template"),
        ("{{ ds }}", "contains a parameter or a template"),
        ("(" * 3000 + "quantity" + ")" * 3000, "nested too deeply"),
    ],
)
def test_what_cannot_be_a_derived_column_is_refused(expression: str, said: str) -> None:
    assert said in _said(expression)


def test_the_remedy_names_the_nearest_column_and_function() -> None:
    remedies = [remedy for _, remedy in findings("roundd(quantiy, 2)", COLUMNS)]
    assert any("Did you mean round?" in remedy for remedy in remedies)
    assert any("Did you mean 'quantity'?" in remedy for remedy in remedies)


def test_everything_wrong_with_an_expression_is_told_at_once() -> None:
    assert len(findings("rand() * quantiy + sum(sale_price) + nope(1)", COLUMNS)) == 4


TYPES = {"Note": "string", "day": "date", "tags": "array<string>", "prices": "map<string,int>"}
MOMENT = "depends on the time at which it runs ('now', 'today', …)"


@pytest.mark.parametrize(
    "expression",
    [
        "day < 'now'",
        "' TODAY ' = day",
        "day between 'yesterday' and '2030-01-01'",
        "day in ('2024-01-01', 'tomorrow')",
        "day <=> r'now'",
        "day = 'today UTC'",
        "datediff('today', day)",
        "timestampdiff(DAY, day, 'now')",
        "date_add('today', 1)",
        "year('now')",
        "unix_timestamp('now')",
        "to_date('now')",
        "date('now')",
        "timestamp 'now'",
        "'now'::timestamp",
        "try_cast('now' as date)",
        "day - 'yesterday'",
        "coalesce(day, 'today')",
        "greatest('now', day)",
        "case when quantity > 1 then day else 'today' end",
        "case day when 'today' then 1 end",
        "if(quantity > 1, 'today', day)",
        "day > coalesce('now', 'x')",
        "day > upper('now')",
        "day > cast('now' as string)",
        "address.city = 'today'",
        "quantity = 'today'",
        "filter(tags, note -> note = 'today')",
        "array('now', day)",
    ],
)
def test_words_that_may_become_the_time_are_refused(expression: str) -> None:
    assert [what for what, _ in findings(expression, COLUMNS, TYPES)] == [MOMENT]


@pytest.mark.parametrize(
    "expression",
    [
        "'today'",
        "note = 'today'",
        "'today' <> NOTE",
        "note in ('today', 'now')",
        "note between 'now' and 'today'",
        "lower(trim(note)) = 'today'",
        "cast(address.city as string) = 'today'",
        "case when quantity > 1 then 'today' else 'later' end",
        "case note when 'today' then 1 else 2 end",
        "if(note = 'now', 'today', null)",
        "coalesce(note, 'today')",
        "nullif(note, 'today')",
        "concat(note, 'today')",
        "note || 'now'",
        "note like 'today'",
        "replace(note, 'today', 'x')",
        "array_contains(tags, 'today')",
        "prices['today']",
        "struct('today' as said)",
        "map('today', 1)",
        "day < 'epoch'",
        "day < 'nowhere'",
        "day = '2024-01-01'",
    ],
)
def test_the_same_words_as_texts_are_accepted(expression: str) -> None:
    assert findings(expression, COLUMNS, TYPES) == []


def test_where_a_type_is_not_known_the_remedy_says_how_to_write_it() -> None:
    ((what, remedy),) = findings("note = 'today'", COLUMNS)
    assert what == MOMENT
    assert "cast(NAME as string) = 'today'" in remedy


def _said(expression: str) -> list[str]:
    return [what for what, _ in findings(expression, COLUMNS)]
