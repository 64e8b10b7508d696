"""Who leads: terms that are counted, held by a seat in a session or by a lease in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store import advisory_locks
from rota.store.query import Query

RESIGNED_CHANNEL = "rota.leaders"
"""The channel on which it is said that somebody has resigned, by the name."""


class ElectionResult(msgspec.Struct, frozen=True):
    term: int
    elections_last_minute: int
    """In the last minute."""


class LeadershipProbe(msgspec.Struct, frozen=True):
    name: str
    is_current: bool | None
    """None: somebody has its row locked."""


def session_lock_key(name: str, schema: str) -> int:
    """The second half of the advisory lock of who leads under this name."""
    return advisory_locks.key_of(f"{schema}.{name}")


def set_idle_timeout(seconds: float) -> Query[Any]:
    """The server ends this session, and all it holds, after so many seconds of silence."""
    return Query("leader/limit", {"limit": f"{int(seconds * 1000)}ms"}, lambda _: None)


def lock_session(session_locks: Sequence[int]) -> Query[int]:
    return Query("leader/sit", {"space": advisory_locks.LEADER, "seats": list(session_locks)}, int)


def unlock_session(session_locks: Sequence[int]) -> Query[int]:
    return Query("leader/rise", {"space": advisory_locks.LEADER, "seats": list(session_locks)}, int)


def vacant_names(names: Sequence[str], session_locks: Sequence[int]) -> Query[str]:
    params = {"space": advisory_locks.LEADER, "names": list(names), "seats": list(session_locks)}
    return Query("leader/vacant", params, str)


def elect(
    name: str, session_lock: int, holder: dict[str, Any], lease: float | None
) -> Query[ElectionResult]:
    """`lease`: seconds, for who has no session of his own."""
    params = {
        "name": name,
        "space": advisory_locks.LEADER,
        "seat": session_lock,
        "lease": lease,
        **holder,
    }
    return Query("leader/elect", params, ElectionResult)


def probe(
    instance: UUID, names: Sequence[str], session_locks: Sequence[int], terms: Sequence[int]
) -> Query[LeadershipProbe]:
    params = {
        "instance": instance,
        "space": advisory_locks.LEADER,
        "names": list(names),
        "seats": list(session_locks),
        "terms": list(terms),
    }
    return Query("leader/probe", params, LeadershipProbe)


def renew(
    instance: UUID, names: Sequence[str], terms: Sequence[int], leases: Sequence[float]
) -> Query[LeadershipProbe]:
    params = {
        "instance": instance,
        "names": list(names),
        "terms": list(terms),
        "leases": list(leases),
    }
    return Query("leader/renew", params, LeadershipProbe)


def resign(instance: UUID, name: str, term: int) -> Query[Any]:
    return Query("leader/resign", {"instance": instance, "name": name, "term": term}, lambda: None)


def assert_term(name: str, term: int) -> Query[Any]:
    """To be run in a transaction of the user's."""
    return Query("leader/assert", {"name": name, "term": term}, lambda _: None)
