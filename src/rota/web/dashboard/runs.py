"""Runs page: the runs that match the filter in the address, the latest first, and bulk actions on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.operations import run_search
from rota.operations.bulk import ACTION_STATES
from rota.operations.declare import OperationContext
from rota.operations.documents import MAX_INT64, Name, extend
from rota.operations.run_documents import State
from rota.operations.run_search import (
    Key,
    RunFilterQuery,
    RunSearchResult,
    SearchText,
    build_run_filter,
)
from rota.store.read import run_list as store
from rota.store.read import runs as read_runs
from rota.store.read.run_list import MAX_ID, RunFilter
from rota.web.dashboard.router import Pages, PageView, RedirectTo
from rota.web.responses import HttpError

pages = Pages()

PAGE_SIZE = 50

STATE_FILTERS: tuple[State, ...] = (
    *("running", "queued", "sleeping", "quarantined"),
    *("failed", "cancelled", "expired", "succeeded"),
)

RunId = Annotated[int, Meta(ge=1, le=MAX_INT64)]
Time = Annotated[str, Meta(max_length=40)]


class RunsPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    name: Name | None = None
    queue: Name | None = None
    state: State | None = None
    key: Key | None = None
    id: RunId | None = None
    since: Time | None = None
    until: Time | None = None
    find: SearchText | None = None
    before: RunId | None = None
    after: RunId | None = None


@pages.page("/runs", title="Runs")
async def runs(context: OperationContext, query: RunsPageQuery) -> PageView:
    await _redirect_to_id(context, query)
    filter_query = extend(
        RunFilterQuery,
        query,
        since=_parse_time("since", query.since),
        until=_parse_time("until", query.until),
    )
    run_filter = build_run_filter(context, filter_query)
    found, is_first = await _load_page(context, run_filter, query)
    rows = await run_search.load_rows(context.read, run_filter, found.positions)
    searched_since = None
    if found.searched_to is not None:
        [created] = await context.read(store.created_at(found.searched_to))
        searched_since = next(iter(created), None)  # it may have been deleted meanwhile
    filters = {
        name: value
        for name in filter_query.__struct_fields__
        if (value := getattr(query, name)) is not None
    }
    registry = context.app.registry
    return PageView(
        "runs.html",
        run_rows=rows,
        query=query,
        filters=filters,
        body={**filters, **_time_filters(filter_query)},
        actions=[
            action for action, states in ACTION_STATES.items() if query.state in (None, *states)
        ],
        is_filtered=bool(filters),
        searched_since=searched_since,
        search_before=found.searched_to,
        newer=None if is_first else (rows[0].run if rows else query.before),
        older=found.positions[-1].id if found.has_more else None,
        is_first=is_first,
        state_filters=STATE_FILTERS,
        names=sorted({*registry.flows, *registry.tasks}),
        queues=sorted({each.policy.queue for each in registry.tasks.values()}),
    )


async def _load_page(
    context: OperationContext, run_filter: RunFilter, query: RunsPageQuery
) -> tuple[RunSearchResult, bool]:
    """Return the runs of the page, the latest first, and True if it is the first page."""
    if query.after is not None:
        found = await run_search.find_runs(
            context.read, run_filter, PAGE_SIZE, after=query.after, oldest_first=True
        )
        if found.next_id is not None:
            # Older runs exist: the viewer came from a page with them.
            positions = found.positions[::-1]
            return RunSearchResult(
                positions, bool(positions), None if positions else found.searched_to
            ), False
    # No newer runs: this is the first page, and it is shown in full.
    before = MAX_ID if query.before is None or query.after is not None else query.before
    found = await run_search.find_runs(context.read, run_filter, PAGE_SIZE, before=before)
    return found, before == MAX_ID


async def _redirect_to_id(context: OperationContext, query: RunsPageQuery) -> None:
    """Redirect to the page of the run or job if the search text is an id."""
    target_id = query.id
    if target_id is None and query.find and query.find.strip().lstrip("#").isdecimal():
        target_id = min(int(query.find.strip().lstrip("#")), MAX_INT64)
    if target_id is None:
        return
    flows, jobs = await context.read(read_runs.flow(target_id), read_runs.run(target_id))
    if flows:
        raise RedirectTo(f"/runs/{target_id}")
    if jobs:
        run = jobs[0].run
        raise RedirectTo(f"/runs/{run}" if run == target_id else f"/runs/{run}?job={target_id}")
    if query.id is not None:
        raise HttpError(404, "not_found", f"there is no run {target_id}, and no job")


def _parse_time(name: str, text: str | None) -> datetime | None:
    """Return the time of a form field; without a zone it is UTC."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise HttpError(
            422, "invalid", f"{name} is a time such as 2026-11-16T15:04, not {text!r:.60}"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _time_filters(filter_query: RunFilterQuery) -> dict[str, str]:
    given = {"since": filter_query.since, "until": filter_query.until}
    return {name: at.isoformat() for name, at in given.items() if at is not None}
