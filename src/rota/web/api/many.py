"""Many runs at once over HTTP: count those that match, then cancel them or try them again, in portions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.app import many
from rota.model.access import Role
from rota.web.answers import Refused
from rota.web.api.matching import Meant, matching
from rota.web.api.operations import Desk, Table
from rota.web.api.shapes import LARGEST, Cursor, Id, Next, cursor, number

table = Table("runs")

SELECTED = 500


class CountQuery(Meant):
    act: Annotated[many.Act, Meta(description="Count those it can be done to.")] = "cancel"


class Counted(msgspec.Struct, frozen=True):
    count: int
    exact: Annotated[bool, Meta(description="False: there are at least so many.")]
    upto: Annotated[Id, Meta(description="For what is done to them: runs after it are not meant.")]


class Many(Meant):
    """Either the runs `upto` an id that match, or some by their ids, as far as they match."""

    upto: Annotated[Id, Meta(description="Of the count.")] | None = None
    ids: Annotated[list[Id], Meta(min_length=1, max_length=SELECTED)] | None = None
    cursor: Cursor | None = None


class Acted(msgspec.Struct, frozen=True):
    done: Annotated[int, Meta(description="Of this portion.")]
    spared: Annotated[int, Meta(description="It was too late for, or somebody else had done it.")]
    next: Annotated[Next, Meta(description="Send it again with this cursor.")] | None


@table.add("GET", "/runs/count", Role.VIEWER)
async def count_runs(desk: Desk, query: CountQuery) -> Counted:
    """How many runs match and could be cancelled, or tried again; of many, that there are many."""
    found = await many.count(desk.app, desk.ask, query.act, matching(desk, query))
    return Counted(found.count, found.exact, str(found.upto))


@table.add("POST", "/runs/cancel", Role.OPERATOR)
async def cancel_runs(desk: Desk, body: Many) -> Acted:
    """Cancel runs that match, the latest first, some at a time: send it again while there is a next."""
    return await _act(desk, "cancel", body)


@table.add("POST", "/runs/retry", Role.OPERATOR)
async def retry_runs(desk: Desk, body: Many) -> Acted:
    """Try runs that match once more, some at a time: send it again while there is a next."""
    return await _act(desk, "retry", body)


async def _act(desk: Desk, act: many.Act, body: Many) -> Acted:
    if (body.upto is None) == (body.ids is None):
        raise Refused(
            422, "invalid", "say which: `upto`, as GET /runs/count answers it, or `ids`; not both"
        )
    upto = LARGEST - 1 if body.upto is None else min(int(body.upto), LARGEST - 1)
    portion = await many.portion(
        desk.app,
        desk.ask,
        act,
        matching(desk, body, body.ids),
        upto=upto,
        before=None if body.cursor is None else number(body.cursor, LARGEST),
        by=desk.caller.name,
    )
    next = None if portion.next is None else cursor(str(portion.next))
    return Acted(portion.done, portion.spared, next)
