"""The part of the keeper that renews locks and permits, all that are due in one statement."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from rota.coord import trust
from rota.coord.alarms import Alarms
from rota.coord.keeper import soonest
from rota.coord.lease import RAN_OUT, TAKEN, Lease
from rota.store import locks
from rota.store.database import exchange

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")

LONGEST_TURN = 5.0
"""Seconds."""

EARLY = 0.2
"""What is due within this share of its time is renewed along with what is due."""


class Renewals:
    def __init__(self, instance: UUID, schema: str, alarms: Alarms) -> None:
        self._instance = instance
        self._schema = schema
        self._alarms = alarms
        self._leases: dict[int, Lease] = {}

    def keep(self, lease: Lease) -> None:
        self._leases[lease.token] = lease
        self._alarms.watch(lease)

    def drop(self, lease: Lease) -> None:
        self._leases.pop(lease.token, None)
        self._alarms.forget(lease)

    @property
    def patience(self) -> float:
        return min(LONGEST_TURN, soonest(lease.ttl / 4 for lease in self._held()))

    def due(self) -> float:
        return soonest(lease.due for lease in self._held())

    def ends(self) -> float:
        return soonest(lease.until for lease in self._held())

    async def turn(self, connection: Session) -> None:
        now = trust.now()
        leases = {
            lease.token: lease for lease in self._held() if lease.due <= now + lease.ttl * EARLY
        }
        if not leases:
            return
        for lease in leases.values():
            # Asked again soon if this comes to nothing.
            lease.due = now + min(lease.ttl / 10, 1.0)
        held = [(each.name, each.token, each.ttl) for each in leases.values()]
        query = locks.renew(self._instance, held)
        [[answers]] = await exchange(connection, [[query]], self._schema)
        for answer in answers:
            lease = leases[answer.token]
            if answer.token not in self._leases:
                continue  # it was given back meanwhile, so that the answer may be no
            if answer.kept:
                lease.renewed(now)
                self._alarms.renewed(lease)
            elif answer.kept is None:
                log.debug("the row of lock %r is locked by somebody; trying again", lease.name)
            else:
                if answer.doubled:
                    self._alarms.doubled(lease)
                self._lose(lease, TAKEN)

    def expire(self) -> None:
        now = trust.now()
        for lease in self._held():
            if lease.until <= now:
                self._lose(lease, RAN_OUT)

    def lose_all(self, why: str) -> list[Lease]:
        """Nobody will renew them any more. Answers what was held until now."""
        held = [lease for lease in self._held() if lease.held()]
        for lease in held:
            self._lose(lease, why)
        return held

    def cut(self) -> None:
        """Locks are rows: they do not go with a connection."""

    def _lose(self, lease: Lease, why: str) -> None:
        self.drop(lease)
        if lease.lose(why):
            log.warning("lock %r (token %s) is lost: %s", lease.name, lease.token, why)

    def _held(self) -> list[Lease]:
        return list(self._leases.values())
