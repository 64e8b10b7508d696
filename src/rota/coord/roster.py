"""Who is there to run services, and who had better run which: the part of a keeper that spreads them.

Every instance says now and then what it knows and what it runs, and sees the others. Of services that are
vacant whoever runs no more than the others takes its share at once, and leaves the rest to them for a
moment; then it takes what nobody has. Whoever runs at least two more than somebody who could have one
passes on what is above its share.

It is advice: what keeps a service on one instance is that one leads at a time, whatever the roster says.

An instance that was killed stays listed until its row expires. No service is handed over to it: the row of
a dead worker's process is not read, and an instance counts as present only if it reported within the last
PRESENT seconds and since the last change here, and does not claim to run a service that runs here.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID

from rota.coord import trust
from rota.coord.identity import Identity
from rota.store import failures, services
from rota.store.database import run
from rota.store.services import Present

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")

BEAT = 2.0
LEASE = 8.0
"""Seconds between words, and for which one counts."""

PRESENT = 3.0
"""Seconds since its last report for which an instance may be given a service."""

RELUCTANCE = 1.5
"""Seconds for which a vacant service is left to whoever runs less."""

LOOK_FIRST = 0.05
"""Seconds in which whoever has just come may look around."""

SETTLED = 4.0
"""Seconds after which what runs here may be passed on: the others must have been seen to take what was
passed on before."""


class Roster:
    patience = 5.0

    def __init__(
        self,
        identity: Identity,
        schema: str,
        version: str,
        known: Iterable[str],
        running: Callable[[], list[str]],
        staying: Callable[[], list[str]],
        pass_on: Callable[[str], None],
    ) -> None:
        self._identity = identity
        self._schema = schema
        self._version = version
        self._known = sorted(known)
        self._running = running
        self._staying = staying
        self._pass_on = pass_on
        self._others: dict[UUID, Present] = {}
        self._seen = False
        self._due = 0.0
        self._changed_at = trust.now()
        self._passes_on_from = self._changed_at + SETTLED
        self._left: Callable[[], None] | None = None

    # As a part of a keeper

    def due(self) -> float:
        return self._due

    def ends(self) -> float:
        return float("inf")

    def expire(self) -> None: ...

    def cut(self) -> None: ...

    async def turn(self, connection: Session) -> None:
        me = self._identity
        if self._left is not None:
            self._due = float("inf")
            await run(connection, services.leave(me.instance), self._schema)
            self._left()
            return
        self._due = trust.now() + BEAT * random.uniform(0.8, 1.2)
        query = services.beat(me.under(""), self._version, LEASE, self._known, self._running())
        try:
            there = await run(connection, query, self._schema)
        except Exception as error:
            if failures.is_passing(error) or failures.is_contended(error):
                raise
            # Advice costs nobody the connection that his terms hang on.
            log.warning("services are not spread: %s", failures.first_line(error))
            return
        self._others = {each.instance: each for each in there if each.instance != me.instance}
        self._seen = True
        self._consider()

    def changed(self) -> None:
        """What runs here is not what was said last."""
        self._changed_at = trust.now()
        self._passes_on_from = self._changed_at + SETTLED
        if self._left is None:
            self._due = 0.0

    def leave(self, left: Callable[[], None]) -> None:
        self._left = left
        self._due = 0.0

    # Advice

    def reluctance(self, service: str, vacant: Sequence[str]) -> float:
        """Seconds for which this instance leaves a service to others, when these leaders are vacant."""
        if not self._seen:
            return LOOK_FIRST
        mine = len(self._running())
        # Who says that he runs it has lost it, or has died.
        loads = [
            len(each.running)
            for each in self._others.values()
            if service in each.services and service not in each.running
        ]
        if any(load < mine for load in loads):
            return RELUCTANCE
        known = {name for each in self._others.values() for name in each.services}
        share = -(-len(known.union(self._known)) // (1 + len(self._others)))
        mine_first = sorted(vacant, key=self._order)
        place = mine_first.index(services.leader_of(service))
        return 0.0 if place < max(share - mine, 1) else RELUCTANCE

    def _order(self, leader: str) -> bytes:
        """Not the same for everybody: who takes a part of them takes another."""
        return blake2b(leader.encode(), key=self._identity.instance.bytes).digest()

    def _consider(self) -> None:
        if trust.now() < self._passes_on_from:
            return
        staying = self._staying()
        leaving = [name for name in self._running() if name not in staying]
        chosen = self.surplus(staying, leaving, self._present())
        if chosen:
            self._passes_on_from = trust.now() + SETTLED * random.uniform(0.8, 1.2)
            log.info("passes on %s: others run fewer", ", ".join(chosen))
            for name in chosen:
                self._pass_on(name)

    def _present(self) -> list[Present]:
        """Return the instances that may be given a service."""
        within = min(PRESENT, trust.now() - self._changed_at)
        running = set(self._running())
        return [
            each
            for each in self._others.values()
            if each.silent < within and running.isdisjoint(each.running)
        ]

    @staticmethod
    def surplus(mine: list[str], leaving: list[str], others: Sequence[Present]) -> list[str]:
        """Which of mine the others had better run. `leaving`: what they are about to have anyway."""
        loads = [len(each.running) for each in others]
        for name in leaving:
            takers = [at for at, each in enumerate(others) if name in each.services]
            if takers:
                loads[min(takers, key=loads.__getitem__)] += 1
        share = -(-(sum(loads) + len(mine)) // (1 + len(others)))
        rest = random.sample(mine, len(mine))
        chosen: list[str] = []
        while len(chosen) < max(len(mine) - share, 1):
            could = [
                (load, at, name)
                for at, (load, each) in enumerate(zip(loads, others, strict=True))
                for name in rest
                if load + 2 <= len(rest) and name in each.services
            ]
            if not could:
                break
            _, at, name = min(could, key=lambda one: one[0])
            loads[at] += 1
            rest.remove(name)
            chosen.append(name)
        return chosen
