"""The column types of SQL databases as Arrow types, and values checked against them.

MySQL enforces its types. SQLite keeps any value in any column, so every value is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from freshet.master.connections import SQLITE

_MODIFIERS = ("unsigned", "signed", "zerofill")

UTC_INSTANT = pa.timestamp("us", "UTC")
WALL_CLOCK = pa.timestamp("us")
UNSIGNED_BIGINT = pa.decimal128(20, 0)

# Signed, unsigned: an unsigned number takes the next wider type, for Delta has none without a sign.
_INTEGERS = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "int2": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "integer": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), UNSIGNED_BIGINT),
    "int8": (pa.int64(), UNSIGNED_BIGINT),
}
_OTHERS = {
    pa.string(): (
        "char varchar nchar nvarchar character text tinytext mediumtext longtext clob "
        "enum set json uuid inet4 inet6"
    ),
    pa.binary(): "binary varbinary blob tinyblob mediumblob longblob",
    pa.float32(): "float",
    pa.float64(): "double real",
    pa.bool_(): "bool boolean",
    pa.date32(): "date",
    WALL_CLOCK: "datetime",
    UTC_INSTANT: "timestamp",
    pa.int16(): "year",
}
_BY_NAME = {name: arrow for arrow, names in _OTHERS.items() for name in names.split()}
_LONG_NAMES = {
    "double precision": "double",
    "varying character": "varchar",
    "character varying": "varchar",
    "native character": "nchar",
    "big int": "bigint",
}
_LARGEST_DECIMAL = 38


def arrow_type(declared: str, dialect: str) -> pa.DataType | None:
    """The Arrow type of a declared SQL type; None if there is none that Delta has too."""
    before, _, rest = declared.lower().partition("(")
    arguments, _, after = rest.rpartition(")")
    words = f"{before} {after}".split()
    unsigned = "unsigned" in words
    name = " ".join(word for word in words if word not in _MODIFIERS)
    name = _LONG_NAMES.get(name, name)
    if name in ("tinyint", "bit") and arguments.strip() == "1":
        return pa.bool_()
    if name in _INTEGERS:
        return _integer(name, unsigned, dialect)
    if name in ("decimal", "numeric", "dec", "fixed"):
        return _decimal(arguments)
    if name == "float" and (dialect == SQLITE or _float_digits(arguments) > 24):
        return pa.float64()
    return _BY_NAME.get(name)


def _integer(name: str, unsigned: bool, dialect: str) -> pa.DataType:
    if dialect == SQLITE and name in ("int", "integer", "bigint", "int8"):
        return pa.int64()  # SQLite's own integers have 64 bits and a sign, whatever the column is called
    return _INTEGERS[name][unsigned]


def _decimal(arguments: str) -> pa.DataType | None:
    digits = [int(part) for part in arguments.split(",") if part.strip().isdigit()]
    if not digits:
        return None  # SQLite only: without a scale nothing says how exact the values are
    precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
    fits = 1 <= precision <= _LARGEST_DECIMAL and scale <= precision
    return pa.decimal128(precision, scale) if fits else None


def _float_digits(arguments: str) -> int:
    return int(arguments) if arguments.isdigit() else 0


class WrongValueError(ValueError):
    """A value that is not of its column's type."""

    def __init__(self, position: int, value: Any) -> None:
        super().__init__(f"value {position} is {value!r}")
        self.position = position
        self.value = value


def to_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Values as a database driver gives them, as an Arrow array of the column's type."""
    convert = _conversion(arrow)
    try:
        return pa.array([None if value is None else convert(value) for value in values], arrow)
    except _REFUSALS:
        for position, value in enumerate(values):
            _check(position, value, arrow, convert)
        raise


_REFUSALS = (ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowException)


def _check(position: int, value: Any, arrow: pa.DataType, convert: Callable[[Any], Any]) -> None:
    try:
        if value is not None:
            pa.array([convert(value)], arrow)
    except _REFUSALS:
        raise WrongValueError(position, value) from None


def _conversion(arrow: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_integer(arrow):
        return _exactly(int)
    if pa.types.is_string(arrow):
        return _exactly(str)
    if pa.types.is_binary(arrow):
        return _exactly(bytes)
    if pa.types.is_floating(arrow):
        return _to_float
    if pa.types.is_boolean(arrow):
        return _to_bool
    if pa.types.is_decimal(arrow):
        return _to_decimal
    if pa.types.is_date(arrow):
        return _to_date
    return _to_instant if arrow.tz else _to_wall_clock


def _exactly(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(value)
        return value

    return convert


def _to_float(value: Any) -> float:
    if type(value) not in (float, int, Decimal):
        raise TypeError(value)
    return float(value)


def _to_bool(value: Any) -> bool:
    if value in (0, b"\x00"):
        return False
    if value in (1, b"\x01"):
        return True
    raise TypeError(value)


def _to_decimal(value: Any) -> Decimal:
    if type(value) not in (Decimal, int, float, str):
        raise TypeError(value)
    number = Decimal(str(value))  # through its shortest text, 19.99 as a float is 19.99 again
    if not number.is_finite():
        raise ValueError(value)
    return number


def _to_date(value: Any) -> date:
    if type(value) is date:
        return value
    if type(value) is not str:
        raise TypeError(value)
    return date.fromisoformat(value)


def _to_wall_clock(value: Any) -> datetime:
    moment = _to_moment(value)
    if moment.tzinfo is not None:
        raise ValueError(value)
    return moment


def _to_instant(value: Any) -> datetime:
    moment = _to_moment(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _to_moment(value: Any) -> datetime:
    if type(value) is datetime:
        return value
    if type(value) is not str:
        raise TypeError(value)
    return datetime.fromisoformat(value)
