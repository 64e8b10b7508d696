"""The part of the keeper that goes on with calls that are made once, all that are due in one statement."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rota.coord import trust
from rota.coord.keeper import soonest
from rota.coord.lease import RAN_OUT, TAKEN, Lease
from rota.coord.renewals import EARLY, LONGEST_TURN
from rota.store import onces
from rota.store.database import exchange

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")


class Calls:
    """What is lost here is not lost yet: a result counts unless somebody else has begun the call."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._leases: dict[int, Lease] = {}

    def keep(self, lease: Lease) -> None:
        self._leases[lease.token] = lease

    def drop(self, lease: Lease) -> None:
        self._leases.pop(lease.token, None)

    @property
    def patience(self) -> float:
        return min(LONGEST_TURN, soonest(lease.ttl / 4 for lease in self._under_way()))

    def due(self) -> float:
        return soonest(lease.due for lease in self._under_way())

    def ends(self) -> float:
        return soonest(lease.until for lease in self._under_way())

    async def turn(self, connection: Session) -> None:
        now = trust.now()
        leases = {
            lease.token: lease
            for lease in self._under_way()
            if lease.due <= now + lease.ttl * EARLY
        }
        if not leases:
            return
        for lease in leases.values():
            # Asked again soon if this comes to nothing.
            lease.due = now + min(lease.ttl / 10, 1.0)
        query = onces.renew([(each.name, each.token, each.ttl) for each in leases.values()])
        [[answers]] = await exchange(connection, [[query]], self._schema)
        for answer in answers:
            lease = leases[answer.token]
            if answer.token not in self._leases:
                continue  # it has ended meanwhile
            if answer.kept:
                lease.renewed(now)
            elif answer.kept is not None:
                self._lose(lease, TAKEN)

    def expire(self) -> None:
        now = trust.now()
        for lease in self._under_way():
            if lease.until <= now:
                self._lose(lease, RAN_OUT)

    def cut(self) -> None:
        """Calls are rows: they do not go with a connection."""

    def _lose(self, lease: Lease, why: str) -> None:
        self.drop(lease)
        if lease.lose(why):
            log.warning(
                "the call for once %r (token %s) may be made by others now: %s",
                lease.name,
                lease.token,
                why,
            )

    def _under_way(self) -> list[Lease]:
        return list(self._leases.values())
