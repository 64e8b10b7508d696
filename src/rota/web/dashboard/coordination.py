"""What instances agree on: who holds, leads and runs what, who waits for it, and what was done once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.store import standing
from rota.store.standing import LockLine
from rota.web.api.operations import Desk
from rota.web.api.shapes import failure
from rota.web.dashboard.pages import Pages, View

table = Pages()

LOCKS = 50
RATES = 50
ONCES = 20
ITERATIONS = 20
BRIEF = 300


class CoordinationQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How the names and keys begin that are looked for, and after which a page begins."""

    lock: Annotated[str, Meta(max_length=200)] = ""
    lock_after: Annotated[str, Meta(max_length=200)] = ""
    permit_after: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    once: Annotated[str, Meta(max_length=200)] = ""
    once_after: Annotated[str, Meta(max_length=500)] = ""
    service: Annotated[str, Meta(max_length=200)] = ""
    """Whose last iterations are shown."""


class Semaphore(msgspec.Struct, frozen=True):
    name: str
    permits: list[LockLine]

    @property
    def held(self) -> int:
        return sum(each.held for each in self.permits)


@table.page("/coordination", title="Coordination")
async def coordination(desk: Desk, query: CoordinationQuery) -> View:
    locks, leaders, services, rates, onces, iterations = await desk.ask(
        standing.locks(
            begins=query.lock, after=(query.lock_after, query.permit_after), limit=LOCKS + 1
        ),
        standing.leaders(),
        standing.services(),
        standing.rates(limit=RATES + 1),
        standing.onces(query.once, query.once_after, ONCES + 1),
        standing.iterations(query.service, ITERATIONS),
    )
    shown = locks[:LOCKS]
    return View(
        "coordination.html",
        query=query,
        locks=[each for each in shown if each.permit == 0],
        semaphores=_semaphores([each for each in shown if each.permit > 0]),
        last_lock=shown[-1] if len(locks) > LOCKS else None,
        leaders=leaders,
        services=[(each, failure(each.error, shown=desk.shows)) for each in services],
        iterations=[(each, failure(each.error, shown=desk.shows)) for each in iterations],
        rates=rates[:RATES],
        more_rates=len(rates) > RATES,
        onces=onces[:ONCES],
        more_onces=onces[ONCES - 1].key if len(onces) > ONCES else None,
        results=[brief(each.result) for each in onces[:ONCES]],
        shows=desk.shows,
    )


def _semaphores(permits: Sequence[LockLine]) -> list[Semaphore]:
    return [
        Semaphore(name, list(held)) for name, held in groupby(permits, key=lambda each: each.name)
    ]


def brief(result: bytes | None) -> str:
    """How a result begins."""
    text = "null" if result is None else result.decode()
    return text if len(text) <= BRIEF else f"{text[:BRIEF]}…"
