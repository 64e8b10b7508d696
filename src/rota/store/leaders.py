"""Queries for leaderships: numbered terms, held by a session lock or by a lease in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store import advisory_locks
from rota.store.query import Params, Query, no_row, statement

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
    return Query("leader/set_idle_timeout", {"timeout": f"{int(seconds * 1000)}ms"}, no_row)


@statement("leader/lock_session", int)
def lock_session(session_locks: Sequence[int]) -> Params:
    return {"namespace": advisory_locks.LEADER}


@statement("leader/unlock_session", int)
def unlock_session(session_locks: Sequence[int]) -> Params:
    return {"namespace": advisory_locks.LEADER}


@statement("leader/vacant_names", str)
def vacant_names(names: Sequence[str], session_locks: Sequence[int]) -> Params:
    return {"namespace": advisory_locks.LEADER}


@statement("leader/elect", ElectionResult)
def elect(name: str, session_lock: int, holder: dict[str, Any], lease: float | None) -> Params:
    """Try to become leader. `lease` is in seconds, for instances without their own session; else None."""
    return {"namespace": advisory_locks.LEADER, **holder}


@statement("leader/probe", LeadershipProbe)
def probe(
    instance: UUID, names: Sequence[str], session_locks: Sequence[int], terms: Sequence[int]
) -> Params:
    return {"namespace": advisory_locks.LEADER}


@statement("leader/renew", LeadershipProbe)
def renew(
    instance: UUID, names: Sequence[str], terms: Sequence[int], leases: Sequence[float]
) -> None: ...


@statement("leader/resign", no_row)
def resign(instance: UUID, name: str, term: int) -> None: ...


@statement("leader/assert_term", no_row)
def assert_term(name: str, term: int) -> None:
    """Raise LeadershipLost if the term is not current. Run this in the user's transaction."""
