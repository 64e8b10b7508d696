"""Which runs match, page by page, and what to say of them.

No question reads more than so many rows, however much there is: who finds too few is told how far was
looked, and can ask for what lies beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rota.store.query import Query
from rota.store.views import RunLine

NEWEST = 2**63 - 1

LOOKS = 20_000
"""Jobs, and runs, that are looked through at first; then twice as many, and so on."""

LOOKS_UP = 2_000
"""… where something else has to be looked up for each, or what went in and came out is read."""

LOOKS_AT_MOST = 100_000

BYTES = 8192
"""What is larger than this is not read for a text."""

READY = 150_000
"""So many that are ready are read; among more, the latest are looked through."""

NAMES = 1_000
"""Tasks and flows that are looked through for a key."""

ASTRAY = timedelta(minutes=10)
"""By so much the order of ids and that of times may differ."""

OPEN = ("ready", "asleep", "running", "quarantined")
BAD = ("failed", "cancelled", "expired")


class Matching(msgspec.Struct, frozen=True):
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
    whole: bool = False
    ids: tuple[int, ...] | None = None
    """One of these."""
    kind: str | None = None
    """`task` or `flow`, where that is known of the name: the other is not looked for."""


class Spot(msgspec.Struct, frozen=True):
    id: int
    is_flow: bool | None
    """None: there is no more of it before this; that far was looked."""


class Crowd(msgspec.Struct, frozen=True):
    crowded: bool
    newest: int


def among_all(
    matching: Matching, before: int, after: int, limit: int, window: int, *, newer: bool = False
) -> Query[Spot]:
    """Looked for among all there are."""
    params = {
        **_params(matching, before, after, limit, window),
        "tasks": matching.kind != "flow",
        "flows": matching.kind != "task" and matching.queue is None,
    }
    return Query("listing/newer" if newer else "listing/older", params, Spot)


def in_places(
    matching: Matching, before: int, after: int, limit: int, window: int, *, newer: bool = False
) -> Query[Spot]:
    """Looked for where those in these states are."""
    params = _params(matching, before, after, limit, window)
    return Query("listing/places_newer" if newer else "listing/places_older", params, Spot)


def keyed(matching: Matching, before: int, after: int) -> Query[Spot]:
    """Those with a key, the latest first."""
    params = {
        "name": matching.name,
        "key": matching.key,
        "queue": matching.queue,
        "since": matching.since,
        "until": matching.until,
        "before": before,
        "after": after,
        "window": NAMES,
    }
    return Query("listing/keyed", params, Spot)


def given(ids: Sequence[int]) -> Query[Spot]:
    """Those of these that are runs."""
    return Query("listing/given", {"ids": list(ids)}, Spot)


def lines(spots: Sequence[Spot]) -> Query[RunLine]:
    params = {"ids": [each.id for each in spots], "kinds": [each.is_flow for each in spots]}
    return Query("listing/lines", params, RunLine)


def moment(at: datetime) -> Query[int]:
    """The last id given before then, more or less."""
    return Query("listing/moment", {"at": at}, int)


def created(id: int) -> Query[datetime]:
    return Query("listing/created", {"id": id}, _same)


def crowd(queue: str | None) -> Query[Crowd]:
    return Query("listing/crowded", {"queue": queue, "many": READY}, Crowd)


def _params(
    matching: Matching, before: int, after: int, limit: int, window: int
) -> dict[str, object]:
    return {
        "name": matching.name,
        "queue": matching.queue,
        "key": matching.key,
        "states": None if matching.states is None else list(matching.states),
        "since": matching.since,
        "until": matching.until,
        "text": None if matching.text is None else matching.text.lower(),
        "whole": matching.whole,
        "bytes": BYTES,
        "before": before,
        "after": after,
        "limit": limit,
        "window": window,
    }


def _same(value: datetime) -> datetime:
    return value
