"""What a run may be given instead of what its definition says."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.config.models import LARGEST_SIZE, LONGEST_TIME, MOST_FILES
from freshet.errors import FreshetError
from freshet.streaming.enrich import EnrichOptions


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"run_for": 0}, "such as 30s"),
        ({"run_for": -1}, "such as 30s"),
        ({"run_for": LONGEST_TIME + 1}, "1000d"),
        ({"memory": 5}, "such as 64MB"),
        ({"memory": 1 << 62}, "900TB"),
        ({"max_files": 0}, "1 or more"),
        ({"max_files": 3_000_000_000}, "100000 or less"),
        ({"trigger_interval": 8.6e16}, "1000d"),
        ({"trigger_interval": -1}, "such as 30s"),
        ({"algorithm": "nested"}, "x-hybridjoin"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(option: dict[str, Any], remedy: str) -> None:
    with pytest.raises(FreshetError, match=remedy):
        EnrichOptions(**option)


def test_a_run_may_be_given_whatever_a_definition_may_have() -> None:
    EnrichOptions(None, LARGEST_SIZE, LONGEST_TIME, False, MOST_FILES, LONGEST_TIME)
    EnrichOptions(trigger_interval=0, run_for=0.001, memory=1024, max_files=1)
