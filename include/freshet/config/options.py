"""The options of the stream's formats: those that change how a record is read, and never which are read."""

from __future__ import annotations

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


def findings(format_: str, options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The options that cannot be: name, what is wrong, remedy."""
    known = OPTIONS[format_]
    for name, value in options.items():
        if name not in known:
            yield name, f"not an option of format {format_}", suggestion(name, known)
        elif name in _FLAGS and value.lower() not in ("true", "false"):
            yield name, "not true or false", "Write true or false"
        elif name in _CHARACTERS and len(value) != 1:
            yield name, "not one character", 'Write exactly one, such as ";" or "\\t"'
