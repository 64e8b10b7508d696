"""Queries for leaderships: numbered terms, held by a session lock or by a lease in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store import advisory_locks
from rota.store.query import Query

RESIGNED_CHANNEL = "rota.leaders"
"""Notification channel for resignations; the payload is the name."""


class ElectionResult(msgspec.Struct, frozen=True):
    term: int
    elections_last_minute: int


class LeadershipProbe(msgspec.Struct, frozen=True):
    name: str
    is_current: bool | None
    """True if the term is still held; None if the row was locked by another transaction."""


def session_lock_key(name: str, schema: str) -> int:
    """Return the key of the advisory lock that the leader of this name holds."""
    return advisory_locks.key_of(f"{schema}.{name}")


def set_idle_timeout(seconds: float) -> Query[Any]:
    """Let the server end this session, and release its locks, after `seconds` without a statement."""
    return Query("leader/set_idle_timeout", {"timeout": f"{int(seconds * 1000)}ms"}, lambda _: None)


def lock_session(session_locks: Sequence[int]) -> Query[int]:
    return Query(
        "leader/lock_session",
        {"namespace": advisory_locks.LEADER, "session_locks": list(session_locks)},
        int,
    )


def unlock_session(session_locks: Sequence[int]) -> Query[int]:
    return Query(
        "leader/unlock_session",
        {"namespace": advisory_locks.LEADER, "session_locks": list(session_locks)},
        int,
    )


def vacant_names(names: Sequence[str], session_locks: Sequence[int]) -> Query[str]:
    params = {
        "namespace": advisory_locks.LEADER,
        "names": list(names),
        "session_locks": list(session_locks),
    }
    return Query("leader/vacant_names", params, str)


def elect(
    name: str, session_lock: int, holder: dict[str, Any], lease: float | None
) -> Query[ElectionResult]:
    """Try to become leader. `lease` is in seconds, for instances without their own session; else None."""
    params = {
        "name": name,
        "namespace": advisory_locks.LEADER,
        "session_lock": session_lock,
        "lease": lease,
        **holder,
    }
    return Query("leader/elect", params, ElectionResult)


def probe(
    instance: UUID, names: Sequence[str], session_locks: Sequence[int], terms: Sequence[int]
) -> Query[LeadershipProbe]:
    params = {
        "instance": instance,
        "namespace": advisory_locks.LEADER,
        "names": list(names),
        "session_locks": list(session_locks),
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
    """Raise LeadershipLost if the term is not current. Run this in the user's transaction."""
    return Query("leader/assert_term", {"name": name, "term": term}, lambda _: None)
