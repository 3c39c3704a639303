"""A default takes the type of its column, or is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from freshet.streaming.worker import typed_default


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (None, pa.decimal128(10, 2), None),
        (0, pa.decimal128(10, 2), Decimal("0.00")),
        (0.1, pa.decimal128(10, 2), Decimal("0.10")),
        ("12.5", pa.decimal128(10, 2), Decimal("12.50")),
        (7, pa.int8(), 7),
        (1, pa.float64(), 1.0),
        ("unknown", pa.string(), "unknown"),
        ("2026-01-31", pa.date32(), date(2026, 1, 31)),
        ("2026-01-31T10:00:00Z", pa.timestamp("us", "UTC"), datetime(2026, 1, 31, 10, tzinfo=UTC)),
        (True, pa.bool_(), True),
    ],
)
def test_a_fitting_value_is_given_in_the_type_of_the_column(
    value: Any, wanted: pa.DataType, expected: Any
) -> None:
    scalar = typed_default(value, wanted)
    assert scalar.type == wanted
    assert scalar.as_py() == expected


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("cheap", pa.decimal128(10, 2)),
        (123456789, pa.decimal128(10, 2)),
        (0.001, pa.decimal128(10, 2)),
        ("x", pa.int64()),
        (1.5, pa.int64()),
        (300, pa.int8()),
        ("yesterday", pa.date32()),
        ("2026-01-31T10:00:00", pa.timestamp("us", "UTC")),
    ],
)
def test_any_other_value_is_refused(value: Any, wanted: pa.DataType) -> None:
    with pytest.raises(ValueError, match=r"."):
        typed_default(value, wanted)
