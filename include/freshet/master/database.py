"""Reading master tables: their columns as an Arrow schema, their rows as record batches in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Select, column, inspect, literal_column, select, text
from sqlalchemy import table as sql_table
from sqlalchemy.engine import Engine

from freshet.errors import MasterError
from freshet.master.batches import gathered
from freshet.master.column_types import UNSIGNED_BIGINT, WrongValueError, arrow_type, to_array
from freshet.master.connections import database_errors, describe, engine_for
from freshet.queries import query

if TYPE_CHECKING:
    from freshet.config import Lookup

BATCH_BYTES = 4 * 1024 * 1024
_MOST_ROWS = 50_000
# Rows are fetched by so many at once: how wide they are is known only then.
_PIECE_ROWS = 32
_NAMED = 20


@dataclass(frozen=True)
class TableName:
    """A table's name, with its schema (MySQL: database) if one was written before it."""

    table: str
    schema: str | None = None

    @classmethod
    def parse(cls, written: str) -> TableName:
        schema, dot, table = written.rpartition(".")
        return cls(table, schema) if dot else cls(written)


def declared_columns(engine: Engine, table: str) -> dict[str, str]:
    """The columns of a table with the types they were declared with."""
    name = TableName.parse(table)
    statement = text(query(f"{engine.dialect.name}/declared_columns"))
    with database_errors(engine, f"looking at table {table!r}"), engine.connect() as connection:
        rows = connection.execute(statement, {"table": name.table, "schema": name.schema}).all()
    if not rows:
        raise MasterError(f"there is no table {table!r} in {describe(engine.url)}; {_tables(engine)}")
    return {row.name: row.declared for row in rows}


def _tables(engine: Engine) -> str:
    with database_errors(engine, "listing the tables"):
        found = inspect(engine).get_table_names()
    if not found:
        return "it has no tables at all"
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"it has {', '.join(found[:_NAMED])}{more}"


def table_schema(engine: Engine, table: str, columns: Sequence[str], key: str | None = None) -> pa.Schema:
    """Columns of a master table as Arrow has them; the key must be an integer or a string."""
    declared = declared_columns(engine, table)
    missing = [name for name in columns if name not in declared]
    if missing:
        raise MasterError(
            f"table {table!r} in {describe(engine.url)} has no column {', '.join(missing)}; "
            f"it has {', '.join(declared)}"
        )
    return pa.schema([_field(engine, table, name, declared[name], name == key) for name in columns])


def _field(engine: Engine, table: str, name: str, declared: str, is_key: bool) -> pa.Field:
    arrow = arrow_type(declared, engine.dialect.name)
    if arrow is None:
        raise MasterError(
            f"column {name!r} of table {table!r} has the type {declared or 'none at all'!r}, which cannot be "
            "read: leave the column out of the lookup, or give it a type listed in docs/master-data.md"
        )
    if not is_key:
        return pa.field(name, arrow)
    if arrow == UNSIGNED_BIGINT:
        arrow = pa.int64()  # stream keys have a sign; a key beyond it is refused when it is read
    if not (pa.types.is_integer(arrow) or pa.types.is_string(arrow)):
        raise MasterError(
            f"column {name!r} of table {table!r} is a {declared} and cannot be a key: "
            "use an integer or text column"
        )
    return pa.field(name, arrow)


def lookup_schema(lookup: Lookup) -> pa.Schema:
    """The columns a lookup needs of its master table: the key, then those it adds."""
    columns = dict.fromkeys([lookup.key, *lookup.add.values()])
    return table_schema(engine_for(lookup.connection), lookup.table, list(columns), lookup.key)


def read_batches(
    engine: Engine, table: str, columns: Sequence[str], key: str | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a table, a few megabytes at a time however wide they are, from one consistent read."""
    schema = table_schema(engine, table, columns, key)
    reading = f"reading table {table!r}"
    with database_errors(engine, reading), engine.connect() as connection:
        streaming = connection.execution_options(stream_results=True, max_row_buffer=_PIECE_ROWS)
        rows = streaming.execute(_select(table, schema))
        pieces = iter(lambda: rows.fetchmany(_PIECE_ROWS), [])
        batches = (_to_batch(piece, schema, table, key) for piece in pieces)
        yield from gathered(batches, BATCH_BYTES, _MOST_ROWS)


def _select(table: str, schema: pa.Schema) -> Select[*tuple[Any, ...]]:
    name = TableName.parse(table)
    return select(*[_selected(f) for f in schema]).select_from(sql_table(name.table, schema=name.schema))


def _selected(field: pa.Field) -> ColumnElement[Any]:
    # Columns without a type: SQLAlchemy hands the values on as the driver gives them.
    selected: ColumnElement[Any] = column(field.name)
    # MySQL writes a FLOAT with six digits, but a DOUBLE with all it has.
    return selected * literal_column("1e0") if pa.types.is_float32(field.type) else selected


def _to_batch(
    rows: Sequence[Sequence[Any]], schema: pa.Schema, table: str, key: str | None
) -> pa.RecordBatch:
    arrays = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            arrays.append(to_array(values, field.type))
        except WrongValueError as wrong:
            row = rows[wrong.position]
            where = f" in the row with {key} = {row[schema.get_field_index(key)]!r}" if key else ""
            raise MasterError(
                f"table {table!r}: column {field.name!r} holds {_short(wrong.value)}{where}, which is not a "
                f"{field.type}. Correct the value, change the column's type, or leave it out of the lookup"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
