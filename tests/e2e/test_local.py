"""What keeps the local Airflow from starting: one sentence, and a non-zero exit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from freshet.errors import FreshetError
from freshet.orchestration import local


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def command(name: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FRESHET_HOME": str(home), **variables}
    arguments = [sys.executable, "-m", "freshet.orchestration.local", name]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True)


def test_a_taken_port_is_one_sentence_and_an_exit_code(tmp_path: Path, taken_port: int) -> None:
    done = command("up", tmp_path, FRESHET_AIRFLOW_PORT=str(taken_port))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"port {taken_port}" in done.stderr
    assert "Set FRESHET_AIRFLOW_PORT to a free port" in done.stderr


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    done = command("up", tmp_path, FRESHET_AIRFLOW_PORT="http")
    assert done.returncode == 1
    assert "'http'" in done.stderr


def test_without_a_wish_a_free_port_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRESHET_AIRFLOW_PORT", raising=False)
    with socket.socket() as server:
        server.bind(("127.0.0.1", local.choose_port()))


def test_the_last_port_is_chosen_again_while_it_is_free_and_no_other_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, taken_port: int
) -> None:
    monkeypatch.delenv("FRESHET_AIRFLOW_PORT", raising=False)
    last, other = local.choose_port(), local.choose_port()
    assert local.choose_port(last=last) == last
    assert local.choose_port(last=taken_port) != taken_port
    assert local.choose_port(last=99_999) < 65_536
    monkeypatch.setenv("FRESHET_AIRFLOW_PORT", str(other))
    assert local.choose_port(last=last) == other


def test_a_full_disk_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "FREE_BYTES_NEEDED", 1 << 60)
    with pytest.raises(FreshetError, match=r"are free on the disk of .* Free some space"):
        local.LocalAirflow(tmp_path).start(print)


def test_stopping_what_does_not_run_is_no_error(tmp_path: Path) -> None:
    done = command("down", tmp_path)
    assert done.returncode == 0
    assert "not running" in done.stderr


def test_status_says_whether_it_runs(tmp_path: Path) -> None:
    done = command("status", tmp_path)
    assert done.returncode == 3
    assert "not running" in done.stdout


def test_a_process_that_took_over_an_old_id_is_not_ours() -> None:
    me = local.Leader.of(os.getpid())
    assert me.session_is_ours()
    assert not replace(me, started=0).session_is_ours()
    assert not replace(me, boot="another").session_is_ours()


def test_settings_of_another_airflow_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "someone else's")
    monkeypatch.setenv("AIRFLOW_CONFIG", "/etc/airflow/airflow.cfg")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "mysql://user@host/db")
    settings = local.LocalAirflow(tmp_path).environment(8080)
    assert settings["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW__CORE__FERNET_KEY" not in settings
    assert "AIRFLOW_CONFIG" not in settings
    assert settings["AIRFLOW_CONN_WAREHOUSE"] == "mysql://user@host/db"


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"NO_PROXY": "a.example"}, "a.example,127.0.0.1,localhost"),
        ({"no_proxy": "a.example, .b.example"}, "a.example, .b.example,127.0.0.1,localhost"),
        ({"NO_PROXY": "*", "no_proxy": "*"}, "*"),
    ],
    ids=["unset", "capitals", "small letters", "all"],
)
def test_its_parts_reach_each_other_without_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], hosts: str
) -> None:
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"http_proxy": "http://proxy.example:3128", **given}.items():
        monkeypatch.setenv(name, value)
    settings = local.LocalAirflow(tmp_path).environment(8080)
    assert settings["http_proxy"] == "http://proxy.example:3128"
    assert settings["NO_PROXY"] == settings["no_proxy"] == hosts
    monkeypatch.setenv("no_proxy", settings["no_proxy"])
    assert urllib.request.proxy_bypass("127.0.0.1:8080")
    assert urllib.request.proxy_bypass("localhost")


def test_it_listens_on_this_machine_only(tmp_path: Path) -> None:
    settings = local.LocalAirflow(tmp_path).environment(8080)
    assert settings["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert settings["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:8080"
    assert "--skip-serve-logs" in local.COMPONENTS["scheduler"]
