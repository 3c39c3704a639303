"""Records that could not be parsed: what is wrong with each, told from the raw record."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DETAIL_LENGTH = 500

MALFORMED = "malformed"
WRONG_TYPE = "wrong_type"
NULL_KEY = "null_key"
NULL_EVENT_ID = "null_event_id"
UNMATCHED = "unmatched"
DERIVE_FAILED = "derive_failed"
MALFORMED_FILE = "malformed_file"


@dataclass(frozen=True)
class Fault:
    """Why a record is parked."""

    reason: str
    detail: str


def json_fault(raw: str, columns: Mapping[str, str], nulls: Collection[str]) -> Fault | None:
    """What is wrong with a suspect JSON line, or None when it is sound after all.

    `nulls` are the columns that parsed to null: a field that the line has and the parsed record has not
    is the one whose type is wrong.
    """
    try:
        record = json.loads(raw)
    except ValueError as error:
        return _fault(MALFORMED, f"not JSON: {error}")
    except RecursionError:
        return _fault(MALFORMED, "not JSON that can be read: nested too deeply")
    if not isinstance(record, dict):
        return _fault(MALFORMED, f"a JSON object was expected, not {type(record).__name__}")
    lost = [name for name in nulls if record.get(name) is not None]
    return _wrong_type({name: record[name] for name in lost}, columns)


def csv_fault(raw: str, columns: Mapping[str, str], nulls: Collection[str], delimiter: str) -> Fault | None:
    """What is wrong with a suspect CSV line, or None when it is sound after all."""
    fields: Sequence[str] = next(csv.reader([raw], delimiter=delimiter), [])
    if len(fields) != len(columns):
        return _fault(MALFORMED, f"{len(fields)} fields, not {len(columns)}")
    found = dict(zip(columns, fields, strict=True))
    lost = [name for name in nulls if found[name]]
    if not lost:
        return _fault(MALFORMED, "not a CSV record")
    return _wrong_type({name: found[name] for name in lost}, columns)


def _wrong_type(values: Mapping[str, Any], columns: Mapping[str, str]) -> Fault | None:
    if not values:
        return None
    return _fault(
        WRONG_TYPE,
        "; ".join(f"{name}: {json.dumps(value)} is not {columns[name]}" for name, value in values.items()),
    )


def _fault(reason: str, detail: str) -> Fault:
    return Fault(reason, detail[:DETAIL_LENGTH])
