"""docker-compose.yaml, read by Docker's own compose (tools/compose installs it where there is none)."""

import json
import os
import re
import subprocess
from typing import Any

import pytest
import yaml

from freshet.home import PROJECT
from freshet.orchestration.pools import SPARK_POOL, SPARK_POOL_SLOTS

SECRETS = {
    "FRESHET_MYSQL_PASSWORD": "secret-of-mysql",
    "FRESHET_POSTGRES_PASSWORD": "secret-of-postgres",
    "FRESHET_ADMIN_PASSWORD": "secret-of-admin",
    "FRESHET_SECRET_KEY": "secret-key",
    "FRESHET_FERNET_KEY": "secret-fernet-key",
}


def compose(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FRESHET_")}
    return subprocess.run(
        # Not the user's own .env, which may be filled in.
        ["tools/compose", "--env-file", ".env.example", *arguments],
        cwd=PROJECT,
        env=inherited | environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    done = compose("config", **SECRETS)
    assert done.returncode == 0, done.stderr
    services: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return services


def test_it_has_the_services_of_the_whole_chain(services: dict[str, Any]) -> None:
    assert {"mysql", "airflow-api-server", "airflow-scheduler", "spark-master", "spark-worker"} <= set(
        services
    )


def test_make_compose_check_needs_no_secrets() -> None:
    inherited = {name: value for name, value in os.environ.items() if name not in SECRETS}
    done = subprocess.run(
        ["make", "compose-check"], cwd=PROJECT, env=inherited, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SECRETS)
def test_without_a_secret_it_is_refused_naming_the_variable(name: str) -> None:
    done = compose("config", "--quiet", **{key: value for key, value in SECRETS.items() if key != name})
    assert done.returncode != 0
    assert f"set {name} in .env, see .env.example" in done.stderr


def test_the_example_names_every_variable_and_gives_none_a_value() -> None:
    example = (PROJECT / ".env.example").read_text()
    used = set(re.findall(r"\$\{(\w+)", (PROJECT / "docker-compose.yaml").read_text()))
    assert used == set(re.findall(r"^(\w+)=$", example, re.MULTILINE))
    assert not re.search(r"^\w+=.", example, re.MULTILINE)


def test_every_lasting_service_says_when_it_is_healthy(services: dict[str, Any]) -> None:
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"airflow-init"}


def test_only_the_user_interface_is_published_and_on_this_machine_only(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert set(published) == {"airflow-api-server"}
    assert "127.0.0.1" in json.dumps(published)


def test_spark_gets_no_secret(services: dict[str, Any]) -> None:
    for name in ("spark-master", "spark-worker"):
        assert "secret" not in json.dumps(services[name])


def test_drivers_and_executors_share_the_data_and_the_code(services: dict[str, Any]) -> None:
    for name in ("airflow-scheduler", "spark-worker"):
        assert services[name]["image"] == "freshet"
        assert "/var/lib/freshet" in json.dumps(services[name]["volumes"])


def test_it_makes_the_pool_of_the_spark_tasks(services: dict[str, Any]) -> None:
    assert f"airflow pools set {SPARK_POOL} {SPARK_POOL_SLOTS} " in services["airflow-init"]["command"][-1]
