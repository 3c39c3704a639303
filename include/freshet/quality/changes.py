"""What has changed in a Delta table since a version, read from its log without Spark.

A file is new when a commit after that version added it with data and it is still there. Where a commit
took files away as well (DELETE, UPDATE, MERGE, OPTIMIZE), nobody can tell which of the rows it wrote were
there before: all of them count as new, if the commit changed data or rewrote a file that was new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freshet.errors import LoadStateError, ValidationError
from freshet.home import local_path

_COMMIT = re.compile(r"(\d{20})\.json")

BatchOf = Callable[[str, int], int | None]
"""The batch a transaction (application id, version) belongs to; None: it is not one of the load's."""


@dataclass(frozen=True)
class Origin:
    """Where the rows of a file come from."""

    version: int
    """The commit that added the file."""
    batch: int | None = None
    """The batch that wrote it, when the commit says so."""
    rewritten: bool = False
    """Whether the commit only wrote again what other commits had written."""
    partition: Mapping[str, str | None] = field(default_factory=dict)
    """The values of the partition columns, as the log writes them: they are not in the file."""

    @property
    def foreign(self) -> bool:
        """Whether something else than a batch of the load has appended the file."""
        return self.batch is None and not self.rewritten


@dataclass(frozen=True)
class Changes:
    """The files of a table at `to_version` that hold what is new since `from_version`."""

    from_version: int | None
    to_version: int
    files: Mapping[Path, Origin] | None
    """None: the log no longer reaches back to `from_version`, and everything counts as new."""
    plain: bool
    """Whether the rows of the files are the rows of the table (no deletion vectors)."""
    held_back: int | None
    """The unfinished batch before whose commit `to_version` lies."""
    later_writers: frozenset[str] = frozenset()
    """The applications whose transactions lie behind `to_version`."""

    @property
    def empty(self) -> bool:
        return self.files is not None and not self.files


@dataclass(frozen=True)
class Commit:
    """The actions of one version that matter here."""

    version: int
    transactions: tuple[tuple[str, int], ...]
    added: tuple[Mapping[str, Any], ...]
    removed: tuple[Mapping[str, Any], ...]

    def batch(self, batch_of: BatchOf) -> int | None:
        """The batch whose transaction this commit carries."""
        batches = [batch_of(app, version) for app, version in self.transactions]
        return next((batch for batch in batches if batch is not None), None)


def read_changes(
    table: Path, after: int | None, batch_of: BatchOf, unfinished: Callable[[int], bool]
) -> Changes:
    """What is new in a table after a version, up to the commit of the first unfinished batch."""
    versions = _versions(table)
    if not versions:
        raise ValidationError(f"There is no fact table {table} yet. Load something with `freshet enrich`.")
    head = versions[-1]
    if after is not None and after > head:
        raise LoadStateError(
            f"The last good version is {after}, but the fact table {table} ends at version {head}: it was "
            "deleted or replaced. Restore it, or start over with `freshet reset`."
        )
    first = 0 if after is None else after + 1
    commits = [_commit(table, version) for version in versions if version >= first]
    held_back = None
    later: list[Commit] = []
    for position, commit in enumerate(commits):
        batch = commit.batch(batch_of)
        if batch is not None and unfinished(batch):
            held_back, head = batch, commit.version - 1
            commits, later = commits[:position], commits[position:]
            break
    writers = frozenset(app for commit in later for app, _ in commit.transactions)
    if head < first:  # nothing is new, or all that is new waits for its batch
        return Changes(after, head, {}, True, held_back, writers)
    if len(commits) < head - first + 1:
        return Changes(after, head, None, False, held_back, writers)
    files = _new_files(table, commits, batch_of)
    vectors = any(action.get("deletionVector") for commit in commits for action in commit.added)
    return Changes(after, head, files, not vectors, held_back, writers)


def only_grown(table: Path, after: int) -> bool:
    """Whether all rows a table had at a version are still there as they were; no, if the log cannot tell."""
    versions = _versions(table)
    later = [version for version in versions if version > after]
    if not versions or versions[-1] != after + len(later):
        return False
    removed = (action for version in later for action in _commit(table, version).removed)
    return not any(action.get("dataChange", True) for action in removed)


def _new_files(table: Path, commits: list[Commit], batch_of: BatchOf) -> dict[Path, Origin]:
    files: dict[Path, Origin] = {}
    for commit in commits:
        gone = [files.pop(_path(table, action), None) for action in commit.removed]
        batch, rewritten = commit.batch(batch_of), bool(commit.removed)
        for action in commit.added:
            if action["dataChange"] or any(gone):
                partition = action.get("partitionValues") or {}
                files[_path(table, action)] = Origin(commit.version, batch, rewritten, partition)
    return files


def _versions(table: Path) -> list[int]:
    found = (_COMMIT.fullmatch(file.name) for file in (table / "_delta_log").glob("*.json"))
    return sorted(int(match[1]) for match in found if match)


def _commit(table: Path, version: int) -> Commit:
    text = (table / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    actions = [json.loads(line) for line in text.splitlines() if line]
    return Commit(
        version,
        tuple((action["txn"]["appId"], action["txn"]["version"]) for action in actions if "txn" in action),
        tuple(action["add"] for action in actions if "add" in action),
        tuple(action["remove"] for action in actions if "remove" in action),
    )


def _path(table: Path, action: Mapping[str, Any]) -> Path:
    return table / local_path(action["path"])
