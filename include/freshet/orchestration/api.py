"""A client of Airflow's REST interface, with just the calls the local Airflow and the demo make."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from freshet.errors import FreshetError

FINISHED = frozenset({"success", "failed"})
ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 1.0


class AirflowError(FreshetError):
    """A request that Airflow refused or did not answer, or a run that failed."""


@dataclass(frozen=True)
class TaskState:
    """One task of a run, as Airflow sees it now."""

    task_id: str
    state: str | None
    try_number: int
    seconds: float | None


class AirflowClient:
    """Airflow at one address, logged in as one user."""

    def __init__(self, url: str, username: str, password: str, timeout: float = 30.0) -> None:
        self.url = url
        self._login = {"username": username, "password": password}
        self._http = httpx.Client(base_url=url, timeout=timeout, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """One call of `/api/v2`, with a fresh token when the last one is missing or has expired."""
        if "Authorization" not in self._http.headers:
            self._log_in()
        # A request that starts something may have been heard although no answer came: it is made once.
        attempts = 1 if method == "POST" else ATTEMPTS
        response = self._send(method, f"/api/v2/{path}", attempts, **kwargs)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            response = self._send(method, f"/api/v2/{path}", attempts, **kwargs)
        return response

    def call(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        """The answer of one call; refused calls raise with Airflow's own words."""
        response = self.request(method, path, **kwargs)
        if response.is_error:
            raise AirflowError(
                f"Airflow refused {method} {path} ({response.status_code}): {response.text[:500]}"
            )
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer

    def _send(self, method: str, path: str, attempts: int, **kwargs: Any) -> httpx.Response:
        """One exchange, tried again while attempts are left: an Airflow at work is slow at times."""
        while True:
            attempts -= 1
            try:
                return self._http.request(method, path, **kwargs)
            except httpx.HTTPError as error:
                if not attempts:
                    raise AirflowError(
                        f"Airflow at {self.url} does not answer ({error}): "
                        "if it stays silent, run `make down`, then `make up`."
                    ) from error
            time.sleep(SECONDS_BETWEEN_ATTEMPTS)

    def _log_in(self) -> None:
        response = self._send("POST", "/auth/token", ATTEMPTS, json=self._login)
        if response.is_error:
            raise AirflowError(f"Airflow at {self.url} refused the login ({response.status_code}).")
        self._http.headers["Authorization"] = f"Bearer {response.json()['access_token']}"

    def health(self) -> dict[str, str | None]:
        """The state of each component; empty while the server does not answer."""
        try:
            response = self._http.get("/api/v2/monitor/health", timeout=5)
            response.raise_for_status()
        except httpx.HTTPError:
            return {}
        return {name: part.get("status") for name, part in response.json().items()}

    def set_pool(self, name: str, slots: int, description: str) -> None:
        """Create a pool; one that exists keeps the size somebody gave it."""
        pool = {"name": name, "slots": slots, "description": description, "include_deferred": False}
        response = self.request("POST", "pools", json=pool)
        if response.is_error and response.status_code != httpx.codes.CONFLICT:
            raise AirflowError(f"Airflow refused the pool {name}: {response.text[:500]}")

    def dag_ids(self) -> set[str]:
        found: set[str] = set()
        while True:  # Airflow gives no more than a page, however many are asked for
            page = self.call("GET", "dags", params={"offset": len(found), "order_by": "dag_id"})
            found |= {dag["dag_id"] for dag in page["dags"]}
            if not page["dags"] or len(found) >= page["total_entries"]:
                return found

    def import_errors(self) -> dict[str, str]:
        """The message of each DAG file that could not be imported."""
        errors = self.call("GET", "importErrors")["import_errors"]
        return {error["filename"]: error["stack_trace"] for error in errors}

    def is_paused(self, dag_id: str) -> bool:
        return bool(self.call("GET", f"dags/{dag_id}")["is_paused"])

    def pause(self, dag_id: str, paused: bool) -> None:
        self.call("PATCH", f"dags/{dag_id}", json={"is_paused": paused})

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run by hand; its id."""
        run = self.call("POST", f"dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf or {}})
        return str(run["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The latest runs, newest first."""
        query = {"order_by": "-run_after", "limit": 50}
        return list(self.call("GET", f"dags/{dag_id}/dagRuns", params=query)["dag_runs"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"])

    def tasks(self, dag_id: str, run_id: str) -> list[TaskState]:
        found = self.call("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return [TaskState(t["task_id"], t["state"], t["try_number"], t["duration"]) for t in found]

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[str]:
        """The lines of one try of a task."""
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{max(try_number, 1)}"
        content = self.call("GET", path, headers={"Accept": "application/json"})["content"]
        return [line if isinstance(line, str) else _log_line(line) for line in content]

    def watch(
        self, dag_id: str, run_id: str, timeout: float, interval: float = 1.0
    ) -> Iterator[list[TaskState]]:
        """The tasks of a run, again and again until the run has finished."""
        deadline = time.monotonic() + timeout
        while True:
            state = self.run_state(dag_id, run_id)
            yield self.tasks(dag_id, run_id)
            if state in FINISHED:
                return
            if time.monotonic() > deadline:
                raise AirflowError(
                    f"{dag_id} has not finished within {timeout:.0f} s (run {run_id} is {state}). "
                    f"Look at {self.url}/dags/{dag_id}/runs/{run_id}."
                )
            time.sleep(interval)


def _log_line(line: dict[str, Any]) -> str:
    """One structured line as text: its message, and the error it carries."""
    details = [
        f"{error.get('exc_type')}: {error.get('exc_value')}" for error in line.get("error_detail") or []
    ]
    return "\n".join([str(line.get("event", "")), *details])
