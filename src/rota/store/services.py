"""Services: which instances know them, which one runs each, and what became of each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Query

PREFIX = "service "


def leader_of(service: str) -> str:
    """The name under which an instance leads that runs a service."""
    return PREFIX + service


class Present(msgspec.Struct, frozen=True):
    """An instance that runs services, or stands by to."""

    instance: UUID
    services: list[str]
    running: list[str]
    silent: float = 0.0
    """Seconds since its last report."""


class Due(msgspec.Struct, frozen=True):
    rest: float
    """Seconds until it is due."""
    failures: int


def beat(
    who: dict[str, Any], version: str, lease: float, services: Sequence[str], running: Sequence[str]
) -> Query[Present]:
    params = {
        **who,
        "version": version,
        "lease": lease,
        "services": list(services),
        "running": list(running),
    }
    return Query("instance/beat", params, Present)


def leave(instance: UUID) -> Query[Any]:
    return Query("instance/leave", {"instance": instance}, lambda: None)


def enter(name: str, every: float | None, longest: float, term: int, instance: UUID) -> Query[Due]:
    """`longest`: seconds that one that is lost again and again has to wait at most."""
    params = {
        "name": name,
        "leader": leader_of(name),
        "every": every,
        "longest": longest,
        "term": term,
        "instance": instance,
    }
    return Query("service/enter", params, Due)


def begin(name: str, term: int, who: dict[str, Any]) -> Query[int]:
    params = {"name": name, "leader": leader_of(name), "term": term, **who}
    return Query("service/begin", params, int)


def finish(
    name: str, number: int, term: int, outcome: str, error: str | None, failures: int, rest: float
) -> Query[Any]:
    params = {
        "name": name,
        "number": number,
        "term": term,
        "outcome": outcome,
        "error": error,
        "failures": failures,
        "rest": rest,
    }
    return Query("service/finish", params, lambda: None)
