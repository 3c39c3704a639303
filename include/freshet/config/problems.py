"""What is wrong with a load definition, told to the person who wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshet.errors import DefinitionError

Field = tuple[str | int, ...]
"""Where a value stands: `("lookups", 0, "memory")`."""

ABSENT: Any = object()
"""The value of a field that is not there."""

_LONGEST_VALUE = 120
_CREDENTIALS = re.compile(r"(://)\S*@")
_SECRET = ("connection", "password")
_HIDDEN = "***"


@dataclass(frozen=True)
class Problem:
    """One thing to put right: the field, its value, why it cannot be, what would be right."""

    field: Field
    what: str
    remedy: str
    value: Any = ABSENT
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        name = field_name(self.field)
        shown = "" if self.value is ABSENT else f"{' = ' if name else ''}{_shown(self.field, self.value)}"
        subject = f"{name}{shown}: " if name or shown else ""
        return f"{place}{subject}{self.what}. {self.remedy}."


class DefinitionFileError(DefinitionError):
    """A definition file that cannot be used, with everything that is wrong in it."""

    def __init__(self, path: Path, problems: Iterable[Problem], load: str | None = None) -> None:
        self.path = path
        self.load = load
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{path} is not a usable load definition:\n{lines}")


def field_name(field: Field) -> str:
    """A field as people write it: `lookups[0].memory`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in field)
    return "".join(parts).removeprefix(".")


def _shown(field: Field, value: Any) -> str:
    """A value for a message: short, and without what may be a credential."""
    if any(_is_secret(part) for part in field):
        return _HIDDEN
    text = _CREDENTIALS.sub(rf"\1{_HIDDEN}@", repr(_without_secrets(value, frozenset())))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _without_secrets(value: Any, above: frozenset[int]) -> Any:
    """The value with the secrets of its mappings hidden; `above` stops one that contains itself."""
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) in above:
        return "…"
    above |= {id(value)}
    if isinstance(value, dict):
        return {
            key: _HIDDEN if _is_secret(key) else _without_secrets(part, above) for key, part in value.items()
        }
    return [_without_secrets(part, above) for part in value]


def _is_secret(name: Any) -> bool:
    return isinstance(name, str) and name.lower() in _SECRET
