"""A private MariaDB server for the tests: installed if need be, started on a free port, gone afterwards.

It has its own data folder, socket and port, and is no service of the system. Each worker of a parallel
test run starts its own, which takes about a second.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pymysql
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_POLICY = Path("/usr/sbin/policy-rc.d")
_START_SECONDS = 60
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    """A running server, shared by the tests of one worker."""
    folder = Path(tempfile.mkdtemp(prefix="freshet-mariadb-"))  # short, for a socket's path is limited
    server = MariaDB(folder, find_mariadbd())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def mariadb(mariadb_server: MariaDB, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database of the test's own, which is the connection `warehouse`."""
    database = mariadb_server.create_database()
    monkeypatch.setenv("FRESHET_CONN_WAREHOUSE", database.url)
    yield database
    mariadb_server.drop_database(database)


def find_mariadbd() -> str:
    """The server's program, installed first if it is missing and may be."""
    with (Path(tempfile.gettempdir()) / "freshet-mariadb-install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel workers must not install at the same time
        return _which() or _installed()


def _which() -> str | None:
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _installed() -> str:
    root = _as_root()
    if root is None or shutil.which("apt-get") is None:
        pytest.fail(
            "The tests with MariaDB need its server, which cannot be installed without apt-get and the "
            "right to use it. Install it with `sudo apt-get install mariadb-server` and run the tests again.",
            pytrace=False,
        )
    with _starting_nothing(root):
        failure = _apt_get(root, "install", "--no-install-recommends", "mariadb-server")
        if failure:
            _apt_get(root, "update")
            failure = _apt_get(root, "install", "--no-install-recommends", "mariadb-server")
    found = _which()
    if found is None:
        pytest.fail(f"MariaDB could not be installed with apt-get: {failure}", pytrace=False)
    return found


def _as_root() -> list[str] | None:
    """What runs a command as root, as in tools/lib.sh: nothing for root, else sudo if it asks nothing."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if allowed.returncode == 0 else None


@contextmanager
def _starting_nothing(root: Sequence[str]) -> Iterator[None]:
    """Keep the packages that are installed meanwhile from starting services."""
    if _POLICY.exists():
        yield
        return
    # Debian asks this program before it starts a service that was just installed; 101 says no.
    script = b"#!/bin/sh\nexit 101\n"
    subprocess.run([*root, "install", "-m", "755", "/dev/stdin", _POLICY], input=script, check=True)
    try:
        yield
    finally:
        subprocess.run([*root, "rm", "-f", _POLICY], check=True)


def _apt_get(root: Sequence[str], *arguments: str) -> str:
    """Run apt-get; the end of its output if it failed."""
    waiting = ["-o", "DPkg::Lock::Timeout=300"]  # another apt may be at work
    done = subprocess.run(
        [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q", *waiting, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-1000:]


@dataclass(frozen=True)
class Database:
    """One database with a user of its own."""

    port: int
    name: str
    user: str
    password: str

    @property
    def url(self) -> str:
        return f"mysql+pymysql://{self.user}:{self.password}@127.0.0.1:{self.port}/{self.name}"

    def run(self, *statements: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        """Run statements, the last one for each of the rows if there are any; what the last one gave."""
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=self.user,
            password=self.password,
            database=self.name,
            autocommit=True,
        )
        with connection, connection.cursor() as cursor:
            for statement in statements[:-1]:
                cursor.execute(statement)
            if rows:
                cursor.executemany(statements[-1], rows)
            else:
                cursor.execute(statements[-1])
            return list(cursor.fetchall())


@dataclass
class MariaDB:
    """A private server in a folder."""

    folder: Path
    program: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def start(self) -> None:
        """Make an empty data folder and start the server on it."""
        install = shutil.which("mariadb-install-db") or "/usr/bin/mariadb-install-db"
        subprocess.run(
            [
                install,
                "--no-defaults",
                *self._common(),
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            check=True,
            capture_output=True,
        )
        write_certificate(self.folder, "server")
        for _ in range(3):  # somebody may take the free port first
            self.port = _free_port()
            if self._start_on(self.port):
                return
        pytest.fail(f"MariaDB did not start: {(self.folder / 'log').read_text()[-2000:]}", pytrace=False)

    def _common(self) -> list[str]:
        user = [] if os.geteuid() else ["--user=root"]
        return [f"--datadir={self.folder / 'data'}", *user]

    def _start_on(self, port: int) -> bool:
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    self.program,
                    "--no-defaults",
                    *self._common(),
                    f"--socket={self.socket}",
                    f"--port={port}",
                    "--bind-address=127.0.0.1",
                    f"--pid-file={self.folder / 'pid'}",
                    "--local-infile=1",
                    f"--ssl-cert={self.folder / 'server.crt'}",
                    f"--ssl-key={self.folder / 'server.key'}",
                    "--innodb-buffer-pool-size=64M",
                    "--innodb-flush-log-at-trx-commit=0",
                    "--skip-name-resolve",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.run("SELECT 1")
            except pymysql.err.OperationalError:
                time.sleep(0.05)
            else:
                return True
        self.stop()
        return False

    def stop(self) -> None:
        """Stop the server, by its own process id."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the server's administrator; what the last one gave."""
        connection = pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def create_database(self) -> Database:
        name = f"shop_{secrets.token_hex(4)}"
        database = Database(self.port, name, user=name, password=f"secret-{secrets.token_hex(8)}")
        self.run(
            f"CREATE DATABASE {name} CHARACTER SET utf8mb4",
            f"CREATE USER {name}@'%' IDENTIFIED BY '{database.password}'",
            f"GRANT ALL ON {name}.* TO {name}@'%'",
        )
        return database

    def drop_database(self, database: Database) -> None:
        self.run(f"DROP DATABASE {database.name}", f"DROP USER {database.user}@'%'")


def write_certificate(folder: Path, name: str) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(private)
    path = folder / f"{name}.crt"
    path.write_bytes(certificate.public_bytes(pem))
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    # A test run that is killed must not leave a server behind.
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
