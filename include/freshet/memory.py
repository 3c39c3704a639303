"""The byte budget of a join and its named reservations.

Every structure reserves bytes by name before it grows, so that the total never exceeds the limit M and
the peak of each component can be reported.
"""

from __future__ import annotations

from types import TracebackType

from freshet.errors import BudgetError


class Budget:
    """M: a number of bytes that reservations share."""

    def __init__(self, limit: int, owner: str = "") -> None:
        if limit < 0:
            raise BudgetError(f"a memory budget of {limit} bytes is not possible: give a positive number")
        self.limit = int(limit)
        self.owner = owner
        self._used: dict[str, int] = {}
        self._total = 0
        self.reset_peaks()

    @property
    def used(self) -> int:
        """Bytes reserved now."""
        return self._total

    @property
    def left(self) -> int:
        """Bytes that can still be reserved."""
        return self.limit - self._total

    @property
    def peak(self) -> int:
        """The most bytes reserved at once since the last `reset_peaks`."""
        return self._peak

    @property
    def peaks(self) -> dict[str, int]:
        """The most bytes reserved under each name since the last `reset_peaks`."""
        return dict(self._peaks)

    def reset_peaks(self) -> None:
        """Start anew with what is reserved now."""
        self._peak = self._total
        self._peaks = {name: used for name, used in self._used.items() if used}

    def reserve(self, name: str, nbytes: int = 0) -> Reservation:
        """A reservation of so many bytes; reservations of one name add up."""
        reservation = Reservation(self, name)
        reservation.grow(nbytes)
        return reservation

    def _change(self, name: str, nbytes: int) -> None:
        if nbytes > self.left:
            raise BudgetError(
                f"{self.owner + ': ' if self.owner else ''}{name} needs {nbytes:,} more bytes, "
                f"{self.left:,} of the memory budget of {self.limit:,} bytes are left: give it more memory"
            )
        self._total += nbytes
        self._used[name] = self._used.get(name, 0) + nbytes
        self._peak = max(self._peak, self._total)
        self._peaks[name] = max(self._peaks.get(name, 0), self._used[name])


class Reservation:
    """Bytes of a budget held under one name; usable as a context that releases them."""

    def __init__(self, budget: Budget, name: str) -> None:
        self._budget = budget
        self.name = name
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._nbytes

    def grow(self, nbytes: int) -> None:
        """Hold so many bytes more, or raise BudgetError and hold what was held."""
        self.resize(self._nbytes + _not_negative(nbytes))

    def try_grow(self, nbytes: int) -> bool:
        """Hold so many bytes more if they are left."""
        if nbytes > self._budget.left:
            return False
        self.grow(nbytes)
        return True

    def shrink(self, nbytes: int) -> None:
        """Give so many of the held bytes back."""
        if nbytes > self._nbytes:
            raise ValueError(f"{self.name} holds {self._nbytes} bytes and cannot give back {nbytes}")
        self.resize(self._nbytes - _not_negative(nbytes))

    def resize(self, nbytes: int) -> None:
        """Hold exactly so many bytes, or raise BudgetError and hold what was held."""
        self._budget._change(self.name, _not_negative(nbytes) - self._nbytes)
        self._nbytes = int(nbytes)

    def release(self) -> None:
        """Give everything back."""
        self.resize(0)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _not_negative(nbytes: int) -> int:
    if nbytes < 0:
        raise ValueError(f"a reservation cannot be of {nbytes} bytes")
    return int(nbytes)
