"""The options of the stream's formats: those that change how a record is read, and never which are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from freshet.config.names import suggestion

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "json": (),
    "csv": (
        "header", "delimiter", "quote", "escape", "nullValue", "emptyValue", "nanValue",
        "positiveInf", "negativeInf", "dateFormat", "timestampFormat", "timestampNTZFormat", "locale",
        "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace",
    ),
    "parquet": (),
}  # fmt: skip

_FLAGS = ("header", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
_CHARACTERS = ("delimiter", "quote", "escape")
PATTERNS = ("dateFormat", "timestampFormat", "timestampNTZFormat")
"""Whether Spark can use a pattern only it can say (see `streaming.patterns`)."""

_LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?(-[A-Za-z0-9-]+)?")
_DEFAULTS = {"delimiter": ",", "quote": '"'}


def findings(format_: str, options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The options that cannot be: name, what is wrong, remedy."""
    known = OPTIONS[format_]
    for name, value in options.items():
        if name not in known:
            yield name, f"not an option of format {format_}", suggestion(name, known)
        elif name in _FLAGS and value.lower() not in ("true", "false"):
            yield name, "not true or false", "Write true or false"
        elif name in _CHARACTERS:
            yield from _character_findings(name, value)
        elif name in PATTERNS and not value.strip():
            yield name, "no pattern", "Write one, such as yyyy-MM-dd, or remove the option"
        elif name == "locale" and not _LANGUAGE_TAG.fullmatch(value):
            yield name, "not the tag of a language", "Write one, such as en-US"
    signs = {**_DEFAULTS, **options}
    if format_ == "csv" and signs["delimiter"] == signs["quote"]:
        name = "delimiter" if "delimiter" in options else "quote"
        yield name, "both delimiter and quote", "Choose two different characters"


def _character_findings(name: str, value: str) -> Iterator[tuple[str, str, str]]:
    if len(value.encode("utf-16-le", "surrogatepass")) != 2:  # as Java counts
        yield name, "not one character", 'Write exactly one, such as ";" or "\\t"'
    elif value in "\r\n":
        yield name, "the end of a line, which ends the record", 'Choose another, such as ";"'
    elif name == "delimiter" and value == "\\":
        yield name, "what Spark takes for the beginning of a longer delimiter", 'Choose another, such as ";"'
