"""The load definition as typed, immutable models.

A model checks each field on its own; what must hold between fields is in `checks`. `description`s end
up in the remedies of error messages, so they say what the field expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    StrictBool,
    StrictInt,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from freshet.config import names, schedules, types, units
from freshet.config.algorithms import AUTO
from freshet.config.types import ColumnTypeError
from freshet.config.units import UnitError
from freshet.errors import DefinitionError

# What a definition and a run may have at most. The form fields of the DAGs check sizes and times by a
# pattern: they take a little more, which the run then refuses.
MOST_FILES = 100_000
LARGEST_SIZE = 900 << 40
LONGEST_TIME = 1000 * 86400.0


def _wrong(what: str, remedy: str) -> PydanticCustomError:
    """The error of a field's own check; `problems_of` in `reading` takes it apart again."""
    return PydanticCustomError("freshet", "{what}", {"what": what, "remedy": remedy})


def _column_name(name: str) -> str:
    if name.startswith("_"):
        raise _wrong("names that begin with _ are Freshet's own", "Choose another name")
    if not names.COLUMN.fullmatch(name):
        raise _wrong(
            "not a usable name",
            "Use letters, digits and _, beginning with a letter, at most 128 of them (inside {…} of YAML, "
            "quote a type or an expression that contains a comma)",
        )
    return name


def _load_name(name: str) -> str:
    if not names.LOAD.fullmatch(name):
        raise _wrong(
            "not a usable name for a load",
            "Use letters, digits, _ and -, beginning with a letter, at most 100",
        )
    return name


def _table_name(name: str) -> str:
    if name.lower() in names.OWN_TABLES:
        raise _wrong(
            "the name of a table of Freshet's own", f"Choose one that is not {', '.join(names.OWN_TABLES)}"
        )
    return _column_name(name)


def _connection_id(name: str) -> str:
    if not names.CONNECTION.fullmatch(name):
        raise _wrong(
            "not a connection id",
            "Write the id of an Airflow connection, such as warehouse; its URL and password belong into that "
            "connection or into FRESHET_CONN_<ID>",
        )
    return name


def _master_name(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise _wrong("not the name of a table or column", "Write it as the database has it")
    return name


def _folder(path: str) -> str:
    if "://" in path:
        raise _wrong("a URL", "Write a folder of the local or mounted file system")
    if set(path) & set("*?[]{}\\"):
        raise _wrong("not a folder", "Write one folder, without the pattern signs * ? [ ] { } \\")
    return path


def _bytes(value: Any) -> int:
    try:
        return units.parse_bytes(value)
    except UnitError as error:
        raise _wrong(error.what, error.remedy) from None


def _memory(size: int) -> int:
    if size < 1024:
        raise _wrong("less than 1KB", units.SIZE_REMEDY)
    if size > LARGEST_SIZE:
        raise _wrong(f"more than {units.format_bytes(LARGEST_SIZE)}", units.SIZE_REMEDY)
    return size


def _seconds(value: Any) -> float:
    try:
        return units.parse_seconds(value)
    except UnitError as error:
        raise _wrong(error.what, error.remedy) from None


def _positive(seconds: float) -> float:
    if seconds < 0.001:
        raise _wrong("no time at all", units.TIME_REMEDY)
    return seconds


def _not_too_long(seconds: float) -> float:
    if seconds > LONGEST_TIME:
        raise _wrong(f"longer than {LONGEST_TIME / 86400:.0f}d", units.TIME_REMEDY)
    return seconds


def _type(ddl: Any) -> str:
    try:
        return types.normalise(ddl)
    except ColumnTypeError as error:
        raise _wrong(error.what, error.remedy) from None


def _schedule(text: str) -> str:
    if not schedules.is_schedule(text):
        raise _wrong("not a schedule", schedules.REMEDY)
    return text


def _resort_schedule(text: str) -> str:
    if text == "@continuous":
        raise _wrong("would sort without a pause", 'Choose a schedule with pauses, such as "@daily"')
    return text


def _added(value: Any) -> Any:
    """The list form of `add` as the mapping it stands for."""
    if not isinstance(value, list):
        return value
    if not all(isinstance(name, str) for name in value):
        raise _wrong("not a list of names", "Write names of master columns, or {new_name: master_column}")
    for _, name, _ in names.duplicates(value):
        raise _wrong(f"{name!r} stands in it twice", "Name each column once")
    return dict(zip(value, value, strict=True))


def _from_pairs(value: Any) -> Any:
    """A mapping that was recorded as pairs."""
    if isinstance(value, list) and all(_is_pair(item) for item in value):
        return dict(value)
    return value


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)


def _as_pairs(value: dict[str, str]) -> list[list[str]]:
    return [list(pair) for pair in value.items()]


def _option(value: Any) -> Any:
    """An option's value as Spark takes it: text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _scalar(value: JsonValue) -> JsonValue:
    if isinstance(value, (list, dict)):
        raise _wrong("not a single value", "Write a number, a text, true, false or null")
    return value


# The order of these mappings means something (columns of a CSV file, derived columns that use earlier
# ones), and JSON's objects may be written sorted: they are recorded as pairs.
_IN_ORDER = (BeforeValidator(_from_pairs), PlainSerializer(_as_pairs, when_used="json"))

ColumnName = Annotated[str, AfterValidator(_column_name)]
TableName = Annotated[str, AfterValidator(_table_name)]
MasterName = Annotated[str, AfterValidator(_master_name)]
ConnectionId = Annotated[str, AfterValidator(_connection_id)]
TypeName = Annotated[str, BeforeValidator(_type)]
Size = Annotated[int, BeforeValidator(_bytes), AfterValidator(_memory)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Schedule = Annotated[str, AfterValidator(_schedule)]


class Section(BaseModel):
    """A part of a definition: immutable, and without fields that mean nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Stream(Section):
    """The stream of updates: where it comes from and what its records look like."""

    source: Literal["files", "kafka"] = Field(default="files", description="files or kafka")
    path: Annotated[str, AfterValidator(_folder)] = Field(
        default="", description="the folder that receives the files, relative to FRESHET_HOME or absolute"
    )
    topic: str | None = Field(default=None, description="the Kafka topic (source: kafka)")
    connection: ConnectionId | None = Field(
        default=None, description="the id of the Kafka connection (source: kafka)"
    )
    format: Literal["json", "csv", "parquet"] = Field(description="json (one object a line), csv or parquet")
    columns: Annotated[dict[ColumnName, TypeName], *_IN_ORDER] = Field(
        min_length=1,
        description="a mapping of the record's columns to their types, such as {sale_id: string}",
    )
    event_id: str = Field(description="the column that names an event")
    event_time: str | None = Field(
        default=None, description="the column that holds the time of an event, or null"
    )
    options: dict[str, Annotated[str, BeforeValidator(_option)]] = Field(
        default_factory=dict, description="a mapping of options of the format, such as {header: true}"
    )
    trigger_interval: Annotated[Seconds, AfterValidator(_not_too_long)] = Field(
        default=1.0, description="the shortest time between two micro-batches, such as 1s"
    )
    max_files_per_batch: StrictInt = Field(
        default=16, ge=1, le=MOST_FILES, description="the most files in a micro-batch, such as 16"
    )
    max_bytes_per_batch: Size | None = Field(
        default=None, description="the most bytes in a micro-batch, such as 256MB, or null"
    )


class Lookup(Section):
    """One dimension: which master table is looked up by which key, and what it adds."""

    name: ColumnName = Field(description="a name for the lookup, such as product")
    connection: ConnectionId | None = Field(
        default=None, description="the id of an Airflow connection, or null for the embedded SQLite database"
    )
    table: MasterName = Field(description="the master table, such as products")
    key: MasterName = Field(description="the unique column of the master table to look up by")
    stream_key: str = Field(
        default="", description="the column of the stream, or of an earlier lookup, with the key"
    )
    add: Annotated[dict[ColumnName, MasterName], BeforeValidator(_added), *_IN_ORDER] = Field(
        min_length=1, description="a list of master columns to add, or {new_name: master_column}"
    )
    unmatched: Literal["park", "keep", "fail"] = Field(
        default="park", description="what becomes of rows without a master row: park, keep or fail"
    )
    defaults: dict[str, Annotated[JsonValue, AfterValidator(_scalar)]] = Field(
        default_factory=dict, description="a mapping of added columns to the values of kept unmatched rows"
    )
    algorithm: str = Field(default=AUTO, description="auto, or the name of a join")
    memory: Size = Field(default=64 << 20, description="the budget of each task, such as 64MB")
    settings: dict[str, JsonValue] = Field(
        default_factory=dict, description="a mapping of the join's own settings"
    )

    def model_post_init(self, context: Any) -> None:
        if not self.stream_key:
            object.__setattr__(self, "stream_key", self.key)


class Facts(Section):
    """The table that is loaded."""

    table: TableName = Field(description="a name for the fact table, such as sales_facts")
    columns: tuple[str, ...] = Field(min_length=1, description="a list of the columns of the facts")
    partition_by: tuple[str, ...] = Field(default=(), description="a list of columns of the facts")


class Enrich(Section):
    """When and for how long the enrich job runs."""

    schedule: Schedule | None = Field(
        default="@continuous", description="a schedule, or null for by hand only"
    )
    run_for: Annotated[Seconds, AfterValidator(_positive), AfterValidator(_not_too_long)] = Field(
        default=1800.0, description="the time after which a run ends, such as 30m"
    )
    until_idle: StrictBool = Field(
        default=False, description="true to end a run as soon as nothing is left to load, or false"
    )


class Resort(Section):
    """When the master data is sorted again by access frequency."""

    schedule: Annotated[Schedule, AfterValidator(_resort_schedule)] | None = Field(
        default="@daily", description="a schedule, or null for by hand only"
    )
    min_gain: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="the rise of the hot share, 0 to 1, below which a new snapshot is not worth it",
    )


class Definition(Section):
    """A load: a stream, the lookups that enrich it and the facts it becomes."""

    load: Annotated[str, AfterValidator(_load_name)] = Field(description="a name for the load, such as sales")
    description: str = Field(default="", description="a sentence about the load")
    stream: Stream = Field(description="a mapping that describes the stream")
    lookups: tuple[Lookup, ...] = Field(description="a list of lookups, each a mapping")
    derive: Annotated[dict[ColumnName, str], *_IN_ORDER] = Field(
        default_factory=dict, description="a mapping of new columns to Spark SQL expressions"
    )
    facts: Facts = Field(description="a mapping that describes the fact table")
    enrich: Enrich = Field(default=Enrich(), description="a mapping with schedule, run_for, until_idle")
    resort: Resort = Field(default=Resort(), description="a mapping with schedule, min_gain")
    freshness: Annotated[Seconds, AfterValidator(_positive)] | None = Field(
        default=None, description="how old the newest new fact may be, such as 1d, or null for any age"
    )
    expectations: tuple[dict[str, JsonValue], ...] = Field(
        default=(), description="a list of expectations, each a mapping with a type and its arguments"
    )

    def as_dict(self) -> dict[str, Any]:
        """The definition in JSON's types, defaults filled in: equal definitions give equal dictionaries."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, recorded: Mapping[str, Any]) -> Self:
        """The definition that `as_dict` recorded."""
        try:
            return cls.model_validate(recorded)
        except ValidationError as error:
            raise DefinitionError(
                f"A recorded load definition cannot be read by this version of Freshet: {error}. "
                "Use the version that recorded it."
            ) from None
