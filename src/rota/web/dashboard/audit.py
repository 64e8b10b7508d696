"""Audit log page: operator, action, subject and time."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.access import Role
from rota.operations.declare import OperationContext
from rota.operations.documents import MAX_INT64
from rota.store import audit as rows
from rota.store import ticks
from rota.web.dashboard.router import Pages, PageView
from rota.web.dashboard.template_helpers import format_time, segment

pages = Pages()

PAGE_SIZE = 50


class AuditPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    operator: Annotated[str, Meta(max_length=1000)] | None = None
    action: Annotated[str, Meta(max_length=200)] | None = None
    subject: Annotated[str, Meta(max_length=4000)] | None = None
    before: Annotated[int, Meta(ge=1, le=MAX_INT64)] = rows.MAX_ID


@pages.page("/audit", title="Audit", role=Role.ADMIN)
async def audit(context: OperationContext, query: AuditPageQuery) -> PageView:
    entries_query = rows.entries(
        PAGE_SIZE + 1,
        query.before,
        operator=query.operator,
        action=query.action,
        subject=query.subject,
    )
    _, found = await context.read(ticks.set_short_timeouts(), entries_query)
    page = found[:PAGE_SIZE]
    return PageView(
        "audit.html",
        query=query,
        newest=query.before == rows.MAX_ID,
        is_filtered=bool(query.operator or query.action or query.subject),
        entries=[(each, details(each.detail), page_of(each.action, each.subject)) for each in page],
        older=page[-1].id if len(found) > PAGE_SIZE else None,
    )


def details(document: bytes) -> list[tuple[str, str]]:
    """Return the details of an audit entry as pairs of name and plain value."""
    found: dict[str, object] = msgspec.json.decode(document)
    return [(name, _format_value(value)) for name, value in found.items() if value is not None]


def _format_value(value: object) -> str:
    if not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if _TIME.match(value):
        with suppress(ValueError):
            return format_time(datetime.fromisoformat(value))
    return value


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*[+Z]")


def page_of(action: str, subject: str) -> str | None:
    """Return the page about the subject of an action, or None if there is none."""
    subject_kind = action.rpartition(" ")[2]
    if subject_kind in ("run", "job") and subject.isdecimal():
        return f"/runs/{subject}"
    if subject_kind == "schedule":
        return f"/schedules/{segment(subject)}"
    return {
        "worker": "/workers",
        "instance": "/workers",
        "queue": "/queues",
        "lock": "/coordination",
        "alert": "/alerts",
    }.get(subject_kind)
