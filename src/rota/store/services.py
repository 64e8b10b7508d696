"""Queries for services: the instances that offer them, the one that runs each, and their iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Params, Query, no_row, statement

LEADER_PREFIX = "service "


def leader_of(service: str) -> str:
    """Return the leader name of a service."""
    return LEADER_PREFIX + service


class InstanceRow(msgspec.Struct, frozen=True):
    """Instance that runs services or is a candidate for them."""

    instance: UUID
    services: list[str]
    running: list[str]
    silent_seconds: float = 0.0
    """Seconds since its last heartbeat."""


class ServiceDue(msgspec.Struct, frozen=True):
    delay: float
    """Seconds until the next iteration is due."""
    failures: int


@statement("instance/beat", InstanceRow)
def beat(
    identity: dict[str, Any],
    version: str,
    lease: float,
    services: Sequence[str],
    running: Sequence[str],
) -> Params:
    return identity


@statement("instance/unregister", no_row)
def unregister(instance: UUID) -> None: ...


@statement("service/begin_term", ServiceDue)
def begin_term(
    name: str, every: float | None, max_delay: float, term: int, instance: UUID
) -> Params:
    """Begin a term of a service. `max_delay` is the longest pause after repeated losses, in seconds."""
    return {"leader": leader_of(name)}


def begin_iteration(name: str, term: int, identity: dict[str, Any]) -> Query[int]:
    params = {"name": name, "leader": leader_of(name), "term": term, **identity}
    return Query("service/begin_iteration", params, int)


@statement("service/finish_iteration", no_row)
def finish_iteration(
    name: str, number: int, term: int, outcome: str, error: str | None, failures: int, delay: float
) -> None: ...
