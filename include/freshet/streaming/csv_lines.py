"""A line of CSV taken apart as Spark does it, to say what is wrong with a line or a header.

Spark parses the records. What it says of a broken one is only that it is; here is seen how many fields there
were and which of them are not null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


class Field(NamedTuple):
    """A field of a line: its text, and whether that stood in quotes."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class CsvFormat:
    """How the lines of a stream become fields: the options that say where one ends and what is null."""

    header: bool = False
    """Whether the first line of a file that is not blank names the columns."""
    delimiter: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    trim_start: bool = False
    trim_end: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CsvFormat:
        def flag(name: str) -> bool:
            return options.get(name, "false").lower() == "true"

        return cls(
            header=flag("header"),
            delimiter=options.get("delimiter", cls.delimiter),
            quote=options.get("quote", cls.quote),
            escape=options.get("escape", cls.escape),
            null=options.get("nullValue", cls.null),
            trim_start=flag("ignoreLeadingWhiteSpace"),
            trim_end=flag("ignoreTrailingWhiteSpace"),
        )

    def fields(self, line: str) -> list[Field]:
        """The fields of a line; one at least."""
        pattern = _field(self.delimiter, self.quote, self.escape, self.trim_start)
        found = []
        end = 0
        while True:
            match = pattern.match(line, end)
            assert match is not None  # the last alternative takes any text
            found.append(self._value(match))
            if not match["behind"]:
                return found
            end = match.end()

    def _value(self, match: re.Match[str]) -> Field:
        if match["quoted"] is not None:
            escaped = rf"{re.escape(self.escape)}([{re.escape(self.quote + self.escape)}])"
            return Field(re.sub(escaped, r"\1", match["quoted"]), quoted=True)
        text = match["plain"]
        text = text.lstrip() if self.trim_start else text
        return Field(text.rstrip() if self.trim_end else text, quoted=False)

    def is_null(self, field: Field) -> bool:
        """Whether Spark reads null for it in a column of whatever type."""
        return field.text == self.null or (not field.text and not field.quoted)


@lru_cache
def _field(delimiter: str, quote: str, escape: str, trim_start: bool) -> re.Pattern[str]:
    """A field and the delimiter, or the end of the line, behind it.

    A quote that is never closed takes the rest of the line. One that is closed before the field's end takes
    what follows, up to the next delimiter.
    """
    d, q, e = (re.escape(sign) for sign in (delimiter, quote, escape))
    blanks = f"[{''.join(blank for blank in (' ', chr(9)) if blank != delimiter)}]*+"
    before = blanks if trim_start else ""
    inside = rf"(?:{e}[{q}{e}]|[^{q}])*+" if escape != quote else rf"(?:{q}{q}|[^{q}])*+"
    behind = rf"(?P<behind>{d}|\Z)"
    quoted = rf"{before}{q}(?!\Z)(?P<quoted>{inside})(?:{q}{blanks}(?={d}|\Z)|\Z)"
    return re.compile(rf"(?:{quoted}|(?P<plain>{q}{inside}{q}[^{d}]*|[^{d}]*)){behind}", re.DOTALL)
