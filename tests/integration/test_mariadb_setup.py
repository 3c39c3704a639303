"""The tests' own MariaDB: installed only by those who may, and gone when they are done."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from tests import mariadb as setup
from tests.mariadb import MariaDB


def test_without_the_right_to_install_it_the_tests_fail_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_which", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(pytest.fail.Exception, match="sudo apt-get install mariadb-server"):
        setup.find_mariadbd()


def test_a_failed_installation_fails_the_tests_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_which", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(setup, "_apt_get", lambda *arguments: "E: no network")
    with pytest.raises(pytest.fail.Exception, match="could not be installed with apt-get: E: no network"):
        setup.find_mariadbd()


def test_a_stopped_server_leaves_no_process_behind() -> None:
    with tempfile.TemporaryDirectory(prefix="freshet-mariadb-") as folder:
        server = MariaDB(Path(folder), setup.find_mariadbd())
        server.start()
        process = server.process
        assert process is not None
        assert server.run("SELECT 1") == [(1,)]
        server.stop()
        assert process.returncode == 0
        found = subprocess.run(["pgrep", "-f", folder], capture_output=True, check=False)
        assert found.stdout == b""
