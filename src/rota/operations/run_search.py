"""Filters of runs, shared by the operations that list, count, cancel and retry them, and paged search.

A page takes about a tenth of a second, however many runs there are. If the search stops early, the result
contains the id from which the next page continues.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from rota.model.access import Role
from rota.operations.declare import OperationContext
from rota.operations.documents import MAX_INT64, Cursor, Limit, Name, extend
from rota.operations.run_documents import State
from rota.store.query import Query
from rota.store.read import run_list
from rota.store.read.run_list import MAX_ID, ListPosition, RunFilter
from rota.store.read.runs import RunRow

if TYPE_CHECKING:
    from rota.app.rota import Rota

FetchRows = Callable[..., Awaitable[list[Any]]]
"""Function that returns the rows of each query, read in one transaction."""

SEARCH_SECONDS = 0.1
"""Time after which no further rows are scanned for a page."""


class RunSearchResult(msgspec.Struct, frozen=True):
    """Found runs, in the order of the search."""

    positions: list[ListPosition]
    has_more: bool
    """True if at least one more run matches."""
    searched_to: int | None
    """Last scanned id if the search stopped early, else None."""

    @property
    def next_id(self) -> int | None:
        """Id from which to continue; None if there are no more runs."""
        return self.positions[-1].id if self.has_more else self.searched_to


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
        extend(
            RunFilter,
            query,
            states=None if query.state is None else (query.state,),
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


def with_kind(app: Rota, run_filter: RunFilter) -> RunFilter:
    """Return the filter with the kind of its name, if the app knows the name."""
    if run_filter.name in app.registry.flows:
        return msgspec.structs.replace(run_filter, kind="flow")
    if run_filter.name is not None and app.registry.get(run_filter.name) is not None:
        return msgspec.structs.replace(run_filter, kind="task")
    return run_filter


async def find_runs(
    fetch: FetchRows,
    run_filter: RunFilter,
    limit: int,
    *,
    before: int = MAX_ID,
    after: int = 0,
    oldest_first: bool = False,
    seconds: float | None = None,
) -> RunSearchResult:
    """Return matching runs between two ids, the latest first, or the earliest first with `oldest_first`.

    `seconds` limits the duration of the search.
    """
    deadline = time.monotonic() + (SEARCH_SECONDS if seconds is None else seconds)
    if run_filter.ids is not None or (run_filter.key is not None and run_filter.text is None):
        return await _find_by_id_or_key(fetch, run_filter, limit, before, after, oldest_first)
    before, after = await _id_range(fetch, run_filter, before, after)
    build_query = run_list.scan_states
    if run_filter.states is None or await _is_large_queue(fetch, run_filter):
        build_query = run_list.scan_all
    scan_limit = max(_scan_limit(run_filter), limit)
    positions: list[ListPosition] = []
    while True:
        needed = limit + 1 - len(positions)
        [found] = await fetch(
            build_query(run_filter, before, after, needed, scan_limit, oldest_first=oldest_first)
        )
        boundary_id = found.pop().id if found and found[-1].is_flow is None else None
        positions += found
        if len(positions) > limit or boundary_id is None:
            return RunSearchResult(positions[:limit], len(positions) > limit, None)
        if time.monotonic() >= deadline:
            return RunSearchResult(positions, False, boundary_id)
        before, after = (before, boundary_id) if oldest_first else (boundary_id, after)
        scan_limit = min(scan_limit * 2, run_list.MAX_SCAN_ROWS)


def _scan_limit(run_filter: RunFilter) -> int:
    if run_filter.text is None and run_filter.states is None:
        return run_list.SCAN_ROWS
    # Each scan reads all queued jobs again.
    reads_queued = run_filter.states is not None and "queued" in run_filter.states
    return run_list.SLOW_SCAN_ROWS * (2 if reads_queued else 1)


async def load_rows(
    fetch: FetchRows, run_filter: RunFilter, positions: list[ListPosition]
) -> list[RunRow]:
    """Return the rows of these runs, the latest first, without runs that no longer
    have a matching state."""
    if not positions:
        return []
    [found] = await fetch(run_list.run_rows(positions))
    return [each for each in found if run_filter.states is None or each.state in run_filter.states]


async def _find_by_id_or_key(
    fetch: FetchRows, run_filter: RunFilter, limit: int, before: int, after: int, oldest_first: bool
) -> RunSearchResult:
    query: Query[ListPosition] = (
        run_list.by_key(run_filter, before, after)
        if run_filter.ids is None
        else run_list.by_id(run_filter.ids)
    )
    [found] = await fetch(query)
    matching_ids = {
        each.run for each in await load_rows(fetch, run_filter, found) if _matches(each, run_filter)
    }
    positions = [each for each in found if each.id in matching_ids and after < each.id < before]
    if oldest_first:
        positions.reverse()
    return RunSearchResult(positions[:limit], len(positions) > limit, None)


def _matches(row: RunRow, run_filter: RunFilter) -> bool:
    """True if a run that was found by id or key matches the rest of the filter."""
    return (
        run_filter.name in (None, row.name)
        and run_filter.queue in (None, row.queue)
        and run_filter.key in (None, row.key)
        and (run_filter.since is None or row.created >= run_filter.since)
        and (run_filter.until is None or row.created < run_filter.until)
        and (run_filter.text is None or _contains_text(row, run_filter.text.lower()))
    )


def _contains_text(row: RunRow, text: str) -> bool:
    return text in row.name.lower() or (row.key is not None and text in row.key.lower())


async def _id_range(
    fetch: FetchRows, run_filter: RunFilter, before: int, after: int
) -> tuple[int, int]:
    """Return the range of ids for the filter's times. Ids increase with time, apart from ID_ORDER_SLACK."""
    if run_filter.until is not None:
        [[last]] = await fetch(
            run_list.last_id_before(_shift_time(run_filter.until, run_list.ID_ORDER_SLACK))
        )
        before = min(before, last + 1)
    if run_filter.since is not None:
        [[last]] = await fetch(
            run_list.last_id_before(_shift_time(run_filter.since, -run_list.ID_ORDER_SLACK))
        )
        after = max(after, last)
    return before, after


def _shift_time(at: datetime, by: timedelta) -> datetime:
    """Return the shifted time, or `at` itself outside the range of datetime."""
    try:
        return at + by
    except OverflowError:
        return at


async def _is_large_queue(fetch: FetchRows, run_filter: RunFilter) -> bool:
    if run_filter.states is None or "queued" not in run_filter.states:
        return False
    [[large_queue]] = await fetch(run_list.large_queue(run_filter.queue))
    return bool(large_queue.is_large)
