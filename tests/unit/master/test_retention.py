"""Old snapshots go, but never one that a batch may still need."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.home import LoadHome
from freshet.master.files import ABANDONED_AFTER
from freshet.master.publish import SnapshotWriter
from freshet.master.retention import retain, versions_in_use
from freshet.master.snapshot import snapshot_path, versions
from freshet.sorting import sort
from tests.masterdata import LOAD, load_with, sqlite_table

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(autouse=True)
def six_versions(home: Path) -> None:
    for _ in range(6):
        publish()


def publish() -> None:
    """Publish a snapshot without rows."""
    with SnapshotWriter(
        LoadHome(LOAD).snapshots("item"),
        key="id",
        schema=pa.schema([("id", pa.int64())]),
        rows=0,
        page_rows=256,
        watermark={},
        ranked_by="nothing",
    ) as writer:
        writer.publish()


def kept() -> list[int]:
    return versions(LoadHome(LOAD).snapshots("item"))


def plan(batch: int, **snapshots: int) -> Path:
    file = LoadHome(LOAD).plans / f"{batch}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"batch": batch, "snapshots": snapshots}))
    return file


def validated(batch: int | None) -> None:
    file = LoadHome(LOAD).last_good
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"version": 9} if batch is None else {"version": 9, "batch": batch}))


def test_the_last_three_are_kept() -> None:
    assert retain(LOAD, "item", now=LATER) == [1, 2, 3]
    assert kept() == [4, 5, 6]


def test_versions_that_another_sort_deletes_meanwhile_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = kept()
    monkeypatch.setattr("freshet.master.retention.versions", lambda folder: seen)
    shutil.rmtree(snapshot_path(LOAD, "item", 2))
    assert retain(LOAD, "item", now=LATER) == [3]


def test_nothing_goes_within_the_grace_period() -> None:
    assert retain(LOAD, "item") == []
    assert kept() == [1, 2, 3, 4, 5, 6]


def test_the_grace_period_begins_when_a_version_is_superseded() -> None:
    two_hours_ago = datetime.now(UTC).timestamp() - 7200
    for version in (1, 2):
        os.utime(snapshot_path(LOAD, "item", version), (two_hours_ago, two_hours_ago))
    assert retain(LOAD, "item") == [1], "version 2 was superseded by version 3 just now"


def test_versions_of_batches_that_are_not_validated_are_kept() -> None:
    for batch, version in enumerate([1, 1, 2, 3, 4]):
        plan(batch, item=version, other=6)
    validated(1)
    assert retain(LOAD, "item", now=LATER) == [1]
    assert kept() == [2, 3, 4, 5, 6]
    validated(4)
    assert retain(LOAD, "item", now=LATER) == [2, 3]


@pytest.mark.parametrize("pointer", [False, True])
def test_before_the_first_validation_every_planned_version_is_kept(pointer: bool) -> None:
    plan(0, item=1)
    plan(1, item=3)
    if pointer:
        validated(None)
    assert retain(LOAD, "item", now=LATER) == [2]


def test_plans_that_were_replaced_do_not_count() -> None:
    file = plan(0, item=1)
    file.rename(file.with_name(f"{file.name}.replaced-1"))
    assert versions_in_use(LOAD, "item") == set()


def test_a_lookup_that_is_new_in_the_load_has_no_version_in_old_plans() -> None:
    plan(0, other=1)
    assert versions_in_use(LOAD, "item") == set()


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"batch": 0}',
        '{"batch": "x", "snapshots": {"item": 1}}',
        '{"batch": 1, "snapshots": {}}',
    ],
)
def test_nothing_goes_while_a_plan_cannot_be_read(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    plan(0, item=1).write_text(damage)
    assert retain(LOAD, "item", now=LATER) == []
    assert "0.json" in caplog.text


@pytest.mark.parametrize("damage", ["", "[]", '{"batch": 7, "snapshots": {"item": 1}}'])
def test_a_plan_that_cannot_be_read_keeps_nothing_once_its_batch_is_validated(damage: str) -> None:
    plan(0, item=1).write_text(damage)
    plan(1, item=3)
    validated(0)
    assert retain(LOAD, "item", now=LATER) == [1, 2]


def test_files_that_a_batch_left_out_are_no_plan() -> None:
    plan(0, item=2)
    (LoadHome(LOAD).plans / "0.refused.json").write_text('{"file:///broken.parquet": "not Parquet"}')
    assert retain(LOAD, "item", now=LATER) == [1, 3]


def test_a_deletion_that_was_interrupted_is_finished() -> None:
    folder = LoadHome(LOAD).snapshots("item")
    snapshot_path(LOAD, "item", 1).rename(folder / ".deleted-v000001")
    retain(LOAD, "item")
    assert sorted(path.name for path in folder.iterdir()) == [f"v00000{n}" for n in range(2, 7)]


def test_what_a_killed_publisher_left_goes_after_a_day() -> None:
    folder = LoadHome(LOAD).snapshots("item")
    old, new = folder / ".unpublished-old", folder / ".unpublished-new"
    for path in (old, new):
        path.mkdir()
    long_ago = datetime.now(UTC).timestamp() - ABANDONED_AFTER - 1
    os.utime(old, (long_ago, long_ago))
    publish()
    assert (old.exists(), new.exists()) == (False, True)


def test_sorting_again_and_again_keeps_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_table("CREATE TABLE items (id BIGINT PRIMARY KEY, price DECIMAL(10,2))", [(1, 2)])
    monkeypatch.setattr(retain, "__kwdefaults__", {"keep": 3, "grace_seconds": 0.0, "now": None})
    for _ in range(3):
        sort(load_with())
    assert kept() == [7, 8, 9]


def test_a_sort_that_publishes_nothing_retires_old_versions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_table("CREATE TABLE items (id BIGINT PRIMARY KEY, price DECIMAL(10,2))", [(1, 2)])
    sort(load_with())
    assert kept() == [1, 2, 3, 4, 5, 6, 7], "the grace period is not over"
    monkeypatch.setattr(retain, "__kwdefaults__", {"keep": 3, "grace_seconds": 0.0, "now": None})
    (done,) = sort(load_with(), min_gain=1.0)
    assert not done.published
    assert kept() == [5, 6, 7]
