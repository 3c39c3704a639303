"""Records that could not be parsed: what is wrong with each, told from the raw record."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from freshet.streaming.csv_lines import CsvFormat

DETAIL_LENGTH = 500

_TEXT_OR_BRACE = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}]""", re.DOTALL)

SOUND, SUSPECT, BROKEN = range(3)
"""How far a parsed record may be believed: wholly, after another look, or not at all."""

MALFORMED = "malformed"
WRONG_TYPE = "wrong_type"
NULL_KEY = "null_key"
NULL_EVENT_ID = "null_event_id"
UNMATCHED = "unmatched"
DERIVE_FAILED = "derive_failed"
PARTITION_VALUE = "partition_value"
MALFORMED_FILE = "malformed_file"


@dataclass(frozen=True)
class Fault:
    """Why a record is parked."""

    reason: str
    detail: str


def json_fault(
    raw: str, columns: Mapping[str, str], nulls: Collection[str], parsed: bool = False
) -> Fault | None:
    """What is wrong with a suspect JSON line, or None when it is sound after all.

    `nulls` are the columns that parsed to null: a field that the line has and the parsed record has not
    is the one whose type is wrong. Spark reads more than Python does, such as texts in single quotes: of a
    line that it has `parsed`, only what stands behind its object is wrong.
    """
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        if parsed and not _behind_object(raw):
            return None
        if isinstance(error, RecursionError):
            return _fault(MALFORMED, "not JSON that can be read: nested too deeply")
        return _fault(MALFORMED, f"not JSON: {error}")
    if not isinstance(record, dict):
        return _fault(MALFORMED, f"a JSON object was expected, not {type(record).__name__}")
    lost = [name for name in nulls if record.get(name) is not None]
    return _wrong_type({name: record[name] for name in lost}, columns)


def _behind_object(text: str) -> str:
    """What stands behind the first object of a line."""
    depth = 0
    for token in _TEXT_OR_BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if not depth:
            return text[token.end() :].strip()
    return ""


def csv_fault(raw: str, columns: Mapping[str, str], nulls: Collection[str], csv: CsvFormat) -> Fault | None:
    """What is wrong with a suspect CSV line, or None when it is sound after all."""
    fields = csv.fields(raw)
    if len(fields) != len(columns):
        return _fault(MALFORMED, f"{len(fields)} fields, not {len(columns)}")
    found = dict(zip(columns, fields, strict=True))
    lost = [name for name in nulls if not csv.is_null(found[name])]
    if not lost:
        return _fault(MALFORMED, "not a CSV record")
    return _wrong_type({name: found[name].text for name in lost}, columns)


def nested_fault(columns: Mapping[str, str]) -> Fault:
    """What is wrong with a record that Spark could not parse whole though no column of it got lost."""
    types = ", ".join(f"{name} is {ddl}" for name, ddl in columns.items())
    return _fault(WRONG_TYPE, f"a nested value is not of its type; {types}")


def _wrong_type(values: Mapping[str, Any], columns: Mapping[str, str]) -> Fault | None:
    if not values:
        return None
    return _fault(
        WRONG_TYPE,
        "; ".join(f"{name}: {json.dumps(value)} is not {columns[name]}" for name, value in values.items()),
    )


def _fault(reason: str, detail: str) -> Fault:
    return Fault(reason, detail[:DETAIL_LENGTH])
