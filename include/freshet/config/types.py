"""Column types: Spark's names for them, and what they are in Arrow.

Supported is what Delta and Arrow both have. A type is written as in Spark's DDL and normalised, so that
two definitions with the same types have the same text: `Struct< a : INTEGER >` is `struct<a:int>`.
pyarrow is imported only by the functions that deal in Arrow types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freshet.config.names import COLUMN, duplicates, nearest
from freshet.errors import FreshetError

if TYPE_CHECKING:
    import pyarrow as pa

INTEGERS = ("tinyint", "smallint", "int", "bigint")
SIMPLE = (*INTEGERS, "float", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
NESTED = ("array", "map", "struct")
SUPPORTED = (*SIMPLE, "decimal(p,s)", "array<t>", "map<k,v>", "struct<name:t,...>")
KEYS = (*INTEGERS, "string")
"""The types a join key may have."""

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_INSTEAD = {
    "varchar": "string",
    "char": "string",
    "text": "string",
    "str": "string",
    "datetime": "timestamp",
    "bool": "boolean",
    "number": "decimal(p,s)",
}
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[^\s])", re.ASCII)
_DEEPEST = 32


class ColumnTypeError(FreshetError, ValueError):
    """A column type that Freshet does not have."""

    def __init__(self, ddl: object, what: str, remedy: str) -> None:
        super().__init__(f"Column type {str(ddl)!r} {what}. {remedy}.")
        self.what = what
        self.remedy = remedy


@dataclass(frozen=True)
class ColumnType:
    """A parsed column type; its text is the normalised DDL."""

    name: str
    numbers: tuple[int, ...] = ()
    """Precision and scale of a decimal."""
    children: tuple[tuple[str, ColumnType], ...] = ()
    """The named parts of a nested type (`element`; `key` and `value`; a struct's fields)."""

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.numbers[0]},{self.numbers[1]})"
        if self.name == "struct":
            return f"struct<{','.join(f'{name}:{part}' for name, part in self.children)}>"
        if self.name in NESTED:
            return f"{self.name}<{','.join(str(part) for _, part in self.children)}>"
        return self.name

    def has(self, name: str) -> bool:
        """Whether this type is, or contains, the named one."""
        return self.name == name or any(part.has(name) for _, part in self.children)


def parse_type(ddl: str) -> ColumnType:
    """The type that a DDL text names."""
    if not isinstance(ddl, str) or not ddl.strip():
        raise ColumnTypeError(ddl, "is not a type", f"Write one of {', '.join(SUPPORTED)}")
    return _Parser(ddl).parse()


def normalise(ddl: str) -> str:
    """The one way to write this type."""
    return str(parse_type(ddl))


def is_nested(ddl: str) -> bool:
    """Whether values of this type have parts."""
    return parse_type(ddl).name in NESTED


class _Parser:
    """A recursive-descent parser of one DDL type."""

    def __init__(self, ddl: str) -> None:
        self.ddl = ddl
        self.tokens = _TOKEN.findall(ddl)
        self.position = 0

    def parse(self) -> ColumnType:
        parsed = self._type(depth=0)
        if self.position < len(self.tokens):
            raise self._error(
                f"has {self._next()!r} after its end", "Remove it; constraints and comments are not supported"
            )
        return parsed

    def _type(self, depth: int) -> ColumnType:
        if depth > _DEEPEST:
            raise self._error("is nested too deeply", f"Use at most {_DEEPEST} levels")
        written = self._next().lower()
        name = _ALIASES.get(written, written)
        if name in SIMPLE:
            return ColumnType(name)
        if name == "decimal":
            return self._decimal()
        if name == "array":
            (element,) = self._parts(1, depth)
            return ColumnType("array", children=(("element", element),))
        if name == "map":
            key, value = self._parts(2, depth)
            if key.has("map"):
                raise self._error("has a map as a map's key", "Use another type for the key")
            return ColumnType("map", children=(("key", key), ("value", value)))
        if name == "struct":
            return ColumnType("struct", children=self._fields(depth))
        raise self._unknown(written)

    def _decimal(self) -> ColumnType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._expect("(")
            precision = self._number()
            if self._peek() == ",":
                self._expect(",")
                scale = self._number()
            self._expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise self._error(
                "is out of range",
                "A decimal(p,s) has 1 <= p <= 38 digits, 0 <= s <= p of them after the point",
            )
        return ColumnType("decimal", numbers=(precision, scale))

    def _parts(self, count: int, depth: int) -> list[ColumnType]:
        self._expect("<")
        parts = [self._type(depth + 1)]
        while len(parts) < count:
            self._expect(",")
            parts.append(self._type(depth + 1))
        self._expect(">")
        return parts

    def _fields(self, depth: int) -> tuple[tuple[str, ColumnType], ...]:
        self._expect("<")
        fields = [self._field(depth)]
        while self._peek() == ",":
            self._expect(",")
            fields.append(self._field(depth))
        self._expect(">")
        for _, name, earlier in duplicates(name for name, _ in fields):
            raise self._error(
                f"has the field {name!r} twice ({earlier!r} before)", "Give each field its own name"
            )
        return tuple(fields)

    def _field(self, depth: int) -> tuple[str, ColumnType]:
        name = self._next()
        if not COLUMN.fullmatch(name):
            raise self._error(
                f"has a field called {name!r}", "Use letters, digits and _, beginning with a letter"
            )
        if self._peek() == ":":
            self._expect(":")
        return name, self._type(depth + 1)

    def _number(self) -> int:
        token = self._next()
        if not token.isdigit():
            raise self._error(f"has {token!r} where a number belongs", "Write it as decimal(10,2)")
        return int(token)

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._error(
                "ends too early",
                'Close its brackets; inside {…} of YAML a type with a comma needs quotes: "decimal(10,2)"',
            )
        self.position += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise self._error(
                f"has {found!r} where {token!r} belongs",
                "Write it as in Spark's DDL, such as map<string,int>",
            )

    def _unknown(self, name: str) -> ColumnTypeError:
        instead = _INSTEAD.get(name) or nearest(name, [*SIMPLE, *_ALIASES, *NESTED, "decimal"])
        hint = f"Did you mean {_ALIASES.get(instead, instead)}? " if instead else ""
        return self._error(f"is not supported ({name!r})", f"{hint}Supported are {', '.join(SUPPORTED)}")

    def _error(self, what: str, remedy: str) -> ColumnTypeError:
        return ColumnTypeError(self.ddl, what, remedy)


def to_arrow(ddl: str) -> pa.DataType:
    """The Arrow type of a DDL type, as Spark exchanges it with Arrow."""
    return _arrow(parse_type(ddl))


def _arrow(parsed: ColumnType) -> pa.DataType:
    import pyarrow as pa

    if parsed.name == "decimal":
        return pa.decimal128(*parsed.numbers)
    if parsed.name == "array":
        return pa.list_(pa.field("element", _arrow(parsed.children[0][1])))
    if parsed.name == "map":
        (_, key), (_, value) = parsed.children
        return pa.map_(_arrow(key), _arrow(value))
    if parsed.name == "struct":
        return pa.struct([pa.field(name, _arrow(part)) for name, part in parsed.children])
    simple = {
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return simple[parsed.name]


def to_ddl(arrow: pa.DataType) -> str:
    """The DDL type of an Arrow type. Types that Delta would have to round or widen are refused."""
    return str(_parsed(arrow))


def _parsed(arrow: pa.DataType) -> ColumnType:
    import pyarrow.types as pat

    if pat.is_decimal(arrow) and 0 <= arrow.scale <= arrow.precision <= 38:
        return ColumnType("decimal", numbers=(arrow.precision, arrow.scale))
    if pat.is_map(arrow):
        return ColumnType(
            "map", children=(("key", _parsed(arrow.key_type)), ("value", _parsed(arrow.item_type)))
        )
    if pat.is_list(arrow) or pat.is_large_list(arrow) or pat.is_fixed_size_list(arrow):
        return ColumnType("array", children=(("element", _parsed(arrow.value_type)),))
    if pat.is_struct(arrow) and arrow.num_fields:
        return ColumnType("struct", children=tuple((field.name, _parsed(field.type)) for field in arrow))
    if pat.is_timestamp(arrow) and arrow.unit != "ns":
        return ColumnType("timestamp" if arrow.tz else "timestamp_ntz")
    return ColumnType(_simple_name(arrow))


def _simple_name(arrow: pa.DataType) -> str:
    import pyarrow.types as pat

    tests = {
        "tinyint": pat.is_int8,
        "smallint": pat.is_int16,
        "int": pat.is_int32,
        "bigint": pat.is_int64,
        "float": pat.is_float32,
        "double": pat.is_float64,
        "boolean": pat.is_boolean,
        "string": lambda t: pat.is_string(t) or pat.is_large_string(t) or pat.is_string_view(t),
        "binary": lambda t: (
            pat.is_binary(t) or pat.is_large_binary(t) or pat.is_binary_view(t) or pat.is_fixed_size_binary(t)
        ),
        "date": pat.is_date32,
    }
    for name, test in tests.items():
        if test(arrow):
            return name
    raise ColumnTypeError(
        arrow,
        "has no equal in Delta",
        f"Cast it to the Arrow type of one of {', '.join(SUPPORTED)} (times to microseconds, unsigned "
        "numbers to a wider signed one)",
    )
