"""The plans of batches: how long they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.home import LoadHome
from freshet.streaming.plan import KEPT_PLANS, forget_plans


def test_plans_of_batches_validated_long_ago_go_with_all_that_was_noted_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path))
    plans = LoadHome("sales").plans
    plans.mkdir(parents=True)
    old = {"3.json", "damaged-3.json", "3.json.replaced-1700000000", "damaged-3.json.replaced-1700000000"}
    kept = {"4.json", "damaged-4.json", f"{KEPT_PLANS + 3}.json", f"{KEPT_PLANS + 900}.json", ".5.json.draft"}
    for name in old | kept:
        (plans / name).touch()
    forget_plans("sales", KEPT_PLANS + 3)
    assert {file.name for file in plans.iterdir()} == kept
