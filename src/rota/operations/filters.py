"""Run filters, shared by the operations that list, count, cancel and retry runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.access import Role
from rota.operations.declare import OperationContext
from rota.operations.documents import MAX_INT64, Cursor, Limit, Name
from rota.operations.run_documents import State
from rota.operations.run_search import with_kind
from rota.store.read.run_list import RunFilter

Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=500,
        description="Only the last run with this key, of each task and flow.",
    ),
]
Timestamp = Annotated[datetime, Meta(tz=True)]
Since = Annotated[Timestamp, Meta(description="Created at this time or later.")]
Until = Annotated[Timestamp, Meta(description="Created before this time.")]
SearchText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="Text in the name or key; for operators also in the input or error.",
    ),
]


class RunFilterQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[Name, Meta(description="Name of a task or a flow.")] | None = None
    queue: Name | None = None
    state: State | None = None
    key: Key | None = None
    since: Since | None = None
    until: Until | None = None
    find: SearchText | None = None


class RunListQuery(RunFilterQuery):
    limit: Limit = 50
    cursor: Cursor | None = None


def build_run_filter(
    context: OperationContext, query: RunFilterQuery, ids: list[str] | None = None
) -> RunFilter:
    """Return the store's filter for a query. For viewers, the text search does not cover payloads."""
    return with_kind(
        context.app,
        RunFilter(
            name=query.name,
            queue=query.queue,
            states=None if query.state is None else (query.state,),
            key=query.key,
            since=in_utc(query.since),
            until=in_utc(query.until),
            text=query.find,
            search_values=context.caller.has_role(Role.OPERATOR),
            ids=None if ids is None else tuple(min(int(each), MAX_INT64) for each in ids),
        ),
    )


def in_utc(at: datetime | None) -> datetime | None:
    """Return a time in UTC that PostgreSQL can store; a time at either end of the calendar is not
    converted.
    """
    if at is None:
        return None
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return at.replace(tzinfo=UTC)
