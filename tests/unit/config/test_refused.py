"""A wrong definition is refused with file, field, value and remedy, and everything wrong at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from freshet.config import read_definition
from freshet.config.expectations import EXPECTATIONS
from freshet.config.problems import DefinitionFileError
from freshet.errors import DefinitionError

Write = Callable[..., Path]
GONE = object()

# Each case: the field to spoil, its value (GONE: left out), the field named, the value shown, and a part of
# what is said and of the remedy.
CASES: list[tuple[str, Any, str, Any, str, str]] = [
    # names
    ("load", "my load", "load", "my load", "not a usable name", "letters, digits, _ and -"),
    ("load", "../etc", "load", "../etc", "not a usable name", "beginning with a letter"),
    ("load", "1st", "load", "1st", "not a usable name", "beginning with a letter"),
    ("load", "sales.v2", "load", "sales.v2", "not a usable name", "letters, digits, _ and -"),
    ("load", "x" * 101, "load", "x" * 101, "not a usable name", "at most 100"),
    ("load", 7, "load", 7, "valid string", "a name for the load"),
    ("load", GONE, "load", GONE, "missing", "a name for the load, such as sales"),
    (
        "lookups.0.name",
        "pro duct",
        "lookups[0].name",
        "pro duct",
        "not a usable name",
        "letters, digits and _",
    ),
    ("lookups.1.name", "Product", "lookups[1].name", "Product", "another lookup has this name", "its own"),
    ("facts.table", "a/b", "facts.table", "a/b", "not a usable name", "letters, digits and _"),
    ("facts.table", "Parked", "facts.table", "Parked", "a table of Freshet's own", "Choose one"),
    ("facts.table", "_facts", "facts.table", "_facts", "begin with _", "Choose another"),
    (
        "stream.columns",
        {"sale_id": "string", "a b": "int"},
        "stream.columns.a b",
        "a b",
        "not a usable name",
        "quote",
    ),
    (
        "stream.columns",
        {"sale_id": "string", "_x": "int"},
        "stream.columns._x",
        "_x",
        "begin with _",
        "another name",
    ),
    ("derive", {"_total": "1"}, "derive._total", "_total", "begin with _", "another name"),
    ("lookups.0.add", {"_key": "k"}, "lookups[0].add._key", "_key", "begin with _", "another name"),
    # stream
    ("stream.source", "kinesis", "stream.source", "kinesis", "files or kafka", "files or kafka"),
    (
        "stream.path",
        GONE,
        "stream.path",
        GONE,
        "missing; source 'files' needs it",
        "relative to FRESHET_HOME",
    ),
    ("stream.path", "s3://bucket/x", "stream.path", "s3://bucket/x", "a URL", "local or mounted"),
    ("stream.path", "in\\new", "stream.path", "in\\new", "not a folder", "one folder"),
    ("stream.path", "in/*.json", "stream.path", "in/*.json", "not a folder", "one folder"),
    ("stream.topic", "sales", "stream.topic", "sales", "source 'files' has no topic", "Remove it"),
    ("stream.format", "avro", "stream.format", "avro", "json, csv or parquet", "json (one object a line)"),
    ("stream.format", GONE, "stream.format", GONE, "missing", "Write format: json"),
    ("stream.columns", {}, "stream.columns", {}, "at least 1", "{sale_id: string}"),
    ("stream.columns", ["sale_id"], "stream.columns", ["sale_id"], "valid mapping", "{sale_id: string}"),
    (
        "stream.columns.quantity",
        "intger",
        "stream.columns.quantity",
        "intger",
        "not supported",
        "Did you mean int?",
    ),
    (
        "stream.columns.quantity",
        "varchar(9)",
        "stream.columns.quantity",
        "varchar(9)",
        "not supported",
        "mean string",
    ),
    ("stream.columns.quantity", None, "stream.columns.quantity", None, "not a type", "Write one of tinyint"),
    (
        "stream.columns.quantity",
        "decimal(10",
        "stream.columns.quantity",
        "decimal(10",
        "too early",
        '"decimal(10,2)"',
    ),
    (
        "stream.columns.Quantity",
        "int",
        "stream.columns.Quantity",
        "Quantity",
        "already a column 'quantity'",
        "another",
    ),
    (
        "stream.event_id",
        "saleid",
        "stream.event_id",
        "saleid",
        "not a column of the stream",
        "mean 'sale_id'",
    ),
    (
        "stream.event_id",
        "total",
        "stream.event_id",
        "total",
        "not a column of the stream",
        "There are: sale_id",
    ),
    ("stream.event_id", GONE, "stream.event_id", GONE, "missing", "the column that names an event"),
    (
        "stream.event_time",
        "sold",
        "stream.event_time",
        "sold",
        "not a column of the stream",
        "Did you mean 'sold_at'",
    ),
    ("stream.event_time", "quantity", "stream.event_time", "quantity", "column of type int", "timestamp"),
    (
        "stream.trigger_interval",
        "1 fortnight",
        "stream.trigger_interval",
        "1 fortnight",
        "not a time",
        "such as 30s",
    ),
    (
        "stream.max_files_per_batch",
        0,
        "stream.max_files_per_batch",
        0,
        "greater than or equal to 1",
        "such as 16",
    ),
    (
        "stream.max_files_per_batch",
        "many",
        "stream.max_files_per_batch",
        "many",
        "valid integer",
        "such as 16",
    ),
    (
        "stream.max_files_per_batch",
        100_001,
        "stream.max_files_per_batch",
        100_001,
        "less than or equal to 100000",
        "such as 16",
    ),
    ("stream.trigger_interval", "1001d", "stream.trigger_interval", "1001d", "longer than 1000d", "30s"),
    ("enrich", {"run_for": "36500d"}, "enrich.run_for", "36500d", "longer than 1000d", "such as 30s"),
    ("enrich", {"run_for": "0.0001ms"}, "enrich.run_for", "0.0001ms", "no time at all", "such as 30s"),
    ("lookups.0.memory", "901TB", "lookups[0].memory", "901TB", "more than 900TB", "such as 64MB"),
    ("stream.max_files_per_batch", True, "stream.max_files_per_batch", True, "valid integer", "such as 16"),
    (
        "stream.max_bytes_per_batch",
        "lots",
        "stream.max_bytes_per_batch",
        "lots",
        "not a size",
        "such as 64MB",
    ),
    (
        "stream.options",
        {"header": True},
        "stream.options.header",
        "true",
        "not an option of format json",
        "none",
    ),
    # lookups
    ("lookups", [], "lookups", [], "no lookup", "at least one master table"),
    ("lookups", {"name": "x"}, "lookups", {"name": "x"}, "valid list", "a list of lookups"),
    ("lookups", GONE, "lookups", GONE, "missing", "a list of lookups"),
    ("lookups.0", "products", "lookups[0]", "products", "valid mapping", "a list of lookups, each a mapping"),
    (
        "lookups.0.connection",
        "my db",
        "lookups[0].connection",
        "my db",
        "not a connection id",
        "FRESHET_CONN_<ID>",
    ),
    ("lookups.0.table", GONE, "lookups[0].table", GONE, "missing", "the master table, such as products"),
    ("lookups.0.table", "", "lookups[0].table", "", "not the name of a table", "as the database has it"),
    ("lookups.0.key", GONE, "lookups[0].key", GONE, "missing", "the unique column"),
    (
        "lookups.0.stream_key",
        "produkt",
        "lookups[0].stream_key",
        "produkt",
        "neither a column",
        "mean 'product_id'",
    ),
    (
        "lookups.0.stream_key",
        "supplier_id",
        "lookups[0].stream_key",
        "supplier_id",
        "earlier lookup",
        "There are",
    ),
    (
        "lookups.0.stream_key",
        "sold_at",
        "lookups[0].stream_key",
        "sold_at",
        "column of type timestamp",
        "bigint, string",
    ),
    (
        "lookups.1.stream_key",
        GONE,
        "lookups[1].stream_key",
        "id",
        "neither a column",
        "the key of 'suppliers'",
    ),
    ("lookups.0.add", [], "lookups[0].add", {}, "at least 1", "{new_name: master_column}"),
    ("lookups.0.add", GONE, "lookups[0].add", GONE, "missing", "{new_name: master_column}"),
    ("lookups.0.add", ["a", "a"], "lookups[0].add", ["a", "a"], "'a' stands in it twice", "once"),
    ("lookups.0.add", [[["a"], "b"]], "lookups[0].add", [[["a"], "b"]], "not a list of names", "{new_name"),
    ("derive", [[{"a": 1}, "b"]], "derive", [[{"a": 1}, "b"]], "valid mapping", "a mapping of new columns"),
    ("stream.columns", [[["a"], "int"]], "stream.columns", [[["a"], "int"]], "valid mapping", "{sale_id"),
    (
        "lookups.0.add",
        ["a", 3],
        "lookups[0].add",
        ["a", 3],
        "not a list of names",
        "{new_name: master_column}",
    ),
    ("lookups.0.add.0", "odd name", "lookups[0].add.odd name", "odd name", "not a usable name", "letters"),
    (
        "lookups.0.add.0",
        "QUANTITY",
        "lookups[0].add.QUANTITY",
        "QUANTITY",
        "already a column 'quantity'",
        "new_name",
    ),
    (
        "lookups.1.add",
        ["supplier_id"],
        "lookups[1].add.supplier_id",
        "supplier_id",
        "from lookup 'product'",
        "new_name",
    ),
    (
        "lookups.0.unmatched",
        "drop",
        "lookups[0].unmatched",
        "drop",
        "park, keep or fail",
        "park, keep or fail",
    ),
    (
        "lookups.0.defaults",
        {"sale_price": 0},
        "lookups[0].defaults",
        {"sale_price": 0},
        "of no use",
        "unmatched: keep",
    ),
    (
        "lookups.1.defaults",
        {"x": 0},
        "lookups[1].defaults.x",
        "x",
        "not a column this lookup adds",
        "supplier_name",
    ),
    (
        "lookups.1.defaults",
        {"supplier_name": [1]},
        "lookups[1].defaults.supplier_name",
        [1],
        "single value",
        "text",
    ),
    (
        "lookups.0.algorithm",
        "x-hybrid",
        "lookups[0].algorithm",
        "x-hybrid",
        "no such join",
        "mean 'x-hybridjoin'",
    ),
    ("lookups.0.memory", "64 bananas", "lookups[0].memory", "64 bananas", "not a size", "such as 64MB"),
    ("lookups.0.memory", 64, "lookups[0].memory", 64, "less than 1KB", "such as 64MB"),
    ("lookups.0.memory", -1, "lookups[0].memory", -1, "not a size", "such as 64MB"),
    # derive
    (
        "derive.total",
        "quantity * sale_prise",
        "derive.total",
        "quantity * sale_prise",
        "no column",
        "'sale_price'",
    ),
    ("derive.total", "quantity *", "derive.total", "quantity *", "not a Spark SQL expression", "Correct it"),
    ("derive.total", "rand()", "derive.total", "rand()", "another value in a retry", "every retry"),
    ("derive.total", "now()", "derive.total", "now()", "another value in a retry", "every retry"),
    (
        "derive.total",
        "sum(quantity)",
        "derive.total",
        "sum(quantity)",
        "not a function of one row",
        "one row's",
    ),
    (
        "derive.total",
        "sold_at < 'now'",
        "derive.total",
        "sold_at < 'now'",
        "depends on the time",
        "cast(NAME",
    ),
    ("derive.total", "(select 1)", "derive.total", "(select 1)", "subquery", "lookup"),
    ("derive.total", 3, "derive.total", 3, "valid string", "Spark SQL expressions"),
    (
        "derive.quantity",
        "1",
        "derive.quantity",
        "quantity",
        "already a column 'quantity', from the stream",
        "another",
    ),
    (
        "derive",
        {"total": "later + 1", "later": "2"},
        "derive.total",
        "later + 1",
        "no column 'later'",
        "There are",
    ),
    # settings of a join
    (
        "lookups.0.settings",
        {"hot_rows": 5},
        "lookups[0].settings",
        {"hot_rows": 5},
        "particular",
        "x-hybridjoin",
    ),
    # facts
    ("facts.columns", [], "facts.columns", [], "at least 1", "a list of the columns"),
    (
        "facts.columns",
        ["sale_id", "totel"],
        "facts.columns[1]",
        "totel",
        "not a column",
        "Did you mean 'total'?",
    ),
    ("facts.columns", ["sale_id", "_batch"], "facts.columns[1]", "_batch", "Freshet's own", "Remove it"),
    ("facts.columns", ["sale_id", "total", "total"], "facts.columns[2]", "total", "twice", "once"),
    ("facts.columns", ["total"], "facts.columns", ["total"], "without the event id 'sale_id'", "Add sale_id"),
    (
        "facts.partition_by",
        ["supplier_id"],
        "facts.partition_by[0]",
        "supplier_id",
        "not a column of the facts",
        "There",
    ),
    ("facts.partition_by", "sold_at", "facts.partition_by", "sold_at", "valid list", "a list of columns"),
    ("facts.partition_by", ["sold_at", "sold_at"], "facts.partition_by[1]", "sold_at", "twice", "once"),
    # schedules and the rest
    ("enrich", {"schedule": "@dayly"}, "enrich.schedule", "@dayly", "not a schedule", "@daily"),
    ("enrich", {"schedule": "61 * * * *"}, "enrich.schedule", "61 * * * *", "not a schedule", '"15 3 * * *"'),
    ("enrich", {"schedule": "soon"}, "enrich.schedule", "soon", "not a schedule", "null (by hand only)"),
    ("enrich", {"run_for": "0s"}, "enrich.run_for", "0s", "no time at all", "such as 30s"),
    ("enrich", {"until_idle": "maybe"}, "enrich.until_idle", "maybe", "valid boolean", "true"),
    ("enrich", {"run_fr": "1m"}, "enrich.run_fr", "1m", "unknown field", "Did you mean 'run_for'?"),
    ("resort", {"schedule": "@continuous"}, "resort.schedule", "@continuous", "without a pause", "@daily"),
    ("resort", {"min_gain": 5}, "resort.min_gain", 5, "less than or equal to 1", "0 to 1"),
    ("resort", None, "resort", None, "valid mapping", "a mapping with schedule, min_gain"),
    ("expectations", [{"column": "total"}], "expectations[0].type", GONE, "missing", "expect_column"),
    ("expectations", ["x"], "expectations[0]", "x", "valid mapping", "each a mapping"),
    (
        "expectations",
        [{"type": "expect_column_values_to_be_betwen", "column": "total"}],
        "expectations[0].type",
        "expect_column_values_to_be_betwen",
        "not an expectation",
        "Did you mean 'expect_column_values_to_be_between'?",
    ),
    (
        "expectations",
        [{"type": "expect_column_to_exist", "column": "product_id"}],
        "expectations[0].column",
        "product_id",
        "not a column of the facts",
        "There are: sale_id",
    ),
    (
        "expectations",
        [{"type": "expect_compound_columns_to_be_unique", "column_list": ["sale_id", "nope"]}],
        "expectations[0].column_list[1]",
        "nope",
        "not a column of the facts",
        "There are: sale_id",
    ),
    (
        "expectations",
        [{"type": "expect_column_values_to_be_between", "column": "total", "max_value": 9, "min_valu": 1}],
        "expectations[0].min_valu",
        1,
        "unknown argument",
        "Did you mean 'min_value'?",
    ),
    (
        "expectations",
        [{"type": "expect_column_values_to_be_between", "column": "total", "min_value": "x"}],
        "expectations[0].min_value",
        "x",
        "not a number, a date or a timestamp",
        "Write min_value: a number",
    ),
    (
        "expectations",
        [{"type": "expect_column_values_to_be_in_set", "column": "total"}],
        "expectations[0].value_set",
        GONE,
        "missing",
        "Write value_set: a list",
    ),
    # unknown fields
    ("lookup", [], "lookup", [], "unknown field", "Did you mean 'lookups'?"),
    ("stream.event_ids", "x", "stream.event_ids", "x", "unknown field", "Did you mean 'event_id'?"),
    ("lookups.0.memmory", "1MB", "lookups[0].memmory", "1MB", "unknown field", "Did you mean 'memory'?"),
    ("facts.partitions", [], "facts.partitions", [], "unknown field", "partition_by"),
    ("wholly_different", 1, "wholly_different", 1, "unknown field", "There are: load, description, stream"),
]


@pytest.mark.parametrize(
    ("spoiled", "value", "field", "shown", "said", "remedy"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_it_is_refused_with_file_field_value_and_remedy(
    write: Write,
    sales: dict[str, Any],
    spoiled: str,
    value: Any,
    field: str,
    shown: Any,
    said: str,
    remedy: str,
) -> None:
    spoil(sales, spoiled, value)
    path = write(sales)
    with pytest.raises(DefinitionError) as refused:
        read_definition(path)
    message = str(refused.value)
    assert message.startswith(f"{path} is not a usable load definition:\n")
    written = "***" if field.endswith("connection") else repr(shown)
    subject = f"{field}: " if shown is GONE else f"{field} = {written}: "
    lines = [line for line in message.splitlines() if subject in line]
    assert len(lines) == 1, message
    what, _, advice = lines[0].partition(subject)[2].partition(". ")
    assert said in what
    assert remedy in advice


def spoil(definition: dict[str, Any], place: str, value: Any) -> None:
    *above, last = (int(part) if part.isdigit() else part for part in place.split("."))
    target: Any = definition
    for part in above:
        target = target[part]
    if value is GONE:
        del target[last]
    else:
        target[last] = value


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"heeder": True}, "stream.options.heeder = 'true'", "Did you mean 'header'?"),
        ({"header": "perhaps"}, "stream.options.header = 'perhaps'", "true or false"),
        ({"delimiter": "||"}, "stream.options.delimiter = '||'", "not one character"),
        ({"mode": "DROPMALFORMED"}, "stream.options.mode = 'DROPMALFORMED'", "not an option of format csv"),
        ({"delimiter": "\n"}, r"stream.options.delimiter = '\n'", "the end of a line"),
        ({"delimiter": "\\"}, r"stream.options.delimiter = '\\'", "longer delimiter"),
        ({"quote": "\r"}, r"stream.options.quote = '\r'", "the end of a line"),
        ({"quote": "😀"}, "stream.options.quote = '😀'", "not one character"),
        ({"delimiter": '"'}, "stream.options.delimiter = '\"'", "both delimiter and quote"),
        ({"quote": ","}, "stream.options.quote = ','", "both delimiter and quote"),
        ({"quote": ";", "delimiter": ";"}, "stream.options.delimiter = ';'", "Choose two different"),
        ({"timestampFormat": " "}, "stream.options.timestampFormat = ' '", "no pattern"),
        ({"locale": "en_US"}, "stream.options.locale = 'en_US'", "such as en-US"),
        ({"locale": "nonsense"}, "stream.options.locale = 'nonsense'", "not the tag of a language"),
        ({"delimiter": ["a"]}, "stream.options.delimiter = ['a']", "valid string"),
    ],
)
def test_options_of_csv_are_checked(
    write: Write, sales: dict[str, Any], options: dict[str, Any], field: str, said: str
) -> None:
    sales["stream"] |= {"format": "csv", "options": options}
    assert said in _only_line(write(sales), field)


@pytest.mark.parametrize("ddl", ["array<int>", "map<string,int>", "struct<a:int>", "binary"])
def test_csv_cannot_have_columns_with_parts(write: Write, sales: dict[str, Any], ddl: str) -> None:
    sales["stream"] |= {"format": "csv"}
    sales["stream"]["columns"]["extra"] = ddl
    assert "Use format json or parquet" in _only_line(write(sales), f"stream.columns.extra = {ddl!r}")


@pytest.mark.parametrize("ddl", ["array<int>", "binary"])
def test_a_table_is_partitioned_by_single_values_that_are_kept_exactly(
    write: Write, sales: dict[str, Any], ddl: str
) -> None:
    sales["stream"]["columns"]["sold_at"] = ddl
    del sales["stream"]["event_time"]
    sales["facts"]["partition_by"] = ["sold_at"]
    told = _only_line(write(sales), "facts.partition_by[0] = 'sold_at'")
    assert "cannot partition a table" in told and "Choose another column" in told


def test_an_event_id_must_be_comparable(write: Write, sales: dict[str, Any]) -> None:
    sales["stream"]["columns"]["sale_id"] = "array<int>"
    assert "column of type array<int>" in _only_line(write(sales), "stream.event_id = 'sale_id'")


def test_kafka_is_checked_and_then_refused_for_now(write: Write, sales: dict[str, Any]) -> None:
    del sales["stream"]["path"]
    sales["stream"] |= {"source": "kafka", "topic": "sales", "connection": "broker"}
    assert "Only files can be loaded at present" in _only_line(write(sales), "stream.source = 'kafka'")
    del sales["stream"]["topic"]
    sales["stream"]["path"] = "x"
    message = _message(write(sales))
    assert "stream.topic: missing; source 'kafka' needs it. Write topic: the Kafka topic" in message
    assert "stream.path = 'x': source 'kafka' has no path. Remove it; it takes topic, connection." in message


def test_a_password_in_the_wrong_place_is_not_repeated(write: Write, sales: dict[str, Any]) -> None:
    sales["lookups"][0]["connection"] = "mysql://root:secret@host/db"
    message = _message(write(sales))
    assert "secret" not in message
    assert "lookups[0].connection = ***: not a connection id" in message


URL = "mysql://root:se/cr@et@host/db"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("lookups.0.connection", URL),
        ("lookups.0.connection", {"conn_type": "mysql", "login": "root", "password": "se/cr@et"}),
        ("lookups.0.connection", '{"conn_type": "mysql", "password": "se/cr@et"}'),
        ("lookups.0.Connection", URL),
        ("lookups.0.conection", URL),
        ("stream.connection", URL),
        ("lookups", {"connection": "root se/cr@et"}),
        ("lookups.0", [{"connection": "root se/cr@et"}, ["x"]]),
        ("lookups.0.table", {"host": "h", "Password": "se/cr@et"}),
        ("stream.path", URL),
    ],
)
def test_credentials_are_in_no_message_wherever_they_stand(
    write: Write, sales: dict[str, Any], place: str, value: Any
) -> None:
    spoil(sales, place, value)
    message = _message(write(sales))
    for part in ("cr@et", "se/cr", "et@host"):
        assert part not in message


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file(write: Write) -> None:
    path = write(
        """\
load: sales
stream:
  path: demo/sales
  format: jsn
  columns: {sale_id: string, product_id: bigint}
  event_id: sale_id
lookups:
  - name: product
    table: products
    key: product_id
    stream_key: sale_id
    add: [price]
    memory: much
    memory: 1MB
derive: {total: sum(price)}
facts: {table: facts, columns: [total]}
"""
    )
    lines = _message(path).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == ["line 4", "line 14"]

    path.write_text(path.read_text().replace("jsn", "json").replace("much", "2MB"))
    lines = _message(path).splitlines()[1:]
    assert [line.split(" = ")[0].strip() for line in lines] == [
        "line 14: lookups[0].memory: stands twice, first on line 13. Remove one of them.",
        "line 15: derive.total",
        "line 16: facts.columns",
    ]


def test_sections_that_can_be_read_are_checked_although_another_cannot(
    write: Write, sales: dict[str, Any]
) -> None:
    sales["lookups"][0]["memory"] = "much"
    sales["stream"]["event_time"] = "nope"
    sales["facts"]["partition_by"] = ["nope"]
    sales["expectations"] = [{"type": "nope"}]
    message = _message(write(sales))
    assert message.count("\n") == 4
    for field in ("stream.event_time", "lookups[0].memory", "facts.partition_by[0]", "expectations[0].type"):
        assert field in message


def test_a_broken_stream_does_not_accuse_the_columns_that_rest_on_it(
    write: Write, sales: dict[str, Any]
) -> None:
    sales["stream"]["format"] = "jsn"
    assert len(_message(write(sales)).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("load: sales\nstream: {\n", "line 3: ", "YAML syntax error"),
        ("load: sales\n\tstream: 1\n", "line 2: ", "YAML syntax error"),
        ("resort: {schedule: @daily}\n", "line 1: ", 'such as "@daily"'),
        ("load: a: b\n", "line 1: ", "mapping values are not allowed here"),
        ("load: !!python/object:os.system {}\n", "line 1: ", "could not determine a constructor"),
        ("load: a\n---\nload: b\n", "line 2: ", "expected a single document"),
        ("", "", "the file is empty"),
        ("# nothing\n", "", "the file is empty"),
        ("- load: sales\n", "", "the file is not a mapping"),
        ("load: sales\nload: sales\n", "line 2: load: stands twice, first on line 1", "Remove one of them"),
        ("[" * 5000, "", "nested"),
    ],
)
def test_what_is_not_right_yaml_is_refused_with_its_line(
    write: Write, text: str, line: str, said: str
) -> None:
    message = _message(write(text))
    assert f"\n  {line}" in message
    assert said in message


def test_a_file_that_is_not_text_is_refused(loads: Path) -> None:
    (loads / "x.yaml").write_bytes(b"load: \xff\xfe")
    assert "is not UTF-8 text" in _message(loads / "x.yaml")


def test_a_file_that_is_not_there_is_refused(loads: Path) -> None:
    assert "cannot be read (No such file or directory)" in _message(loads / "x.yaml")


def test_a_mapping_that_contains_itself_is_refused(write: Write, sales: dict[str, Any]) -> None:
    text = (
        write(sales).read_text()
        + "expectations: &all [{type: expect_column_to_exist, column: total, x: *all}]\n"
    )
    assert "expectations" in _message(write(text))


def test_the_error_says_which_load_and_file_it_is_about(write: Write, sales: dict[str, Any]) -> None:
    path = write(sales | {"resort": 1})
    with pytest.raises(DefinitionFileError) as refused:
        read_definition(path)
    assert (refused.value.path, refused.value.load, len(refused.value.problems)) == (path, "sales", 1)


def test_the_expectations_are_those_great_expectations_has() -> None:
    import importlib.util

    package = importlib.util.find_spec("great_expectations")
    assert package is not None
    assert package.submodule_search_locations
    core = Path(package.submodule_search_locations[0]) / "expectations" / "core"
    assert set(EXPECTATIONS) <= {path.stem for path in core.glob("expect_*.py")}


@pytest.mark.parametrize(
    ("settings", "field", "told"),
    [
        ({"hot_row": 5}, "lookups[0].settings.hot_row", "Did you mean 'hot_rows'?"),
        ({"block_rows": 5}, "lookups[0].settings.block_rows", "no setting of x-hybridjoin"),
        ({"hot_rows": 0.5}, "lookups[0].settings.hot_rows", "not a whole number"),
        ({"hot_rows": True}, "lookups[0].settings.hot_rows", "not a whole number"),
        ({"hot_rows": -1}, "lookups[0].settings.hot_rows", "not a whole number"),
    ],
)
def test_a_join_takes_only_its_own_settings(
    write: Write, sales: dict[str, Any], settings: dict[str, Any], field: str, told: str
) -> None:
    sales["lookups"][0] |= {"algorithm": "x-hybridjoin", "settings": settings}
    (line,) = _message(write(sales)).splitlines()[1:]
    assert f"{field} = " in line and told in line


def test_the_joins_are_those_of_the_registry() -> None:
    from freshet.config.algorithms import ALGORITHMS
    from freshet.joins.registry import join_type, names

    assert sorted(ALGORITHMS) == sorted(names())
    for name, settings in ALGORITHMS.items():
        assert sorted(settings) == sorted(join_type(name).known_settings)


def _message(path: Path) -> str:
    with pytest.raises(DefinitionError) as refused:
        read_definition(path)
    return str(refused.value)


def _only_line(path: Path, field: str) -> str:
    lines = _message(path).splitlines()[1:]
    assert len(lines) == 1, lines
    assert f"{field}: " in lines[0]
    return lines[0]
