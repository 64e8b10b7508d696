"""Who leads: terms that are counted, held by a seat in a session or by a lease in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store import advisory
from rota.store.query import Query

RESIGNED = "rota.leaders"
"""The channel on which it is said that somebody has resigned, by the name."""


class Elected(msgspec.Struct, frozen=True):
    term: int
    elections: int
    """In the last minute."""


class Standing(msgspec.Struct, frozen=True):
    name: str
    stands: bool | None
    """None: somebody has its row locked."""


def seat_of(name: str, schema: str) -> int:
    """The second half of the advisory lock of who leads under this name."""
    return advisory.key_of(f"{schema}.{name}")


def limit(seconds: float) -> Query[Any]:
    """The server ends this session, and all it holds, after so many seconds of silence."""
    return Query("leader/limit", {"limit": f"{int(seconds * 1000)}ms"}, lambda _: None)


def sit(seats: Sequence[int]) -> Query[int]:
    return Query("leader/sit", {"space": advisory.LEADER, "seats": list(seats)}, int)


def rise(seats: Sequence[int]) -> Query[int]:
    return Query("leader/rise", {"space": advisory.LEADER, "seats": list(seats)}, int)


def vacant(names: Sequence[str], seats: Sequence[int]) -> Query[str]:
    params = {"space": advisory.LEADER, "names": list(names), "seats": list(seats)}
    return Query("leader/vacant", params, str)


def elect(name: str, seat: int, who: dict[str, Any], lease: float | None) -> Query[Elected]:
    """`lease`: seconds, for who has no session of his own."""
    params = {"name": name, "space": advisory.LEADER, "seat": seat, "lease": lease, **who}
    return Query("leader/elect", params, Elected)


def probe(
    instance: UUID, names: Sequence[str], seats: Sequence[int], terms: Sequence[int]
) -> Query[Standing]:
    params = {
        "instance": instance,
        "space": advisory.LEADER,
        "names": list(names),
        "seats": list(seats),
        "terms": list(terms),
    }
    return Query("leader/probe", params, Standing)


def renew(
    instance: UUID, names: Sequence[str], terms: Sequence[int], leases: Sequence[float]
) -> Query[Standing]:
    params = {
        "instance": instance,
        "names": list(names),
        "terms": list(terms),
        "leases": list(leases),
    }
    return Query("leader/renew", params, Standing)


def resign(instance: UUID, name: str, term: int) -> Query[Any]:
    return Query("leader/resign", {"instance": instance, "name": name, "term": term}, lambda: None)


def assertion(name: str, term: int) -> Query[Any]:
    """To be run in a transaction of the user's."""
    return Query("leader/assert", {"name": name, "term": term}, lambda _: None)
