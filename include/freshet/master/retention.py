"""Which snapshots may go: old ones that no batch will ever need again."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from freshet.errors import SnapshotError
from freshet.home import LoadHome
from freshet.master.snapshot import version_path, versions

KEEP = 3
GRACE_SECONDS = 3600.0
DELETED = ".deleted-"

log = logging.getLogger(__name__)


def retain(
    load: str,
    lookup: str,
    *,
    keep: int = KEEP,
    grace_seconds: float = GRACE_SECONDS,
    now: datetime | None = None,
) -> list[int]:
    """Delete the snapshots of a lookup that are neither new nor needed; their versions.

    Kept are the newest `keep`, those that the plan of a batch without validation names, and those that
    were superseded less than `grace_seconds` ago: a driver may just be making a plan with one.
    """
    folder = LoadHome(load).snapshots(lookup)
    _finish_deletions(folder)
    try:
        needed = versions_in_use(load, lookup)
    except SnapshotError as error:
        log.warning("No snapshot of lookup %s was deleted: %s", lookup, error)
        return []
    now = now or datetime.now(UTC)
    deleted = []
    published = versions(folder)
    for version, successor in pairwise(published):
        if version in needed or version in published[-keep:]:
            continue
        try:
            if (now - _published_at(folder, successor)).total_seconds() >= grace_seconds:
                _delete(folder, version)
                deleted.append(version)
        except FileNotFoundError:  # another sort deletes too and was first
            continue
    return deleted


def versions_in_use(load: str, lookup: str) -> set[int]:
    """The versions that the plans of unfinished and unvalidated batches name."""
    home = LoadHome(load)
    validated = _validated_batch(home)
    used = set()
    for batch, file in _plans(home):
        # Not even read: whatever became of an old plan must not keep snapshots for ever.
        if validated is not None and batch <= validated:
            continue
        version = _planned(file, batch, lookup)
        if version is not None:
            used.add(version)
    return used


def _planned(file: Path, batch: int, lookup: str) -> int | None:
    """The version of a lookup's snapshot in the plan of a batch, if it has one."""
    plan = _read(file)
    try:
        if int(plan["batch"]) != batch:
            raise ValueError(plan["batch"])
        version = plan["snapshots"].get(lookup)
        return None if version is None else int(version)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SnapshotError(f"the plan {file} cannot be understood; restore it from a backup") from None


def _plans(home: LoadHome) -> Iterator[tuple[int, Path]]:
    """The plans in force, each with its batch; what else is noted of a batch lies beside them."""
    for file in home.plans.glob("*.json"):
        if file.stem.isdecimal():
            yield int(file.stem), file


def _validated_batch(home: LoadHome) -> int | None:
    if not home.last_good.exists():
        return None
    batch = _read(home.last_good).get("batch")
    return None if batch is None else int(batch)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        kind = type(error).__name__
        raise SnapshotError(f"{file} cannot be read ({kind}); restore it from a backup") from None
    if not isinstance(content, dict):
        raise SnapshotError(f"{file} is not a JSON object; restore it from a backup")
    return content


def _published_at(folder: Path, version: int) -> datetime:
    return datetime.fromtimestamp(version_path(folder, version).stat().st_mtime, UTC)


def _delete(folder: Path, version: int) -> None:
    # Out of sight at once: whoever looks sees a whole snapshot or none.
    hidden = folder / f"{DELETED}v{version:06d}"
    version_path(folder, version).rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _finish_deletions(folder: Path) -> None:
    for hidden in folder.glob(f"{DELETED}*"):
        shutil.rmtree(hidden, ignore_errors=True)
