"""Queries for services: the instances that offer them, the one that runs each, and their iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Query

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
    return Query("instance/unregister", {"instance": instance}, lambda: None)


def begin_term(
    name: str, every: float | None, max_delay: float, term: int, instance: UUID
) -> Query[ServiceDue]:
    """Begin a term of a service. `max_delay` is the longest pause after repeated losses, in seconds."""
    params = {
        "name": name,
        "leader": leader_of(name),
        "every": every,
        "max_delay": max_delay,
        "term": term,
        "instance": instance,
    }
    return Query("service/begin_term", params, ServiceDue)


def begin_iteration(name: str, term: int, identity: dict[str, Any]) -> Query[int]:
    params = {"name": name, "leader": leader_of(name), "term": term, **identity}
    return Query("service/begin_iteration", params, int)


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
        "delay": delay,
    }
    return Query("service/finish_iteration", params, lambda: None)
