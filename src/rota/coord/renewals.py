"""The part of the keeper that renews locks and permits, all that are due in one statement."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from rota.coord import trust
from rota.coord.alarms import CoordinationAlerts
from rota.coord.keeper import earliest
from rota.coord.lease import EXPIRED, TAKEN_BY_OTHER, Lease
from rota.store import locks
from rota.store.database import pipeline

if TYPE_CHECKING:
    from rota.store.session import PgConnection

log = logging.getLogger("rota")

MAX_RENEW_SECONDS = 5.0
"""Seconds."""

EARLY_RENEWAL_SHARE = 0.2
"""What is due within this share of its time is renewed along with what is due."""


class LockRenewals:
    def __init__(self, instance: UUID, schema: str, alerts: CoordinationAlerts) -> None:
        self._instance = instance
        self._schema = schema
        self._alerts = alerts
        self._leases: dict[int, Lease] = {}

    def add(self, lease: Lease) -> None:
        self._leases[lease.token] = lease
        self._alerts.watch(lease)

    def remove(self, lease: Lease) -> None:
        self._leases.pop(lease.token, None)
        self._alerts.unwatch(lease)

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
        held = [(each.name, each.token, each.ttl) for each in leases.values()]
        query = locks.renew(self._instance, held)
        [[answers]] = await pipeline(connection, [[query]], self._schema)
        for answer in answers:
            lease = leases[answer.token]
            if answer.token not in self._leases:
                continue  # it was given back meanwhile, so that the answer may be no
            if answer.renewed:
                lease.extend(now)
                self._alerts.on_renewed(lease)
            elif answer.renewed is None:
                log.debug("the row of lock %r is locked by somebody; trying again", lease.name)
            else:
                if answer.is_duplicate:
                    self._alerts.on_duplicate_token(lease)
                self._mark_lost(lease, TAKEN_BY_OTHER)

    def expire(self) -> None:
        now = trust.now()
        for lease in self._held_leases():
            if lease.trusted_until <= now:
                self._mark_lost(lease, EXPIRED)

    def mark_all_lost(self, reason: str) -> list[Lease]:
        """Nobody will renew them any more. Answers what was held until now."""
        held = [lease for lease in self._held_leases() if lease.is_held()]
        for lease in held:
            self._mark_lost(lease, reason)
        return held

    def connection_lost(self) -> None:
        """Locks are rows: they do not go with a connection."""

    def _mark_lost(self, lease: Lease, reason: str) -> None:
        self.remove(lease)
        if lease.mark_lost(reason):
            log.warning("lock %r (token %s) is lost: %s", lease.name, lease.token, reason)

    def _held_leases(self) -> list[Lease]:
        return list(self._leases.values())
