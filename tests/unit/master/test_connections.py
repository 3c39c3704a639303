"""A connection is found in the environment, in any of its forms, and never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from freshet.errors import MasterError
from freshet.home import embedded_database
from freshet.master.connections import database_errors, describe, engine_for

SECRET = "s3cr3t/p@ss"
QUOTED = "s3cr3t%2Fp%40ss"

FORMS = [
    f"mysql+pymysql://ann:{QUOTED}@db.example:3307/shop",
    f"mysql://ann:{QUOTED}@db.example:3307/shop",
    f"mariadb://ann:{QUOTED}@db.example:3307/shop?charset=utf8mb4",
    f"mysql://ann:{QUOTED}@db.example:3307/shop?__extra__=%7B%22charset%22%3A+%22utf8mb4%22%2C+%22x%22%3A+1%7D",
    json.dumps(
        {
            "conn_type": "mysql", "login": "ann", "password": SECRET, "host": "db.example", "port": 3307,
            "schema": "shop",
        }
    ),
    json.dumps(
        {
            "conn_type": "mysql", "login": "ann", "password": SECRET, "host": "db.example", "port": "3307",
            "schema": "shop", "extra": '{"cursor": "SSCursor", "charset": "utf8mb4"}',
        }
    ),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_names_the_same_database(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", form)
    url = engine_for("warehouse").url
    assert url.drivername == "mysql+pymysql"
    assert (url.username, url.password, url.host, url.port, url.database) == (
        *("ann", SECRET, "db.example", 3307, "shop"),
    )
    assert dict(url.query) == {"charset": "utf8mb4"}
    assert describe(url) == "db.example:3307/shop"


def test_airflows_variable_is_used_when_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", FORMS[1])
    assert engine_for("warehouse").url.host == "db.example"
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", "mysql://other.example/shop")
    assert engine_for("warehouse").url.host == "other.example"


@pytest.mark.parametrize(
    "form", ["sqlite:///{}", "sqlite://{quoted}", '{{"conn_type": "sqlite", "host": "{}"}}']
)
def test_a_sqlite_database_can_be_named(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Other.db"
    monkeypatch.setenv("FRESHET_CONN_FILE", form.format(path, quoted=str(path).replace("/", "%2F")))
    assert engine_for("file").url.database == str(path)


def test_without_a_connection_the_embedded_database_is_used(home: Path) -> None:
    engine = engine_for(None)
    with engine.connect() as connection:
        connection.execute(text("create table t (a int)"))
    assert embedded_database().exists()
    assert embedded_database().parent == home


def test_a_connection_that_is_not_configured_names_the_variable_to_set() -> None:
    with pytest.raises(
        MasterError, match="'warehouse' is not configured: set FRESHET_CONN_WAREHOUSE to a URL"
    ):
        engine_for("warehouse")


@pytest.mark.parametrize(
    "value",
    [
        f"{{'password': '{SECRET}'}}",
        f'{{"login": "ann", "password": "{SECRET}"}}',
        f"mysql://ann:{SECRET}@host:port/shop",
        f"mysql+pymysql://ann:{SECRET}",
        f"postgresql://ann:{SECRET}@host/shop",
        f"ann:{SECRET}",
        f"mysql://ann:{SECRET}[@host/shop",
        "sqlite://",
    ],
)
def test_what_is_no_connection_is_refused_without_being_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", value)
    with pytest.raises(MasterError, match="FRESHET_CONN_WAREHOUSE") as refused:
        engine_for("warehouse")
    assert "s3cr3t" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_a_database_that_cannot_be_reached_is_named_without_credentials(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", f"mysql://ann:{QUOTED}@127.0.0.1:1/shop")
    engine = engine_for("warehouse")
    caplog.set_level("DEBUG")
    with (
        pytest.raises(
            MasterError, match=r"reading failed at 127\.0\.0\.1:1/shop: .*Can't connect"
        ) as refused,
        database_errors(engine, "reading"),
        engine.connect(),
    ):
        pass
    for shown in (str(refused.value), repr(engine), repr(engine.url), caplog.text):
        assert "s3cr3t" not in shown


def test_a_short_user_name_is_hidden_without_hurting_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", "mysql://n:x1y2@db.example/shop")
    engine = engine_for("warehouse")
    said = "Access denied for user 'n'@'db.example' (using password x1y2): connection refused"
    with pytest.raises(MasterError) as refused, database_errors(engine, "reading"):
        raise OperationalError("select 1", None, Exception(said))
    assert str(refused.value).endswith(
        "Access denied for user '***'@'db.example' (using password ***): connection refused"
    )


PLAIN = "mysql://ann:x@db.example/shop"
CA = {"ssl_ca": "/ca.pem", "ssl_verify_cert": True}


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({}, {}),
        ({"ssl": None, "cursor": "SSCursor"}, {}),
        ({"ssl": {"ca": "/ca.pem"}}, CA),
        ({"ssl": '{"ca": "/ca.pem"}'}, CA),
        ({"ssl_ca": "/ca.pem"}, CA),
        ({"ssl_ca": "/ca.pem", "ssl_verify_cert": False}, {**CA, "ssl_verify_cert": False}),
        (
            {"ssl": {"ca": "/ca.pem", "cert": "/c.pem", "key": "/k.pem", "check_hostname": True}},
            {**CA, "ssl_cert": "/c.pem", "ssl_key": "/k.pem", "ssl_verify_identity": True},
        ),
        ({"ssl": {"ca": "/ca.pem"}, "ssl_mode": "verify_identity"}, {**CA, "ssl_verify_identity": True}),
        ({"ssl_mode": "VERIFY_CA"}, {"ssl_verify_cert": True}),
        ({"ssl_ca": "/ca.pem", "ssl_verify_cert": False, "ssl_mode": "VERIFY_CA"}, CA),
        ({"ssl_mode": "REQUIRED"}, {"ssl": {"verify_mode": False}}),
        ({"ssl_mode": "PREFERRED"}, {}),
        ({"ssl_mode": "DISABLED", "ssl_ca": "/ca.pem"}, {"ssl_disabled": True}),
    ],
)
def test_what_an_airflow_connection_says_of_tls_reaches_the_driver(
    extra: dict[str, Any], told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def connect(**arguments: Any) -> None:
        given.update(arguments)
        raise pymysql.err.OperationalError("enough")

    monkeypatch.setattr(pymysql, "connect", connect)
    in_json = {"conn_type": "mysql", "host": "h", "login": "ann", "password": "x", "schema": "shop"}
    for form in (json.dumps({**in_json, "extra": extra}), f"{PLAIN}?__extra__={quote(json.dumps(extra))}"):
        given.clear()
        monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", form)
        with pytest.raises(OperationalError):
            engine_for("warehouse").connect()
        assert {name: value for name, value in given.items() if name.startswith("ssl")} == told


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"ssl": True}, "an ssl that is not a mapping of ca, cert, key, check_hostname"),
        ({"ssl": "s3cr3t"}, "an ssl that is not a mapping"),
        ({"ssl": {"ca": "/ca.pem", "cipher": "AES"}}, "an ssl that is not a mapping"),
        ({"ssl_mode": "STRICT"}, "an ssl_mode that is none of DISABLED, PREFERRED, REQUIRED, VERIFY_CA"),
        ({"ssl-mode": "REQUIRED"}, "the TLS option ssl-mode, which is not known: use ssl_ca"),
        ({"ssl_cipher": "AES"}, "the TLS option ssl_cipher"),
        ({"ssl_mode": "VERIFY_IDENTITY"}, "names no CA: add ssl_ca"),
        ({"ssl_verify_identity": True}, "names no CA: add ssl_ca"),
    ],
)
def test_tls_that_cannot_be_as_asked_for_is_refused(
    extra: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", f"{PLAIN}?__extra__={quote(json.dumps(extra))}")
    with pytest.raises(MasterError, match=f"FRESHET_CONN_WAREHOUSE .*{told}") as refused:
        engine_for("warehouse")
    assert "s3cr3t" not in str(refused.value)
