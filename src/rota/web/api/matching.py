"""Which runs are meant: what a list, a count and what is done to many take alike."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.app.listing import of_kind
from rota.model.access import Role
from rota.store.listing import Matching
from rota.web.api.operations import Desk
from rota.web.api.run_documents import State
from rota.web.api.shapes import LARGEST, Cursor, Limit, Name

Key = Annotated[
    str,
    Meta(min_length=1, max_length=500, description="Of each task and flow, the last run with it."),
]
Moment = Annotated[datetime, Meta(tz=True)]
Since = Annotated[Moment, Meta(description="Created then or later.")]
Until = Annotated[Moment, Meta(description="Created before.")]
Find = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="Text in its name or key; for operators also in its input, or its error.",
    ),
]


class Meant(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[Name, Meta(description="Of a task or a flow.")] | None = None
    queue: Name | None = None
    state: State | None = None
    key: Key | None = None
    since: Since | None = None
    until: Until | None = None
    find: Find | None = None


class RunsQuery(Meant):
    limit: Limit = 50
    cursor: Cursor | None = None


def matching(desk: Desk, meant: Meant, ids: list[str] | None = None) -> Matching:
    """… as the store is asked. Viewers learn nothing of what went in, also not by looking for it."""
    return of_kind(
        desk.app,
        Matching(
            name=meant.name,
            queue=meant.queue,
            states=None if meant.state is None else (meant.state,),
            key=meant.key,
            since=in_utc(meant.since),
            until=in_utc(meant.until),
            text=meant.find,
            whole=desk.caller.may(Role.OPERATOR),
            ids=None if ids is None else tuple(min(int(each), LARGEST) for each in ids),
        ),
    )


def in_utc(at: datetime | None) -> datetime | None:
    """A time that PostgreSQL knows, too: those at the ends of the calendar are not moved."""
    if at is None:
        return None
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return at.replace(tzinfo=UTC)
