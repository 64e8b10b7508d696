"""What people do by hand, and what is written down about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from rota.store.query import Query

MAX_ID = 2**63 - 1


class AuditRow(msgspec.Struct, frozen=True):
    id: int
    at: datetime
    operator: str
    action: str
    subject: str
    detail: bytes


class AuditEntry(msgspec.Struct, frozen=True):
    """Who does what to whom. What goes into runs and comes out of them is no part of it."""

    operator: str
    action: str
    subject: str
    detail: Mapping[str, str | int] = {}


class ReleasedLock(msgspec.Struct, frozen=True):
    """Whose lock it was."""

    host: str
    pid: int
    label: str
    token: int
    age: float


class Blocker(msgspec.Struct, frozen=True):
    """Whose transaction is in the way; what a role may not see of others is None."""

    pid: int
    application: str
    user: str | None
    address: str | None
    state: str | None
    open: float | None


def release_lock(
    name: str, permit: int, operator: str, token: int | None = None
) -> Query[ReleasedLock]:
    """`token`: only from who holds it under that one."""
    params = {"name": name, "slot": permit, "who": operator, "token": token}
    return Query("audit/release", params, ReleasedLock)


def blockers(pid: int) -> Query[Blocker]:
    return Query("audit/blockers", {"pid": pid}, Blocker)


def backend_pid() -> Query[int]:
    return Query("audit/process", {}, int)


def write_entry(entry: AuditEntry) -> Query[Any]:
    """In the transaction that does it."""
    detail = msgspec.json.encode(entry.detail).decode()
    params = {
        "who": entry.operator,
        "action": entry.action,
        "subject": entry.subject,
        "detail": detail,
    }
    return Query("audit/note", params, lambda: None)


def entries(
    limit: int = 20,
    before: int = MAX_ID,
    *,
    operator: str | None = None,
    action: str | None = None,
    subject: str | None = None,
) -> Query[AuditRow]:
    """The last first; by one, of one kind, to one thing where named."""
    filters = {"who": operator, "action": action, "subject": subject}
    return Query("view/audit", {"limit": limit, "before": before, **filters}, AuditRow)
