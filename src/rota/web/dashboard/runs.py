"""The runs there are: those that match what the address says, the latest first, page by page; and what to
do to some of them, or to all that match.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.app import listing
from rota.app.listing import Found
from rota.app.many import STATES
from rota.store import listing as store
from rota.store import views
from rota.store.listing import NEWEST, Matching
from rota.web.answers import Refused
from rota.web.api.matching import Find, Key, Meant, matching
from rota.web.api.operations import Desk
from rota.web.api.run_documents import State
from rota.web.api.shapes import LARGEST, Name
from rota.web.dashboard.pages import Elsewhere, Pages, View

table = Pages()

PAGE = 50

CHIPS: tuple[State, ...] = (
    *("running", "ready", "asleep", "quarantined"),
    *("failed", "cancelled", "expired", "succeeded"),
)

Number = Annotated[int, Meta(ge=1, le=LARGEST)]
Time = Annotated[str, Meta(max_length=40)]


class RunsQuery(msgspec.Struct, forbid_unknown_fields=True):
    name: Name | None = None
    queue: Name | None = None
    state: State | None = None
    key: Key | None = None
    id: Number | None = None
    since: Time | None = None
    until: Time | None = None
    find: Find | None = None
    before: Number | None = None
    after: Number | None = None


@table.page("/runs", title="Runs")
async def runs(desk: Desk, query: RunsQuery) -> View:
    await _lead_to_the_one(desk, query)
    meant = Meant(
        name=query.name,
        queue=query.queue,
        state=query.state,
        key=query.key,
        since=_moment("since", query.since),
        until=_moment("until", query.until),
        find=query.find,
    )
    match = matching(desk, meant)
    found, is_first = await _page(desk, match, query)
    lines = await listing.lines(desk.ask, match, found.spots)
    looked = None
    if found.looked is not None:
        [created] = await desk.ask(store.created(found.looked))
        looked = next(iter(created), None)  # it may have been removed meanwhile
    told = {
        name: value
        for name in meant.__struct_fields__
        if (value := getattr(query, name)) is not None
    }
    registry = desk.app.registry
    return View(
        "runs.html",
        lines=lines,
        shows=desk.shows,
        query=query,
        told=told,
        body={**told, **_times(meant)},
        acts=[act for act, states in STATES.items() if query.state in (None, *states)],
        narrowed=bool(told),
        looked=looked,
        further=found.looked,
        newer=None if is_first else (lines[0].run if lines else query.before),
        older=found.spots[-1].id if found.more else None,
        is_first=is_first,
        chips=CHIPS,
        names=sorted({*registry.flows, *registry.tasks}),
        queues=sorted({each.policy.queue for each in registry.tasks.values()}),
    )


async def _page(desk: Desk, match: Matching, query: RunsQuery) -> tuple[Found, bool]:
    """What is on the page, the latest first, and whether that is the first one."""
    if query.after is not None:
        found = await listing.find(desk.ask, match, PAGE, after=query.after, newer=True)
        if found.next is not None:
            # Older ones there are: where it came from.
            spots = found.spots[::-1]
            return Found(spots, bool(spots), None if spots else found.looked), False
    # Above what is newer there is nothing: that is the first page, and it is shown whole.
    before = NEWEST if query.before is None or query.after is not None else query.before
    found = await listing.find(desk.ask, match, PAGE, before=before)
    return found, before == NEWEST


async def _lead_to_the_one(desk: Desk, query: RunsQuery) -> None:
    """A number names a run, or a job of one: that has a page of its own."""
    wanted = query.id
    if wanted is None and query.find and query.find.strip().lstrip("#").isdecimal():
        wanted = min(int(query.find.strip().lstrip("#")), LARGEST)
    if wanted is None:
        return
    flows, jobs = await desk.ask(views.flow(wanted), views.run(wanted))
    if flows:
        raise Elsewhere(f"/runs/{wanted}")
    if jobs:
        run = jobs[0].run
        raise Elsewhere(f"/runs/{run}" if run == wanted else f"/runs/{run}?job={wanted}")
    if query.id is not None:
        raise Refused(404, "not_found", f"there is no run {wanted}, and no job")


def _moment(name: str, text: str | None) -> datetime | None:
    """A time as a field of a form gives it; without a zone, it is UTC."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(
            422, "invalid", f"{name} is a time such as 2026-11-16T15:04, not {text!r:.60}"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _times(meant: Meant) -> dict[str, str]:
    given = {"since": meant.since, "until": meant.until}
    return {name: at.isoformat() for name, at in given.items() if at is not None}
