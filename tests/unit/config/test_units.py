"""Sizes and times are read as people write them."""

from __future__ import annotations

import pytest

from freshet.config import UnitError, format_bytes, parse_bytes, parse_seconds
from freshet.errors import FreshetError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MB", 64 * 1024**2),
        ("64 mb", 64 * 1024**2),
        ("64MiB", 64 * 1024**2),
        ("64m", 64 * 1024**2),
        ("1.5GB", 3 * 1024**3 // 2),
        ("2TB", 2 * 1024**4),
        ("10KB", 10240),
        ("512B", 512),
        ("512", 512),
        (512, 512),
    ],
)
def test_a_size_is_a_number_and_a_binary_unit(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "MB", "64 bananas", "-1MB", "0", "0.1B", "1e3MB", "٣MB", "99999999TB", True, None, 1.5j, "1MB2"],
)
def test_what_is_not_a_size_is_refused_with_its_value_and_an_example(text: object) -> None:
    with pytest.raises(UnitError, match="such as 64MB") as refused:
        parse_bytes(text)  # type: ignore[arg-type]
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("1s", 1),
        ("1h30m", 5400),
        ("1h 30 min", 5400),
        ("250ms", 0.25),
        ("2d", 172800),
        ("1.5S", 1.5),
        ("0s", 0),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_a_time_is_numbers_and_units(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "m", "ten minutes", "-5s", "5 weeks", "inf", "nan", float("nan"), True, None, "5s!"]
)
def test_what_is_not_a_time_is_refused_with_its_value_and_an_example(text: object) -> None:
    with pytest.raises(UnitError, match="such as 30s, 10m or 1h30m") as refused:
        parse_seconds(text)  # type: ignore[arg-type]
    assert repr(text) in str(refused.value)


def test_a_unit_error_is_one_the_user_can_put_right() -> None:
    assert issubclass(UnitError, FreshetError)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (1023, "1023B"), (8 << 20, "8MB"), (1.5 * (1 << 30), "1.5GB")]
)
def test_a_size_is_shown_in_its_largest_unit(size: float, text: str) -> None:
    assert format_bytes(size) == text
