"""Read-only queries that search runs, page by page.

Each query reads a bounded number of rows. If it finds too few runs, the answer includes how far it
searched, and the next query can continue there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rota.store.query import REVERSED, Query, identity, statement
from rota.store.read.runs import RunRow

MAX_ID = 2**63 - 1

SCAN_ROWS = 20_000
"""Jobs and runs that the first query scans. Each further query scans twice as many."""

SLOW_SCAN_ROWS = 2_000
"""The same if each row needs another lookup, or if arguments and results are searched."""

MAX_SCAN_ROWS = 100_000

MAX_SEARCH_BYTES = 8192
"""Larger values are not searched for a text."""

MAX_QUEUED_ROWS = 150_000
"""Maximum number of queued jobs that are read. With more, only the latest jobs are scanned."""

MAX_KEY_NAMES = 1_000
"""Maximum number of tasks and flows that are searched for a key."""

ID_ORDER_SLACK = timedelta(minutes=10)
"""Time by which the order of ids and the order of creation may differ."""

OPEN_STATES = ("queued", "sleeping", "running", "quarantined")
FAILED_STATES = ("failed", "cancelled", "expired")


class RunFilter(msgspec.Struct, frozen=True):
    """Criteria for runs. None matches every run."""

    name: str | None = None
    """Name of the task or flow."""
    queue: str | None = None
    states: tuple[str, ...] | None = None
    key: str | None = None
    since: datetime | None = None
    """Created at this time or later."""
    until: datetime | None = None
    """Created before this time."""
    text: str | None = None
    """Text in the name or key; with `search_values` also in the input or error."""
    search_values: bool = False
    ids: tuple[int, ...] | None = None
    kind: str | None = None
    """`task` or `flow` if the kind of the name is known: only that kind is searched."""


class ListPosition(msgspec.Struct, frozen=True):
    id: int
    is_flow: bool | None
    """None if the search stopped at this id without a match."""


class LargeQueue(msgspec.Struct, frozen=True):
    is_large: bool
    last_id: int


def scan_all(
    run_filter: RunFilter,
    before: int,
    after: int,
    limit: int,
    scan_limit: int,
    *,
    oldest_first: bool = False,
) -> Query[ListPosition]:
    """Scan all jobs and runs."""
    params = {
        **_params(run_filter, before, after, limit, scan_limit),
        "tasks": run_filter.kind != "flow",
        "flows": run_filter.kind != "task" and run_filter.queue is None,
    }
    return Query(_in_order("run_list/scan_all", oldest_first), params, ListPosition)


def scan_states(
    run_filter: RunFilter,
    before: int,
    after: int,
    limit: int,
    scan_limit: int,
    *,
    oldest_first: bool = False,
) -> Query[ListPosition]:
    """Scan only the tables that hold the requested states."""
    params = _params(run_filter, before, after, limit, scan_limit)
    return Query(_in_order("run_list/scan_states", oldest_first), params, ListPosition)


def by_key(run_filter: RunFilter, before: int, after: int) -> Query[ListPosition]:
    """Return the runs with a key, latest first."""
    params = {"before": before, "after": after, "name_limit": MAX_KEY_NAMES}
    return Query("run_list/by_key", msgspec.structs.asdict(run_filter) | params, ListPosition)


@statement("run_list/by_id", ListPosition)
def by_id(ids: Sequence[int]) -> None:
    """Return those of the ids that are runs."""


def run_rows(positions: Sequence[ListPosition]) -> Query[RunRow]:
    params = {
        "ids": [each.id for each in positions],
        "is_flow": [each.is_flow for each in positions],
    }
    return Query("run_list/run_rows", params, RunRow)


@statement("run_list/last_id_before", int)
def last_id_before(at: datetime) -> None:
    """Return the last id assigned before a time, approximately."""


def created_at(id: int) -> Query[datetime]:
    return Query("run_list/created_at", {"id": id}, identity)


def large_queue(queue: str | None) -> Query[LargeQueue]:
    return Query("run_list/is_large", {"queue": queue, "limit": MAX_QUEUED_ROWS}, LargeQueue)


def _in_order(statement: str, oldest_first: bool) -> str:
    return statement + REVERSED if oldest_first else statement


def _params(
    run_filter: RunFilter, before: int, after: int, limit: int, scan_limit: int
) -> dict[str, object]:
    return {
        **msgspec.structs.asdict(run_filter),
        "states": None if run_filter.states is None else list(run_filter.states),
        "text": None if run_filter.text is None else run_filter.text.lower(),
        "max_bytes": MAX_SEARCH_BYTES,
        "before": before,
        "after": after,
        "limit": limit,
        "scan_limit": scan_limit,
    }
