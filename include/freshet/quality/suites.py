"""The expectation suites of a load, built in code: Freshet's own expectations and the definition's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import great_expectations as gx
from great_expectations.compatibility.pydantic import ValidationError as BadArguments
from great_expectations.exceptions.exceptions import ExpectationNotFoundError, GreatExpectationsError
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.registry import get_expectation_impl

from freshet.config import Definition, DefinitionFileError, Problem, definition_file
from freshet.config.expectations import EXPECTATIONS
from freshet.config.names import suggestion
from freshet.errors import DefinitionError
from freshet.quality.checks import Check

FACTS, LEDGER, FRESHNESS = "facts", "ledger", "freshness"
AGE = "age_seconds"


def build_suites(
    definition: Definition, checks: Sequence[Check], freshness: float | None
) -> dict[str, gx.ExpectationSuite]:
    """The suites by what they are about: the new facts, the ledger and, when it is limited, freshness."""
    suites = {
        FACTS: [*map(_checked, checks), *own_expectations(definition)],
        LEDGER: _ledger(),
        FRESHNESS: [_freshness(freshness)] if freshness is not None else [],
    }
    return {
        name: gx.ExpectationSuite(name=f"{definition.load}-{name}", expectations=expectations)
        for name, expectations in suites.items()
        if expectations
    }


def own_expectations(definition: Definition) -> list[Expectation]:
    """The expectations that the definition asks for; refused when Great Expectations cannot make them."""
    return [_own(definition, position, asked) for position, asked in enumerate(definition.expectations)]


def _checked(check: Check) -> Expectation:
    return _expectation(
        "expect_column_values_to_be_null",
        column=check.column,
        meta={"check": check.name},
        description=check.description,
    )


def _ledger() -> list[Expectation]:
    zero = {
        "missing_before": "No batch is missing between the first and the last",
        "difference": "Every batch has given out what it took in",
        "facts_difference": "The fact table, or quarantine, holds the rows each batch has given it",
        "parked_difference": "The parked table holds the rows each batch has given it",
    }
    expected = {"records": ([1], "Every batch has one row in the ledger")}
    expected |= {column: ([0], description) for column, description in zero.items()}
    expected["balanced"] = ([True], "Every batch was balanced when it was written")
    return [
        _expectation(
            "expect_column_values_to_be_in_set",
            column=column,
            value_set=values,
            meta={"check": f"ledger {column}"},
            description=description,
        )
        for column, (values, description) in expected.items()
    ]


def _freshness(limit: float) -> Expectation:
    return _expectation(
        "expect_column_max_to_be_between",
        column=AGE,
        max_value=limit,
        meta={"check": "freshness"},
        description=f"The newest of the new facts was at most {limit:,.0f} s old when it was loaded",
    )


def _expectation(kind: str, **arguments: Any) -> Expectation:
    """An expectation by its name, as Great Expectations registers it."""
    made: Any = get_expectation_impl(kind)
    expectation: Expectation = made(**arguments)
    return expectation


def _own(definition: Definition, position: int, asked: Mapping[str, Any]) -> Expectation:
    arguments = {name: value for name, value in asked.items() if name not in ("type", "meta")}
    meta = {**(asked.get("meta") or {}), "check": f"expectations[{position}]"}
    field = ("expectations", position)
    kind = str(asked.get("type"))
    try:
        return _expectation(kind, **arguments, meta=meta)
    except ExpectationNotFoundError:
        problem = Problem((*field, "type"), "not an expectation", suggestion(kind, EXPECTATIONS), value=kind)
    except BadArguments as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        known = [name for name in get_expectation_impl(kind).__fields__ if name not in _NOT_ARGUMENTS]
        what = "unknown argument" if first["type"] == "value_error.extra" else first["msg"]
        if name in arguments:
            problem = Problem((*field, name), what, f"{kind} takes {', '.join(known)}", value=arguments[name])
        else:
            problem = Problem(field, f"{name}: {what}", f"{kind} takes {', '.join(known)}", value=dict(asked))
    except (GreatExpectationsError, TypeError, ValueError) as error:
        problem = Problem(
            field, str(error).strip().rstrip("."), f"Correct the arguments of {kind}", value=dict(asked)
        )
    raise _refused(definition, problem)


_NOT_ARGUMENTS = (
    "id", "meta", "notes", "result_format", "catch_exceptions", "rendered_content", "batch_id",
    "windows", "severity", "version",
)  # fmt: skip


def _refused(definition: Definition, problem: Problem) -> DefinitionError:
    """The error, with the definition's file when it is in the loads folder."""
    file = definition_file(definition)
    if file is None:
        return DefinitionError(f"Load {definition.load!r}: {problem}")
    return DefinitionFileError(file, [problem], load=definition.load)
