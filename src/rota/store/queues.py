"""Queries for paused queues. Each claim reads the pauses, so workers need no notification."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from rota.model.document import Mark
from rota.store.query import Query


class PauseRow(msgspec.Struct, frozen=True):
    """A paused queue, from which no job is claimed. Operator and reason are absent for viewers."""

    queue: str
    since: datetime
    operator: Annotated[str, Mark.HIDDEN]
    reason: Annotated[str, Mark.HIDDEN]


def pause(queue: str, operator: str, reason: str) -> Query[bool]:
    return Query("queue/pause", {"queue": queue, "operator": operator, "reason": reason}, bool)


def resume(queue: str) -> Query[bool]:
    return Query("queue/resume", {"queue": queue}, bool)


def list_paused() -> Query[PauseRow]:
    return Query("queue/list_paused", {}, PauseRow)
