"""The joins by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.config.algorithms import AUTO
from freshet.errors import DefinitionError
from freshet.joins.base import JoinOperator
from freshet.joins.hybridjoin import HybridJoin
from freshet.joins.inlj import Inlj
from freshet.joins.meshjoin import MeshJoin, RMeshJoin
from freshet.joins.rootjoin import RootJoin, XRootJoin
from freshet.joins.xhybridjoin import XHybridJoin
from freshet.master.store import MasterStore
from freshet.memory import Budget

_JOINS: dict[str, type[JoinOperator]] = {}


def register(join: type[JoinOperator]) -> None:
    """Make a join known by its name, which must be its own."""
    if join.name == AUTO or _JOINS.setdefault(join.name, join) is not join:
        raise ValueError(f"a join named {join.name!r} exists already")


for _join in (HybridJoin, Inlj, MeshJoin, RMeshJoin, RootJoin, XHybridJoin, XRootJoin):
    register(_join)


def names() -> list[str]:
    """The names of all joins."""
    return sorted(_JOINS)


def join_type(name: str) -> type[JoinOperator]:
    """The join of that name; `auto` is X-HYBRIDJOIN."""
    chosen = XHybridJoin.name if name == AUTO else name
    if chosen not in _JOINS:
        known = ", ".join([AUTO, *names()])
        raise DefinitionError(f"there is no join algorithm {name!r}: choose one of {known}")
    return _JOINS[chosen]


def create(
    name: str, store: MasterStore, budget: Budget, settings: Mapping[str, Any] | None = None
) -> JoinOperator:
    """An operator of the named join."""
    return join_type(name)(store, budget, settings)
