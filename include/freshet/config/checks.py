"""What must hold between the fields of a definition.

The checks also run on what is left of a definition when some sections are broken, so that everything
that is wrong is told at once. A check whose premises are missing stays silent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from freshet.config import expressions, options, types
from freshet.config.algorithms import ALGORITHMS, AUTO
from freshet.config.expectations import (
    COLUMN_ARGUMENTS,
    COLUMN_LIST_ARGUMENTS,
    EXPECTATIONS,
    argument_problems,
)
from freshet.config.models import Definition, Facts, Lookup, Stream
from freshet.config.names import OWN_COLUMNS, duplicates, suggestion
from freshet.config.problems import Field, Problem

_ID_TYPES = (*types.KEYS, "decimal", "binary", "date", "timestamp", "timestamp_ntz")
_TIME_TYPES = ("timestamp", "timestamp_ntz", "date")


@dataclass
class Sections:
    """The sections of a definition; None is one that could not be read."""

    stream: Stream | None
    lookups: list[Lookup | None] | None
    derive: Mapping[str, str] | None
    facts: Facts | None
    expectations: list[Any]

    @classmethod
    def of(cls, definition: Definition) -> Sections:
        return cls(
            definition.stream,
            list(definition.lookups),
            definition.derive,
            definition.facts,
            list(definition.expectations),
        )


class Scope:
    """The columns there are at a point of the load, and where each came from.

    It is complete while every section before that point could be read.
    """

    def __init__(self) -> None:
        self.origins: dict[str, str] = {}
        self.types: dict[str, str] = {}
        """The types of those columns of which a definition says it."""
        self.complete = True

    @property
    def names(self) -> list[str]:
        return list(self.origins)

    def missing(self, name: str) -> bool:
        return self.complete and name not in self.origins

    def add(self, name: str, origin: str, field: Field) -> Iterator[Problem]:
        """Add a column; a problem if Spark could not tell it from one that is there."""
        taken = {other.lower(): other for other in self.origins}.get(name.lower())
        if taken is not None:
            yield Problem(
                field,
                f"there is already a column {taken!r}, from {self.origins[taken]}",
                "Choose another name (in a lookup: add: {new_name: master_column})",
                value=name,
            )
        else:
            self.origins[name] = origin


def problems(sections: Sections) -> list[Problem]:
    """Everything that does not fit together."""
    scope = Scope()
    found: list[Problem] = []
    found += _stream_problems(sections.stream, scope)
    found += _lookups_problems(sections, scope)
    found += _derive_problems(sections.derive, scope)
    found += _facts_problems(sections, scope)
    found += _expectation_problems(sections)
    return found


def _stream_problems(stream: Stream | None, scope: Scope) -> Iterator[Problem]:
    if stream is None:
        scope.complete = False
        return
    yield from _source_problems(stream)
    scope.types.update(stream.columns)
    for name in stream.columns:
        yield from scope.add(name, "the stream", ("stream", "columns", name))
    yield from _reference_problems(stream, "event_id", stream.event_id, _ID_TYPES)
    if stream.event_time is not None:
        yield from _reference_problems(stream, "event_time", stream.event_time, _TIME_TYPES)
    for name, what, remedy in options.findings(stream.format, stream.options):
        yield Problem(("stream", "options", name), what, remedy, value=stream.options[name])
    if stream.format == "csv":
        for name, ddl in stream.columns.items():
            if types.is_nested(ddl) or ddl == "binary":
                yield Problem(
                    ("stream", "columns", name),
                    "CSV cannot hold this type",
                    "Use format json or parquet",
                    value=ddl,
                )


def _source_problems(stream: Stream) -> Iterator[Problem]:
    wanted = ("path",) if stream.source == "files" else ("topic", "connection")
    for name in ("path", "topic", "connection"):
        value = getattr(stream, name)
        if name in wanted and not value:
            expected = Stream.model_fields[name].description
            yield Problem(
                ("stream", name), f"missing; source {stream.source!r} needs it", f"Write {name}: {expected}"
            )
        elif name not in wanted and value:
            yield Problem(
                ("stream", name),
                f"source {stream.source!r} has no {name}",
                f"Remove it; it takes {', '.join(wanted)}",
                value=value,
            )
    if stream.source == "kafka":
        yield Problem(
            ("stream", "source"),
            "Kafka cannot be loaded yet",
            "Only files can be loaded at present: write source: files and have the topic written to a folder",
            value="kafka",
        )


def _reference_problems(
    stream: Stream, field: str, column: str, allowed: tuple[str, ...]
) -> Iterator[Problem]:
    if column not in stream.columns:
        yield Problem(
            ("stream", field), "not a column of the stream", suggestion(column, stream.columns), value=column
        )
        return
    ddl = stream.columns[column]
    if types.parse_type(ddl).name not in allowed:
        yield Problem(
            ("stream", field),
            f"column of type {ddl}",
            f"Name a column of one of the types {', '.join(allowed)}",
            value=column,
        )


def _lookups_problems(sections: Sections, scope: Scope) -> Iterator[Problem]:
    if sections.lookups is None:
        scope.complete = False
        return
    if not sections.lookups:
        yield Problem(("lookups",), "no lookup", "Describe at least one master table to look up", value=[])
    named = [lookup.name if lookup else f"\0{position}" for position, lookup in enumerate(sections.lookups)]
    for position, name, _ in duplicates(named):
        yield Problem(
            ("lookups", position, "name"), "another lookup has this name", "Give each its own", value=name
        )
    for position, lookup in enumerate(sections.lookups):
        if lookup is None:
            scope.complete = False
        else:
            yield from _lookup_problems(lookup, ("lookups", position), sections.stream, scope)


def _lookup_problems(lookup: Lookup, field: Field, stream: Stream | None, scope: Scope) -> Iterator[Problem]:
    yield from _key_problems(lookup, field, stream, scope)
    if lookup.algorithm != AUTO and lookup.algorithm not in ALGORITHMS:
        yield Problem(
            (*field, "algorithm"),
            "no such join",
            suggestion(lookup.algorithm, (AUTO, *ALGORITHMS)),
            value=lookup.algorithm,
        )
    yield from _settings_problems(lookup, field)
    for name in lookup.defaults:
        if name not in lookup.add:
            yield Problem(
                (*field, "defaults", name),
                "not a column this lookup adds",
                suggestion(name, lookup.add),
                value=name,
            )
    if lookup.defaults and lookup.unmatched != "keep":
        yield Problem(
            (*field, "defaults"),
            f"of no use with unmatched: {lookup.unmatched}",
            "Write unmatched: keep, or remove the defaults",
            value=lookup.defaults,
        )
    for name in lookup.add:
        yield from scope.add(name, f"lookup {lookup.name!r}", (*field, "add", name))


def _settings_problems(lookup: Lookup, field: Field) -> Iterator[Problem]:
    known = ALGORITHMS.get(lookup.algorithm, ())
    if lookup.settings and lookup.algorithm == AUTO:
        yield Problem(
            (*field, "settings"),
            "settings of no particular join",
            f"Name the join they are for (algorithm: {', '.join(ALGORITHMS)}), or remove them",
            value=lookup.settings,
        )
        return
    for name, value in lookup.settings.items():
        if name not in known:
            remedy = suggestion(name, known)
            yield Problem(
                (*field, "settings", name), f"no setting of {lookup.algorithm}", remedy, value=value
            )
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            yield Problem(
                (*field, "settings", name), "not a whole number", "Write a number such as 1000", value=value
            )


def _key_problems(lookup: Lookup, field: Field, stream: Stream | None, scope: Scope) -> Iterator[Problem]:
    column = lookup.stream_key
    if scope.missing(column):
        yield Problem(
            (*field, "stream_key"),
            "neither a column of the stream nor added by an earlier lookup",
            f"Name the column with the key of {lookup.table!r}. {suggestion(column, scope.names)}",
            value=column,
        )
    elif stream is not None and column in stream.columns and stream.columns[column] not in types.KEYS:
        yield Problem(
            (*field, "stream_key"),
            f"column of type {stream.columns[column]}; a key is an integer or a string",
            f"Name a column of one of the types {', '.join(types.KEYS)}",
            value=column,
        )


def _derive_problems(derive: Mapping[str, str] | None, scope: Scope) -> Iterator[Problem]:
    """In the order written: an expression may use the derived columns before it."""
    if derive is None:
        scope.complete = False
        return
    for name, expression in derive.items():
        if scope.complete:
            for what, remedy in expressions.findings(expression, scope.names, scope.types):
                yield Problem(("derive", name), what, remedy, value=expression)
        yield from scope.add(name, "derive", ("derive", name))


def _facts_problems(sections: Sections, scope: Scope) -> Iterator[Problem]:
    facts, stream = sections.facts, sections.stream
    if facts is None:
        return
    for position, name in enumerate(facts.columns):
        if name.startswith("_"):
            own = " and ".join(OWN_COLUMNS)
            yield Problem(
                ("facts", "columns", position),
                "names that begin with _ are Freshet's own",
                f"Remove it; Freshet adds {own} itself",
                value=name,
            )
        elif scope.missing(name):
            yield Problem(
                ("facts", "columns", position),
                "not a column of the stream, added or derived",
                suggestion(name, scope.names),
                value=name,
            )
    for position, name, _ in duplicates(facts.columns):
        yield Problem(
            ("facts", "columns", position), "stands in the list twice", "Name each column once", value=name
        )
    if stream is not None and stream.event_id not in facts.columns:
        yield Problem(
            ("facts", "columns"),
            f"without the event id {stream.event_id!r}, by which facts are told apart",
            f"Add {stream.event_id} to the list",
            value=list(facts.columns),
        )
    yield from _partition_problems(facts, stream)


def _partition_problems(facts: Facts, stream: Stream | None) -> Iterator[Problem]:
    for position, name in enumerate(facts.partition_by):
        field = ("facts", "partition_by", position)
        if name not in facts.columns:
            yield Problem(field, "not a column of the facts", suggestion(name, facts.columns), value=name)
        elif stream is not None and types.is_nested(stream.columns.get(name, "string")):
            yield Problem(
                field, "a column with parts cannot partition a table", "Choose another column", value=name
            )
        elif stream is not None and stream.columns.get(name) == "binary":
            yield Problem(
                field,
                "a binary column cannot partition a table: bytes that are no text would be changed",
                "Choose another column",
                value=name,
            )
    for position, name, _ in duplicates(facts.partition_by):
        yield Problem(
            ("facts", "partition_by", position),
            "stands in the list twice",
            "Name each column once",
            value=name,
        )


def _expectation_problems(sections: Sections) -> Iterator[Problem]:
    for position, expectation in enumerate(sections.expectations):
        if not isinstance(expectation, Mapping):
            continue
        field = ("expectations", position)
        type_ = expectation.get("type")
        if type_ is None:
            yield Problem(
                (*field, "type"),
                "missing",
                "Name the expectation, such as expect_column_values_to_be_between",
            )
        elif not isinstance(type_, str) or type_ not in EXPECTATIONS:
            yield Problem(
                (*field, "type"), "not an expectation", suggestion(str(type_), EXPECTATIONS), value=type_
            )
        else:
            yield from argument_problems(expectation, field)
        if sections.facts is not None:
            yield from _expected_columns_problems(expectation, field, (*sections.facts.columns, *OWN_COLUMNS))


def _expected_columns_problems(
    expectation: Mapping[str, object], field: Field, columns: tuple[str, ...]
) -> Iterator[Problem]:
    named: list[tuple[Field, object]] = []
    for argument in COLUMN_ARGUMENTS:
        if argument in expectation:
            named.append(((*field, argument), expectation[argument]))
    for argument in COLUMN_LIST_ARGUMENTS:
        listed = expectation.get(argument)
        named += [
            ((*field, argument, at), name)
            for at, name in enumerate(listed if isinstance(listed, list) else [])
        ]
    for place, name in named:
        if name not in columns:
            yield Problem(place, "not a column of the facts", suggestion(str(name), columns), value=name)
