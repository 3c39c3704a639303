"""The lease of a load: it keeps a second driver from working in vain.

Correctness never rests on it (plans and transactions see to that): a driver that was stopped for
longer than its lease and wakes up again does no harm, it only finds its work done.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freshet.environment import whole_number
from freshet.errors import LoadStateError
from freshet.home import LoadHome

TAKE_POLL_SECONDS = 0.5


def lease_seconds() -> float:
    """How long a lease lasts without being renewed."""
    return float(whole_number("FRESHET_LEASE_SECONDS", 30, at_least=1, at_most=86_400))


@dataclass
class Lease:
    """The right to load, renewed in the background until it is given back."""

    file: Path
    seconds: float = field(default_factory=lease_seconds)
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._lost = threading.Event()
        self._renewing: threading.Thread | None = None

    @property
    def lost(self) -> bool:
        """Whether another driver has taken over, or may have as the lease could not be renewed in time."""
        return self._lost.is_set()

    def take(self, patience: float, waiting: Callable[[str], None] | None = None) -> None:
        """Take the lease, waiting for another holder to finish or to fall silent."""
        deadline = time.monotonic() + patience
        told = False
        while not self._try_to_hold():
            holder = read_lease(self.file) or {}
            name = f"process {holder.get('pid')} on {holder.get('host')}"
            if time.monotonic() > deadline:
                raise LoadStateError(
                    f"The load is being run by {name} (lease {self.file}). Wait for it, stop it, "
                    f"or run again once it has been silent for {self.seconds:.0f} s."
                )
            if waiting and not told:
                waiting(f"waiting for {name} to give the load back")
                told = True
            time.sleep(TAKE_POLL_SECONDS)
        self._renewing = threading.Thread(target=self._renew, name="freshet-lease", daemon=True)
        self._renewing.start()

    def give_back(self) -> None:
        self._ended.set()
        if self._renewing:
            self._renewing.join()
        # Where it cannot be given back it expires, and what the run has to tell is not hidden.
        with suppress(OSError), self._guard():
            if self._held_by_me():
                self.file.unlink()

    def _renew(self) -> None:
        expires = time.monotonic() + self.seconds
        while not self._ended.wait(self.seconds / 3):
            begun = time.monotonic()
            try:
                still_mine = self._renewed()
                expires = begun + self.seconds
            except OSError:  # a full disk or a mount that is away: perhaps not at the next try
                still_mine = time.monotonic() < expires
            if not still_mine:
                self._lost.set()
                return

    def _renewed(self) -> bool:
        """Make the lease last longer; false when another driver has it."""
        with self._guard():
            if not self._held_by_me():
                return False
            self._write()
            return True

    def _try_to_hold(self) -> bool:
        with self._guard():
            holder = read_lease(self.file)
            if holder and holder["owner"] != self.owner and holder["expires_at"] > time.time():
                return False
            self._write()
            return True

    def _held_by_me(self) -> bool:
        holder = read_lease(self.file)
        return holder is not None and holder["owner"] == self.owner

    def _write(self) -> None:
        content = {
            "owner": self.owner,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "expires_at": time.time() + self.seconds,
        }
        draft = self.file.with_suffix(f".{self.owner}")
        draft.write_text(json.dumps(content))
        draft.replace(self.file)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Keeps two drivers from changing the lease file at the same moment."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.with_suffix(".lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield


def read_lease(file: Path) -> dict[str, Any] | None:
    """The lease as it stands, or None."""
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return content


@contextmanager
def held_lease(
    load: str, patience: float | None = None, waiting: Callable[[str], None] | None = None
) -> Iterator[Lease]:
    """Hold the load's lease for the time of the block."""
    lease = Lease(LoadHome(load).lease)
    lease.take(2 * lease.seconds if patience is None else patience, waiting)
    try:
        yield lease
    finally:
        lease.give_back()
