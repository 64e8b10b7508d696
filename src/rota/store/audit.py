"""What people do by hand, and what is written down about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from rota.store.query import Query

NEWEST = 2**63 - 1


class Entry(msgspec.Struct, frozen=True):
    id: int
    at: datetime
    who: str
    action: str
    subject: str
    detail: bytes


class Deed(msgspec.Struct, frozen=True):
    """Who does what to whom. What goes into runs and comes out of them is no part of it."""

    who: str
    action: str
    subject: str
    detail: Mapping[str, str | int] = {}


class Taken(msgspec.Struct, frozen=True):
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


def release(name: str, slot: int, who: str, token: int | None = None) -> Query[Taken]:
    """`token`: only from who holds it under that one."""
    params = {"name": name, "slot": slot, "who": who, "token": token}
    return Query("audit/release", params, Taken)


def blockers(pid: int) -> Query[Blocker]:
    return Query("audit/blockers", {"pid": pid}, Blocker)


def process() -> Query[int]:
    return Query("audit/process", {}, int)


def note(deed: Deed) -> Query[Any]:
    """In the transaction that does it."""
    detail = msgspec.json.encode(deed.detail).decode()
    params = {"who": deed.who, "action": deed.action, "subject": deed.subject, "detail": detail}
    return Query("audit/note", params, lambda: None)


def entries(
    limit: int = 20,
    before: int = NEWEST,
    *,
    who: str | None = None,
    action: str | None = None,
    subject: str | None = None,
) -> Query[Entry]:
    """The last first; by one, of one kind, to one thing where named."""
    said = {"who": who, "action": action, "subject": subject}
    return Query("view/audit", {"limit": limit, "before": before, **said}, Entry)
