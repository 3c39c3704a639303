"""Airflow connections, handed to Freshet as the FRESHET_CONN_<ID> variables it reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from freshet.config import Definition


def connection_ids(definition: Definition) -> tuple[str, ...]:
    """The connections that a load's lookups name."""
    return tuple(sorted({lookup.connection for lookup in definition.lookups if lookup.connection}))


def connection_variables(ids: Iterable[str]) -> dict[str, str]:
    """The variables of those ids that Airflow knows; the others are left to the environment."""
    variables = {}
    for conn_id in ids:
        try:
            uri = Connection.get(conn_id).get_uri()
        except AirflowNotFoundException:
            continue
        mask_secret(uri)
        variables[f"FRESHET_CONN_{conn_id.upper()}"] = uri
    return variables


@contextmanager
def connections_of(definition: Definition) -> Iterator[None]:
    """The load's connections in this process's environment, for as long as the block runs."""
    variables = connection_variables(connection_ids(definition))
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
