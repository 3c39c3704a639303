"""Planning without a stream: what a plan says of the code that made it."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest

import freshet
from freshet.config import Definition
from freshet.streaming.checkpoint import BatchInput
from freshet.streaming.planning import Planner

EVENTS: dict[str, Any] = {
    "load": "events",
    "stream": {"path": "in", "format": "json", "columns": {"id": "string"}, "event_id": "id"},
    "lookups": [],
    "facts": {"table": "facts", "columns": ["id"]},
}


def test_a_checkout_that_was_not_installed_makes_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", unknown)
    planner = Planner(Definition.model_validate(EVENTS), stream_id="s", splits={}, time_zone="UTC")
    plan = planner.propose(0, BatchInput(files=(), digest="d"))
    assert plan.code_version == freshet.__version__
