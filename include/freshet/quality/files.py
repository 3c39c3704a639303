"""Files of the validation's state: written whole or not at all, changed by one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freshet.errors import LoadStateError


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file at once and for good."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    with draft.open("w", encoding="utf-8") as out:
        json.dump(content, out, indent=1, default=str)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


def read_json(file: Path) -> dict[str, Any] | None:
    """A JSON file's object, or None when there is no such file."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LoadStateError(
            f"{file} is not JSON ({error}). Restore it from a backup, or delete it."
        ) from error
    if not isinstance(content, dict):
        raise LoadStateError(f"{file} is not a JSON object. Restore it from a backup, or delete it.")
    return content


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file for the time of the block; the system gives it back when the process dies."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
