"""Audit log of operators' actions, and the forced release of locks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from rota.model.document import Id, StoredJson
from rota.store.query import Query, no_row, statement

MAX_ID = 2**63 - 1


class AuditRow(msgspec.Struct, frozen=True):
    id: Id
    at: datetime
    operator: str
    action: str
    subject: str
    detail: StoredJson


class AuditEntry(msgspec.Struct, frozen=True):
    """Action of an operator on a subject. Inputs and results of runs are not recorded."""

    operator: str
    action: str
    subject: str
    detail: Mapping[str, str | int] = {}


class ReleasedLock(msgspec.Struct, frozen=True):
    """The former holder of a released lock. Transactions that assert this token fail from now on."""

    host: str
    pid: int
    label: str
    token: Id
    age: float


class Blocker(msgspec.Struct, frozen=True):
    """Session whose transaction blocks a statement. Fields that the role may not read are None."""

    pid: int
    application: str
    user: str | None
    address: str | None
    state: str | None
    open: float | None


@statement("audit/release_lock", ReleasedLock)
def release_lock(name: str, permit: int, operator: str, token: int | None = None) -> None:
    """Release a lock by force and write the audit row. With `token`, only a hold under that token."""


@statement("audit/blockers", Blocker)
def blockers(pid: int) -> None: ...


@statement("audit/backend_pid", int)
def backend_pid() -> None: ...


def write_entry(entry: AuditEntry) -> Query[Any]:
    """Write an audit row. Run this in the transaction of the action itself."""
    detail = msgspec.json.encode(entry.detail).decode()
    params = {**msgspec.structs.asdict(entry), "detail": detail}
    return Query("audit/write_entry", params, no_row)


@statement("view/audit", AuditRow)
def entries(
    limit: int = 20,
    before: int = MAX_ID,
    *,
    operator: str | None = None,
    action: str | None = None,
    subject: str | None = None,
) -> None:
    """Return audit rows, newest first, filtered by operator, action and subject where given."""
