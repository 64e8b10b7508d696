"""Runs that match, page by page. However many there are, a page takes about a tenth of a second: what was
not looked through by then is for the next one, and that is said.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from rota.store import listing
from rota.store.listing import NEWEST, Matching, Spot
from rota.store.query import Query
from rota.store.views import RunLine

if TYPE_CHECKING:
    from rota.app.rota import Rota

Ask = Callable[..., Awaitable[list[Any]]]
"""Rows of each query, read in one transaction."""

SECONDS = 0.1
"""After so long no further rows are looked through for a page."""


class Found(msgspec.Struct, frozen=True):
    """What was found, in the order in which it was looked for."""

    spots: list[Spot]
    more: bool
    """There is one more, at least."""
    looked: int | None
    """Not all was looked through, but as far as this id."""

    @property
    def next(self) -> int | None:
        """The id from which to go on; None: there is nothing more."""
        return self.spots[-1].id if self.more else self.looked


def of_kind(app: Rota, matching: Matching) -> Matching:
    """The same, with what the app knows of the name."""
    if matching.name in app.registry.flows:
        return msgspec.structs.replace(matching, kind="flow")
    if matching.name is not None and app.registry.get(matching.name) is not None:
        return msgspec.structs.replace(matching, kind="task")
    return matching


async def find(
    ask: Ask,
    matching: Matching,
    limit: int,
    *,
    before: int = NEWEST,
    after: int = 0,
    newer: bool = False,
    seconds: float | None = None,
) -> Found:
    """Runs between two ids, the latest first; `newer`: the earliest first. `seconds`: how long to look."""
    ends = time.monotonic() + (SECONDS if seconds is None else seconds)
    if matching.ids is not None or (matching.key is not None and matching.text is None):
        return await _few(ask, matching, limit, before, after, newer)
    before, after = await _between(ask, matching, before, after)
    seek = listing.in_places
    if matching.states is None or await _is_crowded(ask, matching):
        seek = listing.among_all
    window = max(_window(matching), limit)
    spots: list[Spot] = []
    while True:
        wanted = limit + 1 - len(spots)
        [found] = await ask(seek(matching, before, after, wanted, window, newer=newer))
        edge = found.pop().id if found and found[-1].is_flow is None else None
        spots += found
        if len(spots) > limit or edge is None:
            return Found(spots[:limit], len(spots) > limit, None)
        if time.monotonic() >= ends:
            return Found(spots, False, edge)
        before, after = (before, edge) if newer else (edge, after)
        window = min(window * 2, listing.LOOKS_AT_MOST)


def _window(matching: Matching) -> int:
    if matching.text is None and matching.states is None:
        return listing.LOOKS
    # All that is ready is read anew for each.
    twice = matching.states is not None and "ready" in matching.states
    return listing.LOOKS_UP * (2 if twice else 1)


async def lines(ask: Ask, matching: Matching, spots: list[Spot]) -> list[RunLine]:
    """What to say of them, the latest first; what has left its state meanwhile is left out."""
    if not spots:
        return []
    [found] = await ask(listing.lines(spots))
    return [each for each in found if matching.states is None or each.state in matching.states]


async def _few(
    ask: Ask, matching: Matching, limit: int, before: int, after: int, newer: bool
) -> Found:
    query: Query[Spot] = (
        listing.keyed(matching, before, after)
        if matching.ids is None
        else listing.given(matching.ids)
    )
    [found] = await ask(query)
    fitting = {each.run for each in await lines(ask, matching, found) if _fits(each, matching)}
    spots = [each for each in found if each.id in fitting and after < each.id < before]
    if newer:
        spots.reverse()
    return Found(spots[:limit], len(spots) > limit, None)


def _fits(line: RunLine, matching: Matching) -> bool:
    """Whether a run that was found by its id or key is also like the rest of it."""
    return (
        matching.name in (None, line.name)
        and matching.queue in (None, line.queue)
        and matching.key in (None, line.key)
        and (matching.since is None or line.created >= matching.since)
        and (matching.until is None or line.created < matching.until)
        and (matching.text is None or _says(line, matching.text.lower()))
    )


def _says(line: RunLine, text: str) -> bool:
    return text in line.name.lower() or (line.key is not None and text in line.key.lower())


async def _between(ask: Ask, matching: Matching, before: int, after: int) -> tuple[int, int]:
    """Ids rise with time, so between two times there are the ids between two others."""
    if matching.until is not None:
        [[last]] = await ask(listing.moment(_about(matching.until, listing.ASTRAY)))
        before = min(before, last + 1)
    if matching.since is not None:
        [[last]] = await ask(listing.moment(_about(matching.since, -listing.ASTRAY)))
        after = max(after, last)
    return before, after


def _about(at: datetime, by: timedelta) -> datetime:
    """Some time before or after, within the calendar."""
    try:
        return at + by
    except OverflowError:
        return at


async def _is_crowded(ask: Ask, matching: Matching) -> bool:
    if matching.states is None or "ready" not in matching.states:
        return False
    [[crowd]] = await ask(listing.crowd(matching.queue))
    return bool(crowd.crowded)
