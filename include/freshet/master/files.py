"""Files that are either there in full or not at all, and folders for passing work."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freshet.home import freshet_home

ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which nobody can still be writing to an unfinished folder."""


def sync(path: Path) -> None:
    """Make the contents of a file, or the entries of a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make a folder and all below it survive a power cut."""
    for entry in sorted(folder.rglob("*")):
        sync(entry)
    sync(folder)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden file beside `path` that takes its place, at once and in full, if all goes well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    hidden = Path(name)
    try:
        yield hidden
        hidden.chmod(0o644)  # mkstemp makes it private; other users of the machine may read the data
        sync(hidden)
        hidden.replace(path)
        sync(path.parent)
    finally:
        hidden.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, at once and in full; what JSON has no type for becomes text."""
    with replacing(path) as hidden:
        hidden.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """A folder below FRESHET_HOME/tmp that is gone afterwards."""
    parent = freshet_home() / "tmp"
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(parent, f"{purpose}-")
    folder = Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove what work that was killed left behind in `parent`, once it is old enough."""
    for folder in parent.glob(f"{prefix}*"):
        if time.time() - _last_change(folder) > ABANDONED_AFTER:
            shutil.rmtree(folder, ignore_errors=True)


def _last_change(folder: Path) -> float:
    try:
        return max(path.stat().st_mtime for path in [folder, *folder.rglob("*")])
    except FileNotFoundError:  # somebody else is publishing or removing it
        return time.time()
