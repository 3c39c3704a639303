"""Sizes and times as people write them: `64MB`, `10m`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

from freshet.errors import FreshetError

SIZE_REMEDY = "Write a number and a unit (B, KB, MB, GB, TB; 1KB is 1024 bytes), such as 64MB"
TIME_REMEDY = "Write numbers and units (ms, s, m, h, d), such as 30s, 10m or 1h30m"

_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)i?b?", re.IGNORECASE | re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)\s*", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


Parsed = TypeVar("Parsed", int, float)


class UnitError(FreshetError, ValueError):
    """A size or a time that cannot be read."""

    def __init__(self, value: object, what: str, remedy: str) -> None:
        super().__init__(f"{value!r} is {what}. {remedy}.")
        self.what = what
        self.remedy = remedy


def parse_bytes(value: str | int) -> int:
    """The bytes in a size such as `64MB`; a bare number is bytes."""
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise UnitError(value, "not a size", SIZE_REMEDY)
    size = int(float(match["number"]) * _BYTES[match["unit"].lower()])
    if not 0 < size < 1 << 63:
        raise UnitError(value, "not a possible size", SIZE_REMEDY)
    return size


def parse_seconds(value: str | float) -> float:
    """The seconds in a time such as `10m` or `1h30m`; a bare number is seconds."""
    text = "" if isinstance(value, bool) else str(value).strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text):
        raise UnitError(value, "not a time", TIME_REMEDY)
    seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
    if not math.isfinite(seconds):
        raise UnitError(value, "not a possible time", TIME_REMEDY)
    return seconds


def parse_option(name: str, text: str | None, parse: Callable[[str], Parsed]) -> Parsed | None:
    """The size or time given to an option of a command; None if there is none."""
    try:
        return parse(text) if text else None
    except UnitError as error:
        raise FreshetError(f"{name}: {error}") from None


def format_bytes(size: float) -> str:
    """A size for people, in the largest unit that keeps it at 1 or more."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.4g}{unit}"
        size /= 1024
    return f"{size:.4g}TB"
