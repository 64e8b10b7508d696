"""Queues that are paused: whoever claims asks, so no worker has to hear of it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.store.query import Query


class Pause(msgspec.Struct, frozen=True):
    queue: str
    since: datetime
    who: str
    why: str


def pause(queue: str, who: str, why: str) -> Query[bool]:
    return Query("queue/pause", {"queue": queue, "who": who, "why": why}, bool)


def resume(queue: str) -> Query[bool]:
    return Query("queue/resume", {"queue": queue}, bool)


def paused() -> Query[Pause]:
    return Query("queue/paused", {}, Pause)
