"""Queries for paused queues. Each claim reads the pauses, so workers need no notification."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import Query


class PauseRow(msgspec.Struct, frozen=True):
    queue: str
    since: datetime
    operator: str
    reason: str


def pause(queue: str, operator: str, reason: str) -> Query[bool]:
    return Query("queue/pause", {"queue": queue, "operator": operator, "reason": reason}, bool)


def resume(queue: str) -> Query[bool]:
    return Query("queue/resume", {"queue": queue}, bool)


def list_paused() -> Query[PauseRow]:
    return Query("queue/list_paused", {}, PauseRow)
