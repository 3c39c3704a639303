"""The time between micro-batches reaches Spark in a form that it reads, whatever the definition says."""

from __future__ import annotations

import re

import pytest

from freshet.config import parse_seconds
from freshet.streaming.enrich import spark_interval


def test_every_millisecond_is_written_as_a_whole_number() -> None:
    for milliseconds in range(1, 3000):
        for written in (f"{milliseconds}ms", f"{milliseconds / 1000}s", milliseconds / 1000):
            assert spark_interval(parse_seconds(written)) == f"{milliseconds} milliseconds"


@pytest.mark.parametrize("written", ["0s", "0.3ms", "1h30m", "999d"])
def test_no_time_is_written_with_a_point_or_an_exponent(written: str) -> None:
    assert re.fullmatch(r"\d+ milliseconds", spark_interval(parse_seconds(written)))
