"""Services: which instances know them, which one runs each, and what became of each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Query

LEADER_PREFIX = "service "


def leader_of(service: str) -> str:
    """The name under which an instance leads that runs a service."""
    return LEADER_PREFIX + service


class InstanceRow(msgspec.Struct, frozen=True):
    """An instance that runs services, or stands by to."""

    instance: UUID
    services: list[str]
    running: list[str]
    silent_seconds: float = 0.0
    """Seconds since its last report."""


class ServiceDue(msgspec.Struct, frozen=True):
    delay: float
    """Seconds until it is due."""
    failures: int


def beat(
    identity: dict[str, Any],
    version: str,
    lease: float,
    services: Sequence[str],
    running: Sequence[str],
) -> Query[InstanceRow]:
    params = {
        **identity,
        "version": version,
        "lease": lease,
        "services": list(services),
        "running": list(running),
    }
    return Query("instance/beat", params, InstanceRow)


def unregister(instance: UUID) -> Query[Any]:
    return Query("instance/leave", {"instance": instance}, lambda: None)


def begin_term(
    name: str, every: float | None, max_delay: float, term: int, instance: UUID
) -> Query[ServiceDue]:
    """`longest`: seconds that one that is lost again and again has to wait at most."""
    params = {
        "name": name,
        "leader": leader_of(name),
        "every": every,
        "longest": max_delay,
        "term": term,
        "instance": instance,
    }
    return Query("service/enter", params, ServiceDue)


def begin_iteration(name: str, term: int, identity: dict[str, Any]) -> Query[int]:
    params = {"name": name, "leader": leader_of(name), "term": term, **identity}
    return Query("service/begin", params, int)


def finish_iteration(
    name: str, number: int, term: int, outcome: str, error: str | None, failures: int, delay: float
) -> Query[Any]:
    params = {
        "name": name,
        "number": number,
        "term": term,
        "outcome": outcome,
        "error": error,
        "failures": failures,
        "rest": delay,
    }
    return Query("service/finish", params, lambda: None)
