"""Which runs match, page by page, and what to say of them.

No question reads more than so many rows, however much there is: who finds too few is told how far was
looked, and can ask for what lies beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rota.store.query import Query
from rota.store.read.runs import RunRow

MAX_ID = 2**63 - 1

SCAN_ROWS = 20_000
"""Jobs, and runs, that are looked through at first; then twice as many, and so on."""

SLOW_SCAN_ROWS = 2_000
"""… where something else has to be looked up for each, or what went in and came out is read."""

MAX_SCAN_ROWS = 100_000

MAX_SEARCH_BYTES = 8192
"""What is larger than this is not read for a text."""

MAX_QUEUED_ROWS = 150_000
"""So many that are ready are read; among more, the latest are looked through."""

MAX_KEY_NAMES = 1_000
"""Tasks and flows that are looked through for a key."""

ID_ORDER_SLACK = timedelta(minutes=10)
"""By so much the order of ids and that of times may differ."""

OPEN_STATES = ("ready", "asleep", "running", "quarantined")
FAILED_STATES = ("failed", "cancelled", "expired")


class RunFilter(msgspec.Struct, frozen=True):
    """What a run has to be like. Nothing said, nothing wanted."""

    name: str | None = None
    """Of its task or its flow."""
    queue: str | None = None
    states: tuple[str, ...] | None = None
    key: str | None = None
    since: datetime | None = None
    """Created then or later."""
    until: datetime | None = None
    """Created before."""
    text: str | None = None
    """In its name or its key; `whole`: or in what went in, or its error."""
    search_values: bool = False
    ids: tuple[int, ...] | None = None
    """One of these."""
    kind: str | None = None
    """`task` or `flow`, where that is known of the name: the other is not looked for."""


class ListPosition(msgspec.Struct, frozen=True):
    id: int
    is_flow: bool | None
    """None: there is no more of it before this; that far was looked."""


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
    """Looked for among all there are."""
    params = {
        **_params(run_filter, before, after, limit, scan_limit),
        "tasks": run_filter.kind != "flow",
        "flows": run_filter.kind != "task" and run_filter.queue is None,
    }
    return Query("listing/newer" if oldest_first else "listing/older", params, ListPosition)


def scan_states(
    run_filter: RunFilter,
    before: int,
    after: int,
    limit: int,
    scan_limit: int,
    *,
    oldest_first: bool = False,
) -> Query[ListPosition]:
    """Looked for where those in these states are."""
    params = _params(run_filter, before, after, limit, scan_limit)
    return Query(
        "listing/places_newer" if oldest_first else "listing/places_older", params, ListPosition
    )


def by_key(run_filter: RunFilter, before: int, after: int) -> Query[ListPosition]:
    """Those with a key, the latest first."""
    params = {
        "name": run_filter.name,
        "key": run_filter.key,
        "queue": run_filter.queue,
        "since": run_filter.since,
        "until": run_filter.until,
        "before": before,
        "after": after,
        "window": MAX_KEY_NAMES,
    }
    return Query("listing/keyed", params, ListPosition)


def by_id(ids: Sequence[int]) -> Query[ListPosition]:
    """Those of these that are runs."""
    return Query("listing/given", {"ids": list(ids)}, ListPosition)


def run_rows(positions: Sequence[ListPosition]) -> Query[RunRow]:
    params = {"ids": [each.id for each in positions], "kinds": [each.is_flow for each in positions]}
    return Query("listing/lines", params, RunRow)


def last_id_before(at: datetime) -> Query[int]:
    """The last id given before then, more or less."""
    return Query("listing/moment", {"at": at}, int)


def created_at(id: int) -> Query[datetime]:
    return Query("listing/created", {"id": id}, _identity)


def large_queue(queue: str | None) -> Query[LargeQueue]:
    return Query("listing/crowded", {"queue": queue, "many": MAX_QUEUED_ROWS}, LargeQueue)


def _params(
    run_filter: RunFilter, before: int, after: int, limit: int, scan_limit: int
) -> dict[str, object]:
    return {
        "name": run_filter.name,
        "queue": run_filter.queue,
        "key": run_filter.key,
        "states": None if run_filter.states is None else list(run_filter.states),
        "since": run_filter.since,
        "until": run_filter.until,
        "text": None if run_filter.text is None else run_filter.text.lower(),
        "whole": run_filter.search_values,
        "bytes": MAX_SEARCH_BYTES,
        "before": before,
        "after": after,
        "limit": limit,
        "window": scan_limit,
    }


def _identity(value: datetime) -> datetime:
    return value
