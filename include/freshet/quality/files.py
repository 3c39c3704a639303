"""Files of the validation's state: read with what to do when they are damaged, changed by one at a time."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freshet.errors import LoadStateError


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
def locked(file: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file for the time of the block; the system gives it back when the process dies.

    Without waiting, a lock that somebody else holds is a BlockingIOError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
