"""Instance that stands by for monitor services and notes their iterations.

Its argument is JSON: database, file for the notes, services, interval and so on. A line of notes is a word,
a time on a clock that all processes of the machine share, and details.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rota import Rota
from rota.coord import service_balancer
from rota.coord.candidate import Candidate, Term
from rota.coord.leader import Leader
from rota.errors import LeadershipLost
from rota.model.events import Event, ServiceRan, ServicesStarted
from rota.model.service import ServiceContext
from rota.store import leaders


class Notes:
    """File of notes; every line is written at once, so that it survives a kill of the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __call__(self, word: str, *rest: object) -> None:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        line = " ".join(map(str, (word, f"{now:.6f}", *rest)))
        os.write(self._file, f"{line}\n".encode())


def monitor(note: Notes, takes: float) -> Callable[[ServiceContext], Any]:
    async def write(ctx: ServiceContext) -> None:
        what = (ctx.name, ctx.iteration, ctx.term)
        try:
            async with ctx.transaction() as connection:
                await connection.execute(
                    "insert into effects values (%s, %s, %s, %s)", (*what, os.getpid())
                )
        except LeadershipLost:
            note("refused", *what)
            raise

    async def iterate(ctx: ServiceContext) -> None:
        what = (ctx.name, ctx.iteration, ctx.term)
        note("begin", *what)
        try:
            await asyncio.sleep(takes / 2)
            await write(ctx)
            await asyncio.sleep(takes / 2)
        except asyncio.CancelledError:
            note("told", *what, ctx.held, ctx.stopping)
            await write(ctx)  # as code that ignores the loss does
            raise
        note("end", *what)

    return iterate


# Mutants


def elect_every_candidate() -> None:
    """Elect every candidate at once."""

    async def elected(self: Leader) -> Term:
        candidacy = self._candidacy
        assert candidacy is not None
        database = candidacy.coordinator.database
        await asyncio.sleep(0.5)
        instance = candidacy.coordinator.identity.instance
        async with database.connection() as connection:
            found = await connection.execute(
                "insert into rota.leaders (name, term, instance) values (%s, 1, %s) on conflict (name)"
                " do update set term = leaders.term + 1, instance = excluded.instance returning term",
                (self.name, instance),
            )
            [number] = await found.fetchone() or [0]
        return Term(candidacy.candidate, number, database.schema)

    Leader.elected = elected  # type: ignore[method-assign]
    Candidate.is_leader = lambda self, term=None: True  # type: ignore[method-assign]


def never_end_term() -> None:
    """Trust a term for ever, and do not assert it in the database."""
    Candidate.is_leader = lambda self, term=None: True  # type: ignore[method-assign]
    leaders.assert_term = lambda name, term: leaders.set_idle_timeout(60)
    Candidate.end_term = lambda self, *args: False  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "everybody is elected": elect_every_candidate,
    "a term is for life": never_end_term,
}


async def main(order: dict[str, Any]) -> None:
    note = Notes(order["notes"])
    if order.get("mutant"):
        MUTANTS[order["mutant"]]()

    def hear(event: Event) -> None:
        if isinstance(event, ServiceRan):
            note("ran", event.name, event.iteration, event.outcome)
        elif isinstance(event, ServicesStarted):
            note("up")

    for name, seconds in order.get("balancing", {}).items():
        getattr(service_balancer, name)  # raises if the constant has another name
        setattr(service_balancer, name, seconds)
    app = Rota(order["dsn"], drain_timeout=5)
    for name in order["services"]:
        app.service(name, every=order["every"], lease=order["lease"])(monitor(note, order["takes"]))
    app.subscribe(hear)
    async with app:
        await app.work()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(json.loads(sys.argv[1])))
