"""The audit log: who did what to what, and when."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.access import Role
from rota.store import audit as rows
from rota.store import ticks
from rota.web.api.operations import Desk
from rota.web.api.shapes import LARGEST
from rota.web.dashboard.pages import Pages, View
from rota.web.dashboard.shown import moment, segment

table = Pages()

PAGE = 50


class AuditQuery(msgspec.Struct, forbid_unknown_fields=True):
    who: Annotated[str, Meta(max_length=1000)] | None = None
    action: Annotated[str, Meta(max_length=200)] | None = None
    subject: Annotated[str, Meta(max_length=4000)] | None = None
    before: Annotated[int, Meta(ge=1, le=LARGEST)] = rows.NEWEST


@table.page("/audit", title="Audit", role=Role.ADMIN)
async def audit(desk: Desk, query: AuditQuery) -> View:
    asked = rows.entries(
        PAGE + 1, query.before, who=query.who, action=query.action, subject=query.subject
    )
    _, found = await desk.ask(ticks.hurry(), asked)
    page = found[:PAGE]
    return View(
        "audit.html",
        query=query,
        newest=query.before == rows.NEWEST,
        narrowed=bool(query.who or query.action or query.subject),
        entries=[(each, details(each.detail), about(each.action, each.subject)) for each in page],
        older=page[-1].id if len(found) > PAGE else None,
    )


def details(document: bytes) -> list[tuple[str, str]]:
    """What was written down with it: names and plain values."""
    found: dict[str, object] = msgspec.json.decode(document)
    return [(name, _plain(value)) for name, value in found.items() if value is not None]


def _plain(value: object) -> str:
    if not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if _TIME.match(value):
        with suppress(ValueError):
            return moment(datetime.fromisoformat(value))
    return value


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*[+Z]")


def about(action: str, subject: str) -> str | None:
    """The page of what it was done to; None: it has none."""
    thing = action.rpartition(" ")[2]
    if thing in ("run", "job") and subject.isdecimal():
        return f"/runs/{subject}"
    if thing == "schedule":
        return f"/schedules/{segment(subject)}"
    return {
        "worker": "/workers",
        "instance": "/workers",
        "queue": "/queues",
        "lock": "/coordination",
        "alert": "/alerts",
    }.get(thing)
