"""The part of the keeper that goes on with calls that are made once, all that are due in one statement."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rota.coord import trust
from rota.coord.keeper import earliest
from rota.coord.lease import EXPIRED, TAKEN_BY_OTHER, Lease
from rota.coord.renewals import EARLY_RENEWAL_SHARE, MAX_RENEW_SECONDS
from rota.store import onces
from rota.store.database import pipeline

if TYPE_CHECKING:
    from rota.store.session import PgConnection

log = logging.getLogger("rota")


class OnceRenewals:
    """What is lost here is not lost yet: a result counts unless somebody else has begun the call."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._leases: dict[int, Lease] = {}

    def add(self, lease: Lease) -> None:
        self._leases[lease.token] = lease

    def remove(self, lease: Lease) -> None:
        self._leases.pop(lease.token, None)

    @property
    def timeout(self) -> float:
        return min(MAX_RENEW_SECONDS, earliest(lease.ttl / 4 for lease in self._held_leases()))

    def due_at(self) -> float:
        return earliest(lease.renew_at for lease in self._held_leases())

    def next_expiry(self) -> float:
        return earliest(lease.trusted_until for lease in self._held_leases())

    async def renew(self, connection: PgConnection) -> None:
        now = trust.now()
        leases = {
            lease.token: lease
            for lease in self._held_leases()
            if lease.renew_at <= now + lease.ttl * EARLY_RENEWAL_SHARE
        }
        if not leases:
            return
        for lease in leases.values():
            # Asked again soon if this comes to nothing.
            lease.renew_at = now + min(lease.ttl / 10, 1.0)
        query = onces.renew([(each.name, each.token, each.ttl) for each in leases.values()])
        [[answers]] = await pipeline(connection, [[query]], self._schema)
        for answer in answers:
            lease = leases[answer.token]
            if answer.token not in self._leases:
                continue  # it has ended meanwhile
            if answer.renewed:
                lease.extend(now)
            elif answer.renewed is not None:
                self._mark_lost(lease, TAKEN_BY_OTHER)

    def expire(self) -> None:
        now = trust.now()
        for lease in self._held_leases():
            if lease.trusted_until <= now:
                self._mark_lost(lease, EXPIRED)

    def connection_lost(self) -> None:
        """Calls are rows: they do not go with a connection."""

    def _mark_lost(self, lease: Lease, reason: str) -> None:
        self.remove(lease)
        if lease.mark_lost(reason):
            log.warning(
                "the call for once %r (token %s) may be made by others now: %s",
                lease.name,
                lease.token,
                reason,
            )

    def _held_leases(self) -> list[Lease]:
        return list(self._leases.values())
