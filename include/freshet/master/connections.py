"""Where a lookup's database is, and how to reach it without ever showing its credentials."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from freshet.errors import MasterError
from freshet.home import embedded_database
from freshet.queries import query

MYSQL = "mysql"
SQLITE = "sqlite"

_DIALECTS = {"mysql": MYSQL, "mariadb": MYSQL, "sqlite": SQLITE}
# What an Airflow connection's extras may tell the driver; anything else there is Airflow's own.
_TLS_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
_TLS_FLAGS = ("ssl_verify_cert", "ssl_verify_identity")
_TLS_MODE = "ssl_mode"
_TLS_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_TLS_OPTIONS = (*_TLS_FILES, *_TLS_FLAGS, _TLS_MODE)
_TLS_PARTS = {"ca": "ssl_ca", "cert": "ssl_cert", "key": "ssl_key", "check_hostname": "ssl_verify_identity"}
"""What Airflow's extra `ssl` may hold, and the options that say the same."""
_MYSQL_OPTIONS = ("charset", "unix_socket", *_TLS_OPTIONS)
_CONNECT_SECONDS = 10


def engine_for(connection: str | None, *, local_infile: bool = False) -> Engine:
    """The database of a connection id; the embedded SQLite database when none is named.

    A connection is the variable FRESHET_CONN_<ID>, or Airflow's AIRFLOW_CONN_<ID>: a SQLAlchemy URL, an
    Airflow URI or Airflow's JSON form. `local_infile` lets the server ask for the file that is being loaded.
    """
    url = _embedded_url() if connection is None else _connection_url(connection)
    if url.get_backend_name() == SQLITE:
        engine = create_engine(url, poolclass=NullPool)
        event.listen(engine, "connect", _prepare_sqlite)
        return engine
    arguments = {
        "connect_timeout": _CONNECT_SECONDS,
        "init_command": query("mysql/session"),
        "local_infile": local_infile,
        **_tls(url),
    }
    if "charset" not in url.query:
        url = url.update_query_dict({"charset": "utf8mb4"})
    # SQLAlchemy would turn the files into another argument, which the flags make the driver forget.
    plain = url.difference_update_query(_TLS_OPTIONS)
    return create_engine(plain, poolclass=NullPool, connect_args=arguments)


def _tls(url: URL) -> dict[str, Any]:
    """What the driver is told about TLS. Without any of it, it uses TLS where the server has it."""
    mode = url.query.get(_TLS_MODE)
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    files = {name: url.query[name] for name in _TLS_FILES if name in url.query}
    flags = {name: _is_true(url.query[name]) for name in _TLS_FLAGS if name in url.query}
    if mode in ("VERIFY_CA", "VERIFY_IDENTITY"):
        flags["ssl_verify_cert"] = True
    elif "ssl_ca" in files:  # the driver by itself would take a CA and not look at it
        flags.setdefault("ssl_verify_cert", True)
    if mode == "VERIFY_IDENTITY":
        flags["ssl_verify_identity"] = True
    required = {"ssl": {"verify_mode": False}} if mode == "REQUIRED" else {}
    return {**required, **files, **flags}


def _is_true(value: object) -> bool:
    return str(value).lower() in ("1", "true", "yes", "on")


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # Wait for a writer instead of failing at once.
    connection.execute(query("sqlite/session"))


@contextmanager
def database_errors(engine: Engine, doing: str) -> Iterator[None]:
    """Turns what a database reports into an error for the user, without credentials."""
    try:
        yield
    except SQLAlchemyError as error:
        reported = _scrubbed(error, engine.url)
        raise MasterError(f"{doing} failed at {describe(engine.url)}: {reported}") from None


def describe(url: URL) -> str:
    """Which database this is, without credentials."""
    if url.get_backend_name() == SQLITE:
        return f"SQLite {url.database}"
    return f"{url.host or 'localhost'}:{url.port or 3306}/{url.database or ''}"


def _scrubbed(error: SQLAlchemyError, url: URL) -> str:
    text = str(getattr(error, "orig", None) or error)
    if url.password:
        text = text.replace(str(url.password), "***")
    # As a word: a user called u is not in every second word of what the server says.
    return re.sub(rf"\b{re.escape(url.username)}\b", "***", text) if url.username else text


def _embedded_url() -> URL:
    path = embedded_database()
    path.parent.mkdir(parents=True, exist_ok=True)
    return URL.create(SQLITE, database=str(path))


def _connection_url(connection: str) -> URL:
    variables = [f"{prefix}_CONN_{connection.upper()}" for prefix in ("FRESHET", "AIRFLOW")]
    for variable in variables:
        value = os.environ.get(variable, "").strip()
        if value:
            return _parse(variable, value)
    raise MasterError(
        f"connection {connection!r} is not configured: set {variables[0]} to a URL such as "
        "mysql+pymysql://USER:PASSWORD@HOST:3306/DATABASE, or define the connection in Airflow"
    )


def _parse(variable: str, value: str) -> URL:
    try:
        fields = _from_json(value) if value.startswith("{") else _from_uri(value)
        url = _to_url(variable, **fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        # The value holds a password: neither it nor the parser's complaint is shown.
        raise MasterError(
            f"{variable} is not a database connection: write "
            "mysql+pymysql://USER:PASSWORD@HOST:3306/DATABASE (special characters in the password "
            "percent-encoded) or sqlite:////ABSOLUTE/PATH"
        ) from None
    return url


def _from_uri(value: str) -> dict[str, Any]:
    """The parts of a SQLAlchemy URL or an Airflow URI: the two differ in nothing that matters here."""
    parts = urlsplit(value)
    # A SQLite path may stand in the host's place, and `hostname` would turn it into lower case.
    host = parts.netloc.rpartition("@")[2] if parts.scheme == SQLITE else parts.hostname
    options = dict(parse_qsl(parts.query))
    extra = options.pop("__extra__", None)
    if extra:
        options.update(json.loads(extra))
    return {
        "kind": parts.scheme,
        "host": unquote(host) if host else None,
        "port": parts.port,
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "database": unquote(parts.path[1:]) or None,
        "options": options,
    }


def _from_json(value: str) -> dict[str, Any]:
    content = json.loads(value)
    extra = content.get("extra") or {}
    options = json.loads(extra) if isinstance(extra, str) else extra
    return {
        "kind": content["conn_type"],
        "host": content.get("host") or None,
        "port": int(content["port"]) if content.get("port") else None,
        "user": content.get("login") or None,
        "password": content.get("password") or None,
        "database": content.get("schema") or None,
        "options": options,
    }


def _to_url(
    variable: str,
    *,
    kind: str,
    host: str | None,
    port: int | None,
    user: str | None,
    password: str | None,
    database: str | None,
    options: Mapping[str, Any],
) -> URL:
    dialect = _DIALECTS.get(kind.split("+")[0].lower())
    if dialect == SQLITE:
        path = database or host  # Airflow's SQLite connections have the path as their host
        if not path:
            raise ValueError("no path")
        return URL.create(SQLITE, database=path)
    if dialect != MYSQL:
        kinds = ", ".join(sorted(_DIALECTS))
        raise MasterError(f"{variable} names a database of kind {kind!r}; supported are {kinds}")
    if not database:
        raise MasterError(
            f"{variable} names no database: add it as mysql+pymysql://USER:PASSWORD@HOST:3306/DATABASE"
        )
    options = _tls_options(variable, options)
    chosen = {name: str(options[name]) for name in _MYSQL_OPTIONS if options.get(name) is not None}
    return URL.create("mysql+pymysql", user, password, host, port, database, chosen)


def _tls_options(variable: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with those of `ssl` among them; refused where TLS would be another than was asked for."""
    known = {name: value for name, value in options.items() if name != "ssl"}
    known = {**_tls_parts(variable, options.get("ssl")), **known}
    for name in known:
        if name.lower().startswith(("ssl", "tls")) and name not in _TLS_OPTIONS:
            raise MasterError(
                f"{variable} has the TLS option {name}, which is not known: use {', '.join(_TLS_OPTIONS)}"
            )
    mode = known.get(_TLS_MODE)
    if mode is not None:
        known[_TLS_MODE] = mode = str(mode).upper()
        if mode not in _TLS_MODES:
            raise MasterError(f"{variable} has an {_TLS_MODE} that is none of {', '.join(_TLS_MODES)}")
    by_name = mode == "VERIFY_IDENTITY" or _is_true(known.get("ssl_verify_identity"))
    if by_name and mode != "DISABLED" and not known.get("ssl_ca"):
        # The driver compares names only when it has a CA, and says nothing when it has none.
        raise MasterError(f"{variable} wants the server's name verified and names no CA: add ssl_ca")
    return known


def _tls_parts(variable: str, ssl: Any) -> dict[str, Any]:
    """The options in Airflow's extra `ssl`, a mapping or the JSON text of one."""
    if ssl is None or ssl == "":
        return {}
    try:
        parts = json.loads(ssl) if isinstance(ssl, str) else ssl
    except ValueError:
        parts = None
    if not isinstance(parts, dict) or not parts.keys() <= _TLS_PARTS.keys():
        raise MasterError(
            f"{variable} has an ssl that is not a mapping of {', '.join(_TLS_PARTS)}: write "
            '{"ssl": {"ca": "/path/to/ca.pem"}}, or use ' + ", ".join(_TLS_OPTIONS)
        )
    return {_TLS_PARTS[name]: value for name, value in parts.items()}
