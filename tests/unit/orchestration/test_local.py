"""Starting and stopping the local Airflow, with a stand-in for Airflow that starts at once.

Whatever happens while it starts, no process may be left that `down` does not find.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from freshet.errors import FreshetError
from freshet.orchestration import demo, local
from freshet.orchestration.local import COMPONENTS, Leader, LocalAirflow

# Found before the real one, as `python -m airflow` looks into PYTHONPATH first. Every process notes its id,
# and is healthy from then on; the scheduler has a worker, which outlives it.
STAND_IN = """
import http.server, json, os, subprocess, sys, time
from pathlib import Path

home, name = Path(os.environ["AIRFLOW_HOME"]), sys.argv[1]
if name == "db":
    time.sleep(float(os.environ.get("STAND_IN_MIGRATES", 0)))
    (home / "airflow.db").touch()
    sys.exit()

def note(pid, name):
    with (home / "launched").open("a") as launched:
        launched.write(f"{pid} {name}\\n")

class Api(http.server.BaseHTTPRequestHandler):
    def answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        noted = (home / "launched").read_text().split()
        well = "STAND_IN_IS_ILL" not in os.environ
        self.answer({
            name.replace("-", "_"): {"status": "healthy" if well and name in noted else "unhealthy"}
            for name in ("scheduler", "dag-processor")
        })
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"access_token": "t"})
    def log_message(self, *_):
        pass

if name == "scheduler":
    sleeper = [sys.executable, "-c", "import time; time.sleep(120)"]
    note(subprocess.Popen(sleeper, process_group=0).pid, "worker")
note(os.getpid(), name)
if name == "api-server":
    address = ("127.0.0.1", int(os.environ["AIRFLOW__API__PORT"]))
    http.server.ThreadingHTTPServer(address, Api).serve_forever()
time.sleep(120)
"""


class Bench:
    """A FRESHET_HOME whose Airflow is the stand-in."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.airflow = LocalAirflow()

    def launched(self) -> list[tuple[int, str]]:
        """The id and name of every process that any start has launched."""
        notes = self.airflow.home / "launched"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [(int(pid), name) for pid, name in (line.split() for line in lines)]

    def living(self) -> list[str]:
        return sorted(name for pid, name in self.launched() if is_alive(pid))

    def pid(self, component: str) -> int:
        return next(pid for pid, name in self.launched() if name == component)

    def begin(self, command: str, **variables: str) -> subprocess.Popen[str]:
        """`make up`, `make down` or `make demo`, under way."""
        return subprocess.Popen(
            [sys.executable, "-m", "freshet.orchestration.local", command],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str) -> tuple[int, str]:
        """A command's exit code and what it said."""
        return done(self.begin(command))


def done(process: subprocess.Popen[str]) -> tuple[int, str]:
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    package = tmp_path / "stand-in" / "airflow"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=os.pathsep)
    monkeypatch.setenv("FRESHET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FRESHET_AIRFLOW_PORT", raising=False)
    bench = Bench(tmp_path / "home")
    try:
        yield bench
    finally:
        for pid, _ in bench.launched():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


ALL = sorted([*COMPONENTS, "worker"])


def test_two_starts_at_once_start_one_airflow(bench: Bench) -> None:
    first, second = (bench.begin("up", STAND_IN_MIGRATES="1") for _ in range(2))
    ends = [done(first), done(second)]
    assert [code for code, _ in ends] == [0, 0], ends
    assert bench.living() == ALL
    assert sum("Airflow is already running" in said for _, said in ends) == 1
    assert bench.run("down")[0] == 0
    assert bench.living() == []


def test_down_during_a_start_stops_what_is_being_started(bench: Bench) -> None:
    up = bench.begin("up", STAND_IN_MIGRATES="2")
    wait_until((bench.airflow.home / "running.lock").exists)
    code, said = bench.run("down")
    assert code == 0
    assert "waiting for it" in said
    assert done(up)[0] == 0
    assert len(bench.launched()) == len(ALL)
    assert bench.living() == []
    assert not bench.airflow.is_running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
@pytest.mark.parametrize("times", [1, 5], ids=["once", "again and again"])
def test_an_interrupted_start_leaves_no_process(bench: Bench, number: signal.Signals, times: int) -> None:
    up = bench.begin("up", STAND_IN_IS_ILL="1")
    wait_until(lambda: "scheduler" in bench.living())
    for _ in range(times):
        up.send_signal(number)
        time.sleep(0.02)
    code, said = done(up)
    assert code == 130, said
    assert "scheduler" in [name for _, name in bench.launched()]
    assert bench.living() == []


def test_ctrl_c_in_the_moment_of_a_launch_leaves_no_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = LocalAirflow._launch

    def interrupted(self: LocalAirflow, name: str, environment: Mapping[str, str]) -> Leader:
        leader = launch(self, name, environment)
        if name == "dag-processor":
            wait_until(lambda: {"scheduler", "dag-processor"} <= set(bench.living()))
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return leader

    monkeypatch.setattr(LocalAirflow, "_launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.airflow.start(print)
    assert len(bench.launched()) >= 3
    assert bench.living() == []


def test_a_disk_that_fills_up_between_two_launches_leaves_no_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        wait_until(lambda: "scheduler" in bench.living())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalAirflow, "_write_state", full)
    with pytest.raises(OSError, match="No space left"):
        bench.airflow.start(print)
    assert bench.launched()
    assert bench.living() == []


def test_down_finds_what_a_killed_start_has_launched(bench: Bench) -> None:
    up = bench.begin("up", STAND_IN_IS_ILL="1")
    wait_until(lambda: bench.living() == ALL)
    up.kill()
    done(up)
    assert bench.living() == ALL
    assert bench.run("down")[0] == 0
    assert bench.living() == []


def test_down_ends_everything_although_the_clock_was_set_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.airflow.start(print)
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) - 3600)
    assert bench.airflow.is_running()
    bench.airflow.stop(print)
    assert bench.living() == []


def test_a_second_start_says_that_it_found_airflow_running(bench: Bench) -> None:
    assert bench.airflow.start(print)
    assert not bench.airflow.start(print)
    assert len(bench.launched()) == len(ALL)
    bench.airflow.stop(print)


def test_the_demo_tells_the_address_that_the_next_start_has(bench: Bench) -> None:
    with demo._running(bench.airflow, demo.Screen()):
        url = bench.airflow.url
    told = dict(demo.places(bench.airflow, running=False))["Airflow"]
    assert f"`make up` starts it again, with these runs: {url} (user admin, password " in told
    assert bench.airflow.start(print)
    assert bench.airflow.url == url
    bench.airflow.stop(print)


def test_a_demo_does_not_stop_the_airflow_that_somebody_else_was_starting(bench: Bench) -> None:
    up = bench.begin("up", STAND_IN_MIGRATES="1")
    wait_until((bench.airflow.home / "running.lock").exists)
    with demo._running(bench.airflow, demo.Screen()) as is_ours:
        assert not is_ours
    assert done(up)[0] == 0
    assert bench.living() == ALL
    bench.airflow.stop(print)


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("command", ["up", "demo"])
def test_an_airflow_without_a_component_is_one_sentence_and_an_exit_code(
    bench: Bench, command: str, component: str
) -> None:
    bench.airflow.start(print)
    os.kill(bench.pid(component), signal.SIGKILL)
    wait_until(lambda: component not in bench.living())
    code, said = bench.run(command)
    assert code == 1
    (line,) = said.splitlines()
    assert f"without its {component}" in line
    assert line.endswith("run `make down`, then `make up`.")
    assert bench.run("down")[0] == 0
    assert bench.living() == []


def test_up_waits_for_an_airflow_that_is_not_healthy_yet(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = bench.begin("up", STAND_IN_IS_ILL="1")
    wait_until(lambda: bench.living() == ALL)
    up.kill()
    done(up)
    monkeypatch.setattr(local, "SECONDS_TO_START", 1.0)
    with pytest.raises(FreshetError, match=r"not healthy within 1 s.*`make down`, then `make up`"):
        bench.airflow.start(print)
    assert bench.living() == ALL, "somebody else's Airflow is not stopped"
    bench.airflow.stop(print)


def test_the_password_is_there_before_airflow_is_and_for_nobody_else(bench: Bench) -> None:
    """Airflow prints a password that it makes up itself."""
    up = bench.begin("up", STAND_IN_MIGRATES="1")
    wait_until(lambda: bench.living() == ALL)
    password = bench.airflow.password()
    assert up.wait(60) == 0
    assert len(password) >= 12
    assert bench.airflow.passwords_file.stat().st_mode & 0o777 == 0o600
    assert bench.run("down")[0] == 0
    bench.airflow.start(print)
    assert bench.airflow.password() == password
    bench.airflow.passwords_file.unlink()
    code, told = bench.run("status")
    assert (code, told.count("\n")) == (1, 1)
    assert "passwords.json is gone: run `make down`, then `make up`" in told
    bench.airflow.stop(print)
