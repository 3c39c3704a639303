"""The lease of a load while its file cannot be written, and how long it lasts."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freshet.errors import FreshetError
from freshet.streaming.lease import Lease, lease_seconds

SECONDS = 0.3


class Disk:
    """A disk that takes no lease while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.refused = 0
        write = Lease._write

        def write_or_not(lease: Lease) -> None:
            if self.full:
                self.refused += 1
                raise OSError(errno.ENOSPC, "No space left on device")
            write(lease)

        monkeypatch.setattr(Lease, "_write", write_or_not)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def lease(tmp_path: Path, disk: Disk) -> Iterator[Lease]:
    held = Lease(tmp_path / "lease.json", seconds=SECONDS)
    held.take(patience=0)
    yield held
    held.give_back()


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reached()


def test_a_lease_is_renewed_as_soon_as_it_can_be_again(lease: Lease, disk: Disk) -> None:
    disk.full = True
    wait_for(lambda: disk.refused > 0)
    disk.full = False
    before = lease.file.read_text()
    wait_for(lambda: lease.file.read_text() != before)
    assert not lease.lost


def test_a_lease_that_cannot_be_renewed_in_time_is_lost(lease: Lease, disk: Disk) -> None:
    disk.full = True
    wait_for(lambda: lease.lost)
    assert disk.refused > 1


def test_a_lease_that_cannot_be_given_back_is_left_to_expire(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlink(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        lease.give_back()
    assert lease.file.exists()


@pytest.mark.parametrize("written", ["abc", "0", "-1", "1.5", "inf", "1e3", "9" * 30, "86401"])
def test_a_time_that_is_none_is_refused_with_variable_and_remedy(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_LEASE_SECONDS", written)
    with pytest.raises(
        FreshetError, match=r"^FRESHET_LEASE_SECONDS is .*: write a whole number .* at least 1"
    ):
        lease_seconds()


@pytest.mark.parametrize(("written", "seconds"), [("", 30.0), ("1", 1.0), ("86400", 86400.0)])
def test_a_time_that_is_empty_is_the_default(
    written: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_LEASE_SECONDS", written)
    assert lease_seconds() == seconds
