"""Numbers and words in environment variables, refused in one sentence when they cannot be."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from freshet.errors import FreshetError


def whole_number(variable: str, default: int, at_least: int, at_most: int | None = None) -> int:
    """The whole number in an environment variable; the default when it is not set or empty."""
    written = os.environ.get(variable) or str(default)
    number = int(written) if re.fullmatch("[0-9]{1,18}", written) else -1
    if number < at_least or (at_most is not None and number > at_most):
        most = "" if at_most is None else f" and at most {at_most}"
        raise FreshetError(
            f"{variable} is {written!r}: write a whole number in digits, at least {at_least}{most}, "
            f"or unset it for {default}."
        )
    return number


def one_of(variable: str, default: str, known: Collection[str]) -> str:
    """The word in an environment variable, in capitals; the default when it is not set or empty."""
    written = os.environ.get(variable) or default
    if written.upper() not in known:
        raise FreshetError(f"{variable} is {written!r}: write one of {', '.join(known)}, or unset it.")
    return written.upper()
