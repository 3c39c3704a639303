"""Master data in MariaDB: loaded in bulk, read in bounded memory, sorted as it is from SQLite."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from freshet.config import Definition, read_definition
from freshet.errors import MasterError
from freshet.home import PROJECT, LoadHome
from freshet.master.bulk import bulk_load
from freshet.master.connections import engine_for
from freshet.master.database import read_batches, table_schema
from freshet.master.manifest import read_manifest
from freshet.master.provision import provision
from freshet.master.snapshot import snapshot_path
from freshet.outofcore import LEAST_MEMORY
from freshet.sorting import sort
from freshet.workload.sales import SalesSize, products
from tests.mariadb import Database, MariaDB, write_certificate
from tests.masterdata import LOAD, load_with, snapshot_rows, sort_master

SMALL = SalesSize().scaled(sales=3000, products=20_000)
NOW = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(freshet_home: Path) -> Path:
    return freshet_home


def demo(connection: str | None) -> Definition:
    definition = read_definition(PROJECT / "include" / "loads" / "sales.yaml")
    lookup = definition.lookups[0].model_copy(update={"connection": connection})
    return definition.model_copy(update={"lookups": (lookup,)})


def rows_of(table: str, columns: list[str], key: str | None = None) -> list[tuple]:
    batches = read_batches(engine_for("warehouse"), table, columns, key)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def no_local_files(mariadb_server: MariaDB) -> Iterator[None]:
    mariadb_server.run("SET GLOBAL local_infile = 0")
    yield
    mariadb_server.run("SET GLOBAL local_infile = 1")


def test_the_demo_gives_the_same_snapshot_on_mariadb_as_on_sqlite(
    mariadb: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = []
    for connection in (None, "warehouse"):
        monkeypatch.setenv("FRESHET_HOME", str(tmp_path / str(connection)))
        provision(demo(connection), size=SMALL, now=NOW)
        assert [done.version for done in sort(demo(connection))] == [1]
        path = snapshot_path("sales", "product", 1)
        manifest = read_manifest(path)
        assert manifest.ranked_by == "stream"
        assert "ssword" not in (path / "manifest.json").read_text()
        contents.append((manifest.checksums, manifest.schema, manifest.page_rows, manifest.rows))
    assert contents[0] == contents[1], "every file has the same checksum"


def test_provisioning_loads_files_where_the_server_takes_them(
    mariadb: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    provision(demo("warehouse"), size=SMALL)
    assert "inserting in batches" not in caplog.text
    assert made_products() == products(SMALL)
    provision(demo("warehouse"), size=SMALL)
    assert made_products() == products(SMALL)
    assert [name for (name,) in mariadb.run("SHOW TABLES")] == ["products"]


@pytest.mark.usefixtures("no_local_files")
def test_provisioning_inserts_where_the_server_takes_no_files(
    mariadb: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    provision(demo("warehouse"), size=SMALL)
    assert "inserting in batches" in caplog.text
    assert made_products() == products(SMALL)


def made_products() -> pa.Table:
    columns = ["product_id", "surrogate_key", "supplier_id", "sale_price", "name"]
    batches = list(read_batches(engine_for("warehouse"), "products", columns, "product_id"))
    return pa.Table.from_batches(batches).sort_by("product_id").combine_chunks()


ODD = [
    "tab\there",
    "line\nbreak",
    "back\\slash",
    "\\N",
    "NULL",
    "",
    " spaces ",
    "'quoted\"",
    "日本 🐟",
    "\r",
    None,
]


@pytest.mark.parametrize("way", ["file", "insert"])
def test_bulk_load_keeps_odd_values(way: str, mariadb: Database, request: pytest.FixtureRequest) -> None:
    if way == "insert":
        request.getfixturevalue("no_local_files")
    mariadb.run(
        "CREATE TABLE odd (id INT, s VARCHAR(50), f DOUBLE, b BOOLEAN, d DATE, w DATETIME(6), "
        "i TIMESTAMP(6) NULL, p DECIMAL(20,4)) CHARACTER SET utf8mb4"
    )
    count = len(ODD)
    given = pa.table(
        {
            "id": pa.array(range(count), pa.int32()),
            "s": ODD,
            "f": [0.1, -1e300, None] + [2.5] * (count - 3),
            "b": [True, False, None] + [True] * (count - 3),
            "d": [date(2026, 2, 28), None] + [date(1970, 1, 1)] * (count - 2),
            "w": pa.array([datetime(2026, 1, 1, 0, 0, 0, 123456)] * count, pa.timestamp("us")),  # noqa: DTZ001
            "i": pa.array([datetime(2026, 7, 1, 12, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
            "p": pa.array(
                [Decimal("-12345.6789"), None] + [Decimal("0")] * (count - 2), pa.decimal128(20, 4)
            ),
        }
    )
    bulk_load(engine_for("warehouse", local_infile=True), "odd", given)
    back = pa.Table.from_batches(read_batches(engine_for("warehouse"), "odd", given.column_names))
    assert back.sort_by("id").combine_chunks() == given


@pytest.mark.parametrize(
    ("ids", "names"), [([1, 1], ["a", "b"]), ([1, 2], ["a", "much too long"]), ([1, 2], ["a", None])]
)
def test_bulk_load_refuses_rows_that_do_not_fit(mariadb: Database, ids: list[int], names: list[str]) -> None:
    mariadb.run("CREATE TABLE narrow (id INT PRIMARY KEY, name VARCHAR(5) NOT NULL)")
    engine = engine_for("warehouse", local_infile=True)
    with pytest.raises(MasterError, match="'narrow'"):
        bulk_load(engine, "narrow", pa.table({"id": ids, "name": names}))
    assert mariadb.run("SELECT count(*) FROM narrow") == [(0,)]


def test_every_column_type_comes_through(mariadb: Database) -> None:
    mariadb.run(
        """CREATE TABLE kinds (
            id BIGINT UNSIGNED PRIMARY KEY, a TINYINT, b TINYINT UNSIGNED, c TINYINT(1), d BIT(1), e SMALLINT,
            f SMALLINT UNSIGNED, g MEDIUMINT, h MEDIUMINT UNSIGNED, i INT, j INT UNSIGNED, k BIGINT,
            l BIGINT UNSIGNED, m DECIMAL(10,2), n DECIMAL(38,10), o FLOAT, p DOUBLE, q CHAR(5), r VARCHAR(20),
            s LONGTEXT, t ENUM('x','y'), u SET('p','q'), v DATE, w DATETIME, x DATETIME(6),
            y TIMESTAMP(3) NULL, z YEAR, aa BINARY(3), ab VARBINARY(9), ac LONGBLOB, ad JSON, ae UUID
        ) CHARACTER SET utf8mb4""",
        """INSERT INTO kinds VALUES (
            1, -128, 255, 1, b'1', -32768, 65535, -8388608, 16777215, -2147483648, 4294967295,
            -9223372036854775808, 18446744073709551615, -99999999.99, 1234567890123456789012345678.0123456789,
            0.5, 0.1, 'abc', '日本', 'long', 'y', 'p,q', '2026-02-28', '2026-02-28 23:59:59',
            '1000-01-01 00:00:00.000001', '2026-07-01 12:00:00.125', 2026, x'00ff01', '', x'00',
            '{"a": [1, null]}', '123e4567-e89b-12d3-a456-426614174000'
        )""",
        "INSERT INTO kinds (id) VALUES (2)",
    )
    columns = [name for (name, *_) in mariadb.run("DESCRIBE kinds")][1:]
    load = load_with("kinds", add=columns, connection="warehouse")
    zone = mariadb.run("SELECT TIMESTAMPDIFF(HOUR, UTC_TIMESTAMP(), NOW())")[0][0]
    sort(load)
    instant = datetime(2026, 7, 1, 12 - int(zone), 0, 0, 125_000, tzinfo=UTC)
    assert snapshot_rows(1, ["id", *columns]) == [
        (1, -128, 255, True, True, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, -(2**63),
         Decimal(2**64 - 1), Decimal("-99999999.99"), Decimal("1234567890123456789012345678.0123456789"),
         0.5, 0.1, "abc", "日本", "long", "y", "p,q", date(2026, 2, 28), datetime(2026, 2, 28, 23, 59, 59),  # noqa: DTZ001
         datetime(1000, 1, 1, 0, 0, 0, 1), instant, 2026, b"\x00\xff\x01", b"", b"\x00",  # noqa: DTZ001
         '{"a": [1, null]}', "123e4567-e89b-12d3-a456-426614174000"),
        (2, *[None] * len(columns)),
    ]  # fmt: skip


@pytest.mark.parametrize("declared", ["FLOAT", "FLOAT(10,2)", "FLOAT(20)", "DOUBLE"])
def test_floating_point_numbers_keep_all_their_digits(mariadb: Database, declared: str) -> None:
    values = [21666.66, 16777216, 0.1, -123456.7, None]
    mariadb.run(
        f"CREATE TABLE t (id INT, v {declared})",
        "INSERT INTO t VALUES (%s, %s)",
        rows=list(enumerate(values)),
    )
    (batch,) = read_batches(engine_for("warehouse"), "t", ["v"])
    assert batch.column("v") == pa.array(values, pa.float64() if declared == "DOUBLE" else pa.float32())


def test_a_timestamp_is_the_same_instant_in_every_time_zone_of_the_server(
    mariadb: Database, mariadb_server: MariaDB
) -> None:
    mariadb.run("CREATE TABLE t (id INT, i TIMESTAMP NULL, w DATETIME)")
    mariadb.run(
        "SET time_zone = '+05:00'", "INSERT INTO t VALUES (1, '2026-01-01 05:00:00', '2026-01-01 05:00:00')"
    )
    mariadb_server.run("SET GLOBAL time_zone = '-09:00'")
    try:
        read = rows_of("t", ["i", "w"])
    finally:
        mariadb_server.run("SET GLOBAL time_zone = 'SYSTEM'")
    assert read == [(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 5))]  # noqa: DTZ001


def test_dates_that_do_not_exist_are_refused_with_their_row(mariadb: Database) -> None:
    mariadb.run("CREATE TABLE t (id INT, d DATE)")
    mariadb.run("SET sql_mode = ''", "INSERT INTO t VALUES (1, '2026-01-01'), (7, '0000-00-00')")
    with pytest.raises(MasterError, match=r"column 'd' holds '0000-00-00' in the row with id = 7"):
        rows_of("t", ["id", "d"], "id")


def test_an_unsigned_key_is_read_as_far_as_stream_keys_go(mariadb: Database) -> None:
    mariadb.run("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY)", f"INSERT INTO t VALUES ({2**63 - 1})")
    assert rows_of("t", ["id"], "id") == [(2**63 - 1,)]
    mariadb.run(f"INSERT INTO t VALUES ({2**63})")
    with pytest.raises(MasterError, match=f"column 'id' holds {2**63}"):
        rows_of("t", ["id"], "id")


def test_string_keys_keep_case_and_accents(mariadb: Database) -> None:
    keys = ["ABC", "abd", "Äöü", "zzz ü", "日本", "", "a" * 200]
    mariadb.run(
        "CREATE TABLE items (id VARCHAR(255) PRIMARY KEY, price DECIMAL(10,2))",
        "INSERT INTO items VALUES (%s, 1.5)",
        rows=[(key,) for key in keys],
    )
    load = load_with(connection="warehouse", stream={"columns": {"order_id": "string", "id": "string"}})
    sort(load)
    assert [row[0] for row in snapshot_rows(1, ["id"])] == sorted(keys, key=str.encode)


def test_a_view_and_a_table_of_another_database_are_read(mariadb: Database) -> None:
    mariadb.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE VIEW only_b AS SELECT id, upper(v) AS v FROM t WHERE v = 'b'",
    )
    assert rows_of("only_b", ["id", "v"]) == [(2, "B")]
    assert rows_of(f"{mariadb.name}.t", ["v", "id"]) == [("a", 1), ("b", 2)]


def test_what_is_missing_or_unreadable_is_named(mariadb: Database) -> None:
    mariadb.run("CREATE TABLE items (id INT, opened TIME, place POINT)", "CREATE TABLE others (id INT)")
    engine = engine_for("warehouse")
    with pytest.raises(MasterError, match=r"no table 'itms' in 127\.0\.0\.1.*; it has items, others"):
        table_schema(engine, "itms", ["id"])
    with pytest.raises(MasterError, match="has no column nam; it has id, opened, place"):
        table_schema(engine, "items", ["id", "nam"])
    for column, declared in (("opened", "time"), ("place", "point")):
        with pytest.raises(
            MasterError, match=f"column '{column}' of table 'items' has the type '{declared}'"
        ):
            table_schema(engine, "items", ["id", column])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_read_that_is_cut_off_is_an_error_and_not_the_end_of_the_table(
    mariadb: Database, mariadb_server: MariaDB
) -> None:
    mariadb.run(
        "CREATE TABLE items (id INT PRIMARY KEY, price DECIMAL(10,2), v CHAR(200))",
        "INSERT INTO items SELECT seq, 1, repeat('x', 200) FROM seq_1_to_100000",
    )
    load = load_with(add=["price", "v"], connection="warehouse")
    killed: list[int] = []

    def kill(step: str, done: int, total: int | None) -> None:
        if step.startswith("reading") and not killed:
            find = f"SELECT id FROM information_schema.processlist WHERE user = '{mariadb.user}'"
            killed.extend(row[0] for row in mariadb_server.run(find))
            mariadb_server.run(f"KILL {killed[0]}")

    with pytest.raises(MasterError, match="reading table 'items' failed"):
        sort(load, progress=kill)
    gc.collect()  # the driver complains when it tidies up; not later, in another test
    assert len(killed) == 1
    assert list(LoadHome(LOAD).snapshots("item").glob("v*")) == []


def peak_growth(work: Callable[[], object]) -> int:
    """By how many bytes the memory of a fresh process grows at most while it does some work."""
    context = multiprocessing.get_context("fork")
    result = context.SimpleQueue()

    def measured() -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _peak()
        work()
        result.put(_peak() - before)

    process = context.Process(target=measured)
    process.start()
    process.join(timeout=300)
    assert process.exitcode == 0
    return int(result.get())


def _peak() -> int:
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024


def test_memory_is_bounded_whatever_the_size_of_the_table(mariadb: Database) -> None:
    mariadb.run(
        "CREATE TABLE items (id INT PRIMARY KEY, price DECIMAL(10,2), v VARCHAR(4000))",
        "INSERT INTO items SELECT seq, seq / 100, repeat(char(65 + seq % 26), 3000) FROM seq_1_to_100000",
        "CREATE VIEW few AS SELECT * FROM items WHERE id <= 10000",
    )
    large = 100_000 * 3000
    engine = engine_for("warehouse")

    def read(table: str) -> int:
        return sum(len(batch) for batch in read_batches(engine, table, ["id", "v"]))

    def sort_it(table: str) -> int:
        load = load_with(table, add=["price", "v"], connection="warehouse")
        return sort_master(load, None, LEAST_MEMORY)

    reading = 0.05 * large
    # Sorting reads as well, beside the database that it gives its memory to.
    for work, bound in ((read, reading), (sort_it, LEAST_MEMORY + reading)):
        few, all_ = (peak_growth(partial(work, table)) for table in ("few", "items"))
        assert all_ - few < bound
    assert [len(snapshot_rows(version, ["id"])) for version in (1, 2)] == [10_000, 100_000]


def test_tls_is_used_and_the_server_is_verified(
    mariadb: Database, mariadb_server: MariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = mariadb_server.folder / "server.crt"
    stranger = write_certificate(tmp_path, "stranger")
    for trusted in (authority, stranger):
        options = f"ssl_ca={trusted}&ssl_verify_cert=true&ssl_verify_identity=true"
        monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", f"{mariadb.url}?{options}")
        engine = engine_for("warehouse")
        if trusted == authority:
            with engine.connect() as connection:
                assert connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").all()[0][1]
        else:
            with pytest.raises(MasterError, match="certificate verify failed"):
                table_schema(engine, "items", ["id"])


def test_credentials_are_never_shown(
    mariadb: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    load = load_with(connection="warehouse")
    shown = []
    for url in (
        mariadb.url,  # right, but there is no such table
        mariadb.url.replace(mariadb.password, f"{mariadb.password}-wrong"),
        mariadb.url.replace(f"/{mariadb.name}", "/elsewhere"),
        mariadb.url.replace(f":{mariadb.port}/", ":1/"),
    ):
        monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", url)
        with pytest.raises(MasterError) as refused:
            sort(load)
        shown.append("".join(traceback.format_exception(refused.value)))
    mariadb.run("CREATE TABLE items (id INT, price DECIMAL(10,2))", "INSERT INTO items VALUES (1, 1)")
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", mariadb.url)
    sort(load)
    shown.append(caplog.text)
    shown.extend(
        path.read_text(errors="ignore") for path in LoadHome(LOAD).state.rglob("*") if path.is_file()
    )
    assert not [text for text in shown if mariadb.password in text]
