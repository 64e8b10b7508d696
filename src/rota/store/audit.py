"""What people do by hand, and what is written down about it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import Query


class Entry(msgspec.Struct, frozen=True):
    id: int
    at: datetime
    who: str
    action: str
    subject: str
    detail: bytes


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


def release(name: str, slot: int, who: str) -> Query[Taken]:
    return Query("audit/release", {"name": name, "slot": slot, "who": who}, Taken)


def blockers(pid: int) -> Query[Blocker]:
    return Query("audit/blockers", {"pid": pid}, Blocker)


def process() -> Query[int]:
    return Query("audit/process", {}, int)


def entries(limit: int = 20) -> Query[Entry]:
    return Query("view/audit", {"limit": limit}, Entry)
