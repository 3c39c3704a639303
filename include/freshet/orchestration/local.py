"""A private Airflow on this machine, under FRESHET_HOME/airflow, for `make up`, `make down` and `make demo`.

It listens on 127.0.0.1 only, uses SQLite and the LocalExecutor, and has a session for each component, so
that `down` can prove that no process is left. It is for development and for the demo; see docs/airflow.md for
running Freshet's DAGs in an Airflow of your own.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from freshet.errors import FreshetError
from freshet.home import PROJECT, for_people, freshet_home, loads_folder
from freshet.orchestration import sessions
from freshet.orchestration.api import AirflowClient
from freshet.orchestration.pools import SPARK_POOL, SPARK_POOL_DESCRIPTION, SPARK_POOL_SLOTS

HOST = "127.0.0.1"
USER = "admin"
# In the order in which they are stopped: tasks report their end to the server, so it goes last. There is no
# triggerer, as no task of Freshet defers. Log servers would listen on every interface; the files are local.
COMPONENTS = {
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "api-server": ["api-server"],
}
SECONDS_TO_START = 180.0
SECONDS_TO_STOP = {"scheduler": 20.0, "dag-processor": 10.0, "api-server": 10.0}
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
FREE_BYTES_NEEDED = 1_000_000_000

Say = Callable[[str], None]


@dataclass(frozen=True)
class Leader:
    """The process that leads a component's session; its start tells it from others that had or get its id."""

    pid: int
    started: int | None
    """In ticks since the boot; None when the process was gone before anybody looked."""
    boot: str

    @classmethod
    def of(cls, pid: int) -> Leader:
        """The leader that this process is."""
        return cls(pid, sessions.start_ticks(pid), sessions.boot())

    def session_is_ours(self) -> bool:
        """Whether the session can still be ours: its leader is the same process, or is gone."""
        return self.boot == sessions.boot() and sessions.start_ticks(self.pid) in (self.started, None)

    def lives(self) -> bool:
        """Whether the process itself is there, not only what it has started."""
        try:
            is_dead = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        return not is_dead and self.session_is_ours()


class LocalAirflow:
    """The Airflow of one FRESHET_HOME."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or freshet_home() / "airflow"

    @property
    def state_file(self) -> Path:
        return self.home / "running.json"

    @property
    def port_file(self) -> Path:
        return self.home / "port"

    @property
    def passwords_file(self) -> Path:
        return self.home / "passwords.json"

    @property
    def log_folder(self) -> Path:
        """What the components themselves print; the tasks' logs are in Airflow's own folder `logs`."""
        return self.home / "components"

    def is_running(self) -> bool:
        return bool(self._members())

    @property
    def url(self) -> str:
        """Where the running Airflow listens."""
        return f"http://{HOST}:{self._state()['port']}"

    @property
    def last_url(self) -> str:
        """Where it listened last, and will again if the port is free and no other is asked for."""
        return f"http://{HOST}:{self._last_port()}"

    def _last_port(self) -> int | None:
        try:
            return int(self.port_file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def password(self) -> str:
        """The password of the user `admin`, chosen before the first start."""
        try:
            return str(json.loads(self.passwords_file.read_text())[USER])
        except FileNotFoundError:
            raise FreshetError(
                f"{self.passwords_file} is gone: run `make down`, then `make up`, which chooses a new one."
            ) from None

    def client(self) -> AirflowClient:
        return AirflowClient(self.url, USER, self.password())

    def how_to_log_in(self) -> str:
        return f"{self.url} (user {USER}, password {self.password()})"

    def start(self, say: Say, port: int | None = None) -> bool:
        """Have every component running and healthy; whether this call has started them."""
        with self._alone(say):
            if self.is_running():
                self._make_ready(say, self._has_ended)
                say("Airflow is already running")
                return False
            require_free_space(self.home)
            chosen = choose_port(port, self._last_port())
            self.port_file.write_text(str(chosen))
            self._start(chosen, say)
            return True

    def _start(self, port: int, say: Say) -> None:
        environment = self.environment(port)
        self.log_folder.mkdir(parents=True, exist_ok=True)
        self._prepare_database(environment, say)
        self._choose_password()
        say(f"Starting Airflow on port {port}")
        leaders: dict[str, Leader] = {}
        try:
            # Ctrl-C interrupts the main thread only: what the other one launches, it also writes down.
            with ThreadPoolExecutor(max_workers=1) as launcher:
                launcher.submit(self._launch_all, port, environment, leaders).result()
            self._make_ready(say, self._ended_while_starting)
        except BaseException:
            self._end(leaders)
            raise

    def stop(self, say: Say) -> None:
        """End every process of every component; raises if one is left."""
        with self._alone(say):
            leaders = self._leaders()
            if not leaders:
                say("Airflow is not running")
                return
            say("Stopping Airflow")
            self._end(leaders)

    @contextmanager
    def _alone(self, say: Say) -> Iterator[None]:
        """One start or stop at a time: the next one waits, and then sees what the last one has done."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "running.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("Airflow is being started or stopped by another command; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _end(self, leaders: Mapping[str, Leader]) -> None:
        for name in COMPONENTS:
            if name in leaders:
                sessions.end_session(leaders[name].pid, SECONDS_TO_STOP[name])
        left = sessions.members(leader.pid for leader in leaders.values())
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            raise FreshetError(f"These processes of Airflow could not be ended: {pids}. End them by hand.")
        self.state_file.unlink(missing_ok=True)

    def environment(self, port: int) -> dict[str, str]:
        """The settings of every component; those the caller has for other Airflows do not reach them."""
        inherited = {name: value for name, value in os.environ.items() if not is_airflow_setting(name)}
        url = f"http://{HOST}:{port}"
        master = os.environ.get("FRESHET_SPARK_MASTER", "local[*]")
        spark = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "client"}}
        if master.startswith("local") and "FRESHET_DRIVER_HOST" not in inherited:
            inherited["SPARK_LOCAL_IP"] = HOST
        bin_folder = str(Path(sys.executable).parent)
        return {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            **inherited,
            **without_proxy(inherited),
            "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", os.defpath)]),
            "FRESHET_HOME": str(freshet_home()),
            "FRESHET_LOADS": str(loads_folder()),
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords_file),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home / 'airflow.db'}",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.home / "logs"),
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__WORKERS": "1",
            # What the machine calls itself is asked of a name server otherwise.
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "freshet.orchestration.local.loopback",
            # Tasks find the server by it; with the wrong port every task fails while all looks healthy.
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "PYTHONUNBUFFERED": "1",
        }

    def _choose_password(self) -> None:
        """Give the user a password, unless he has one: Airflow would make one up and print it to its log."""
        if self.passwords_file.exists():
            return
        draft = self.passwords_file.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(json.dumps({USER: secrets.token_urlsafe(12)}))
        draft.replace(self.passwords_file)

    def _prepare_database(self, environment: Mapping[str, str], say: Say) -> None:
        """Create Airflow's tables, or bring them to the installed version."""
        marker = self.home / "database_version"
        wanted = version("apache-airflow")
        if marker.exists() and marker.read_text() == wanted and (self.home / "airflow.db").exists():
            return
        say("Creating Airflow's database")
        done = subprocess.run(
            [*airflow_command(), "db", "migrate"], env=dict(environment), capture_output=True, text=True
        )
        if done.returncode:
            raise FreshetError(f"Airflow could not create its database:\n{_tail(done.stdout + done.stderr)}")
        marker.write_text(wanted)

    def _launch_all(self, port: int, environment: Mapping[str, str], leaders: dict[str, Leader]) -> None:
        """Launch the components, each written down at once: `down` must find it whatever happens next."""
        for name in COMPONENTS:
            leaders[name] = self._launch(name, environment)
            self._write_state(port, leaders)

    def _launch(self, name: str, environment: Mapping[str, str]) -> Leader:
        with (self.log_folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*airflow_command(), *COMPONENTS[name]],
                env=dict(environment),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Leader.of(process.pid)

    def _make_ready(self, say: Say, ended: Callable[[str], FreshetError]) -> None:
        """Wait until Airflow can take requests, and give it what Freshet's tasks need."""
        self._wait_until_healthy(say, ended)
        client = self.client()
        client.set_pool(SPARK_POOL, SPARK_POOL_SLOTS, SPARK_POOL_DESCRIPTION)
        client.close()

    def _wait_until_healthy(self, say: Say, ended: Callable[[str], FreshetError]) -> None:
        """Wait for every component; `ended` is the error of one that is not there (any more)."""
        deadline = time.monotonic() + SECONDS_TO_START
        client = AirflowClient(self.url, USER, "")
        waiting_for: set[str] = set()
        while True:
            for name in self._missing():
                raise ended(name)
            health = client.health()
            unhealthy = {p for p in ("scheduler", "dag_processor") if health.get(p) != "healthy"}
            if health and not unhealthy:
                client.close()
                return
            if time.monotonic() > deadline:
                raise FreshetError(
                    f"Airflow was not healthy within {SECONDS_TO_START:.0f} s. Look into {self.log_folder}, "
                    "or run `make down`, then `make up`."
                )
            now_waiting_for = unhealthy if health else {"api-server"}
            if now_waiting_for != waiting_for:
                say("Waiting for Airflow's " + " and ".join(sorted(now_waiting_for)).replace("_", "-"))
                waiting_for = now_waiting_for
            time.sleep(0.5)

    def _missing(self) -> list[str]:
        """The components that do not run."""
        leaders = self._leaders()
        return [name for name in COMPONENTS if name not in leaders or not leaders[name].lives()]

    def _ended_while_starting(self, name: str) -> FreshetError:
        log = self.log_folder / f"{name}.log"
        return FreshetError(
            f"Airflow's {name} ended while starting. The end of {log}:\n{_tail(log.read_text())}"
        )

    def _has_ended(self, name: str) -> FreshetError:
        return FreshetError(
            f"Airflow runs without its {name}, which has ended (see {self.log_folder / name}.log): "
            "run `make down`, then `make up`."
        )

    def _state(self) -> dict[str, object]:
        try:
            state: dict[str, object] = json.loads(self.state_file.read_text())
        except FileNotFoundError:
            raise FreshetError("Airflow is not running. Start it with `make up`.") from None
        return state

    def _write_state(self, port: int, leaders: Mapping[str, Leader]) -> None:
        """Write the state as a whole: half of it, on a full disk say, would hide what runs."""
        state = {"port": port, "components": {name: asdict(leader) for name, leader in leaders.items()}}
        draft = self.state_file.with_suffix(".draft")
        draft.write_text(json.dumps(state, indent=2))
        draft.replace(self.state_file)

    def _leaders(self) -> dict[str, Leader]:
        if not self.state_file.exists():
            return {}
        components = self._state()["components"]
        assert isinstance(components, dict)
        leaders = {name: Leader(**fields) for name, fields in components.items()}
        return {name: leader for name, leader in leaders.items() if leader.session_is_ours()}

    def _members(self) -> list[psutil.Process]:
        return sessions.members([leader.pid for leader in self._leaders().values()])


def loopback() -> str:
    """The name under which the components know this machine."""
    return HOST


def is_airflow_setting(name: str) -> bool:
    """Whether a variable is a setting of Airflow, or names the file of them."""
    return name.startswith("AIRFLOW__") or name == "AIRFLOW_CONFIG"


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep what is for this machine from a proxy: tasks send the server their token."""
    named = {name: environment.get(name, "").strip() for name in ("NO_PROXY", "no_proxy")}
    # Programs read one of the two: one that was not set must not hide what the other says.
    first = named["no_proxy"] or named["NO_PROXY"]
    return {name: _with_this_machine(hosts or first) for name, hosts in named.items()}


def _with_this_machine(hosts: str) -> str:
    """Hosts to reach without a proxy; `*`, which means all of them, means it only by itself."""
    return hosts if hosts == "*" else ",".join(filter(None, [hosts, HOST, "localhost"]))


def airflow_command() -> list[str]:
    """The command line of this interpreter's Airflow."""
    return [sys.executable, "-m", "airflow"]


def choose_port(port: int | None = None, last: int | None = None) -> int:
    """The asked-for port (or FRESHET_AIRFLOW_PORT), refused when taken; else the last one if free, or any."""
    asked = port if port is not None else os.environ.get("FRESHET_AIRFLOW_PORT") or None
    try:
        number = int(asked or 0)
    except ValueError:
        raise FreshetError(f"FRESHET_AIRFLOW_PORT is {asked!r}. Set it to a port such as 8080.") from None
    if last and not number:
        with suppress(OSError, OverflowError):
            return _free_port(last)
    try:
        return _free_port(number)
    except (OSError, OverflowError) as error:
        raise FreshetError(
            f"Airflow cannot listen on port {number} of {HOST} ({error}). "
            "Set FRESHET_AIRFLOW_PORT to a free port, or unset it to have one chosen."
        ) from None


def _free_port(number: int) -> int:
    """This port, if somebody can listen on it; with 0 any other."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, number))
        return int(probe.getsockname()[1])


def require_free_space(folder: Path) -> None:
    """Refuse to start on a disk that is (nearly) full."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES_NEEDED:
        raise FreshetError(
            f"Only {free / 1e6:.0f} MB are free on the disk of {folder}; Freshet needs "
            f"{FREE_BYTES_NEEDED / 1e9:.0f} GB. Free some space, or set FRESHET_HOME to another disk."
        )


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.splitlines()[-lines:])


def main() -> int:
    """The commands up, down, status and demo; an error for people is one message and exit code 1."""
    parser = argparse.ArgumentParser(description="The private Airflow of this machine.")
    parser.add_argument("command", choices=["up", "down", "status", "demo"])
    command = parser.parse_args().command
    # The same way out for Ctrl-C and `kill`: what was started is stopped.
    for number in _INTERRUPTS:
        signal.signal(number, _interrupt_once)
    try:
        return _run(command)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except Exception as error:
        told = for_people(error)
        if told is None:
            raise
        print(f"error: {told}", file=sys.stderr)
        return 1


def _interrupt_once(number: int, frame: object) -> None:
    """End the command; a second signal must not keep it from stopping what it has started."""
    for other in _INTERRUPTS:
        # A function, as a component that is just being launched would go on ignoring what is ignored here.
        signal.signal(other, lambda *_: None)
    raise KeyboardInterrupt


def _run(command: str) -> int:
    airflow = LocalAirflow()
    if command == "demo":
        from freshet.orchestration.demo import run_demo

        run_demo(airflow)
    elif command == "up":
        airflow.start(say)
        print(f"Airflow is running: {airflow.how_to_log_in()}\n`make down` stops it.")
    elif command == "down":
        airflow.stop(say)
    elif airflow.is_running():
        print(f"Airflow is running: {airflow.how_to_log_in()}")
    else:
        print("Airflow is not running")
        return 3
    return 0


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
