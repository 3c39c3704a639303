"""Which files of a Delta table are new, told from its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshet.errors import LoadStateError, ValidationError
from freshet.quality.changes import Origin, only_grown, read_changes

OURS = "our-stream"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "_delta_log").mkdir()
    return tmp_path


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    text = "\n".join(json.dumps(action) for action in ({"commitInfo": {}}, *actions))
    (table / "_delta_log" / f"{version:020d}.json").write_text(text + "\n")


def add(path: str, data_change: bool = True, **other: Any) -> dict[str, Any]:
    return {"add": {"path": path, "dataChange": data_change, **other}}


def remove(path: str, data_change: bool = True) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": data_change}}


def txn(batch: int, app: str = OURS) -> dict[str, Any]:
    return {"txn": {"appId": app, "version": batch}}


def changes(table: Path, after: int | None, finished: int = 99):
    return read_changes(
        table, after, lambda app, version: version if app == OURS else None, lambda batch: batch > finished
    )


def test_files_of_later_commits_are_new_and_know_their_batch(table: Path) -> None:
    commit(table, 0)
    commit(table, 1, txn(0), add("a.parquet"))
    commit(table, 2, txn(1), add("b.parquet"), add("c.parquet"))
    found = changes(table, after=1)
    assert (found.from_version, found.to_version) == (1, 2)
    assert found.files == {table / "b.parquet": Origin(2, 1), table / "c.parquet": Origin(2, 1)}


def test_without_a_last_good_version_everything_is_new(table: Path) -> None:
    commit(table, 0, txn(0), add("a.parquet"))
    commit(table, 1, txn(1), add("b.parquet"))
    found = changes(table, after=None)
    assert found.files is not None
    assert set(found.files) == {table / "a.parquet", table / "b.parquet"}


def test_an_append_without_a_batch_is_foreign(table: Path) -> None:
    commit(table, 0, add("a.parquet"))
    commit(table, 1, txn(7, app="somebody else"), add("b.parquet"))
    found = changes(table, after=None)
    assert found.files is not None
    assert all(origin.foreign for origin in found.files.values())


def test_a_delete_makes_the_rewritten_file_new_and_forgets_the_removed_one(table: Path) -> None:
    commit(table, 0, txn(0), add("old.parquet"))
    commit(table, 1, txn(1), add("new.parquet"))
    commit(table, 2, remove("new.parquet"), remove("old.parquet"), add("rest.parquet"))
    found = changes(table, after=0)
    assert found.files == {table / "rest.parquet": Origin(2, None, rewritten=True)}
    assert not found.files[table / "rest.parquet"].foreign


def test_compaction_of_old_files_is_not_new_and_of_new_files_is(table: Path) -> None:
    commit(table, 0, txn(0), add("a.parquet"), add("b.parquet"))
    commit(table, 1, remove("a.parquet", False), remove("b.parquet", False), add("ab.parquet", False))
    assert changes(table, after=0).empty
    commit(table, 2, txn(1), add("c.parquet"))
    commit(table, 3, remove("ab.parquet", False), remove("c.parquet", False), add("abc.parquet", False))
    assert changes(table, after=1).files == {table / "abc.parquet": Origin(3, None, rewritten=True)}


def test_facts_of_an_unfinished_batch_are_held_back(table: Path) -> None:
    commit(table, 0, txn(0), add("a.parquet"))
    commit(table, 1, txn(1), add("b.parquet"))
    commit(table, 2, add("foreign.parquet"))
    found = changes(table, after=None, finished=0)
    assert (found.to_version, found.held_back) == (0, 1)
    assert found.files is not None
    assert set(found.files) == {table / "a.parquet"}
    assert changes(table, after=0, finished=0).empty


def test_paths_are_decoded_once(table: Path) -> None:
    commit(table, 0, add("p=a%20b%2525/x.parquet"))
    assert set(changes(table, after=None).files or ()) == {table / "p=a b%25" / "x.parquet"}


def test_deletion_vectors_are_noticed(table: Path) -> None:
    commit(table, 0, txn(0), add("a.parquet"))
    assert changes(table, after=None).plain
    commit(table, 1, remove("a.parquet"), add("a.parquet", deletionVector={"storageType": "u"}))
    found = changes(table, after=None)
    assert not found.plain
    assert set(found.files or ()) == {table / "a.parquet"}


def test_a_log_that_no_longer_reaches_back_makes_everything_new(table: Path) -> None:
    commit(table, 5, txn(5), add("f.parquet"))
    commit(table, 6, txn(6), add("g.parquet"))
    assert changes(table, after=2).files is None
    assert changes(table, after=4).files is not None


def test_a_table_that_ends_before_the_last_good_version_is_refused(table: Path) -> None:
    commit(table, 0, txn(0), add("a.parquet"))
    with pytest.raises(LoadStateError, match=r"last good version is 3, but .* ends at version 0"):
        changes(table, after=3)


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no fact table"):
        changes(tmp_path / "nothing", after=None)


def test_a_table_has_only_grown_when_later_commits_append_or_compact(table: Path) -> None:
    commit(table, 0, txn(0), add("a.parquet"))
    commit(table, 1, txn(1), add("b.parquet"))
    commit(table, 2, remove("a.parquet", False), remove("b.parquet", False), add("ab.parquet", False))
    assert only_grown(table, after=0)
    assert only_grown(table, after=2)
    commit(table, 3, remove("ab.parquet"), add("updated.parquet"))
    assert not only_grown(table, after=0)
    assert only_grown(table, after=3)


def test_a_table_whose_log_cannot_tell_is_not_said_to_have_only_grown(table: Path, tmp_path: Path) -> None:
    assert not only_grown(tmp_path / "nothing", after=0)
    commit(table, 5, txn(5), add("f.parquet"))
    assert not only_grown(table, after=3)  # version 4 is gone
    assert not only_grown(table, after=6)  # the table was replaced
