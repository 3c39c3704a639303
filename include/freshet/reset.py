"""Emptying a load: its tables and all that it remembers of having loaded them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from freshet.config import find_definition
from freshet.config.names import LOAD
from freshet.errors import LoadStateError
from freshet.home import LoadHome

KEPT = "snapshots, key counts, master tables and the stream's files"


def reset_targets(load: str) -> list[Path]:
    """What a reset deletes and is there, in the order in which it goes.

    The last good version goes first, so that it never names a version of a new table. Then come the tables,
    and last the stream's id: what an interrupted reset leaves can be reset again, or is loaded from the
    start, and never loaded a second time into tables that are still there.
    """
    home = LoadHome(load)
    if not LOAD.fullmatch(load) or not (home.warehouse.exists() or home.state.exists()):
        find_definition(load)  # a name that nothing knows is a mistake
    everything = [home.validation, home.warehouse, home.checkpoint, home.plans, home.stream_id]
    return [path for path in everything if path.exists() or _hidden(path).exists()]


def reset(load: str) -> list[Path]:
    """Empty a load, unless a driver is at work on it; what was deleted."""
    from freshet.streaming.lease import held_lease

    reset_targets(load)
    with held_lease(load, patience=0), _validation_at_rest(load):
        targets = reset_targets(load)
        for path in targets:
            try:
                _delete(path)
            except OSError as error:
                raise LoadStateError(
                    f"{path} cannot be deleted ({error.strerror}). Put that right and reset the load again: "
                    "it is half empty now."
                ) from None
    return targets


@contextmanager
def _validation_at_rest(load: str) -> Iterator[None]:
    """Refuse while a validation is at work: it would move the last good version of a table that is gone."""
    from freshet.quality.files import locked

    with ExitStack() as held:
        try:
            held.enter_context(locked(LoadHome(load).validation_lock, wait=False))
        except BlockingIOError:
            raise LoadStateError(
                f"A validation or quarantine of load {load!r} is at work. Wait for it, or stop it."
            ) from None
        yield


def _delete(path: Path) -> None:
    """Delete a file or folder as a whole: half a checkpoint would be mistaken for another one."""
    hidden = _hidden(path)
    _remove(hidden)
    if path.exists():
        path.rename(hidden)
    _remove(hidden)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.deleted")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
