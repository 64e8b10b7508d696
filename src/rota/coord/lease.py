"""Lease from its holder's view: trusted until a time, renewed before it, lost for good after it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rota.coord.lease_clock import LeaseClock, trusted_seconds

RENEWALS_PER_TTL = 3
"""Renewals that fit into one ttl: a lease is renewed after ttl / RENEWALS_PER_TTL."""


class Lease:
    """Lease on a lock, a permit or a once call.

    A lost lease stays lost, even if a late answer confirms it. `on_lost` is called once, from any
    thread, with the reason.
    """

    def __init__(
        self,
        name: str,
        permit: int,
        token: int,
        ttl: float,
        sent_at: float,
        clock: LeaseClock,
        on_lost: Callable[[str], None],
        max_held: float | None = None,
    ) -> None:
        self.name = name
        self.permit = permit
        self.token = token
        self.ttl = ttl
        self.acquired_at = self.sent_at = sent_at
        self.renew_at = sent_at + ttl / RENEWALS_PER_TTL
        self.max_held = max_held
        self._clock = clock
        self._trusted_until = sent_at + trusted_seconds(ttl)
        self._on_lost = on_lost
        self._lost_reason: str | None = None
        self.is_ended = False
        self._pid = os.getpid()
        # A caller that checks the lease during a renewal waits for the renewal: a lease reported lost is
        # never held again. Reentrant, because a signal handler may check the lease while its thread checks
        # it.
        self._lock = threading.RLock()

    @property
    def trusted_until(self) -> float:
        """Time at which the lease is lost unless it is renewed before."""
        return self._trusted_until

    @property
    def overdue_at(self) -> float:
        """Time at which a renewal will be overdue by as long as the renewal interval."""
        return self.sent_at + 2 * self.ttl / RENEWALS_PER_TTL

    def is_held(self) -> bool:
        """True if the lease can be trusted now.

        The clock decides, so the result is right even after the process was suspended.
        """
        with self._lock:
            is_valid = (
                not self.is_ended
                and self._lost_reason is None
                and self._clock.now() < self._trusted_until
            )
        return is_valid and not self.is_inherited

    @property
    def is_inherited(self) -> bool:
        """True if the lease belongs to the process that this one was forked from."""
        return os.getpid() != self._pid

    @property
    def lost_reason(self) -> str | None:
        """Reason for which the lease was lost, or None if it was not."""
        if self.is_inherited:
            return HELD_BY_PARENT
        with self._lock:
            is_expired = (
                self._lost_reason is None
                and not self.is_ended
                and self._clock.now() >= self._trusted_until
            )
        if is_expired:
            self.mark_lost(EXPIRED)
        return self._lost_reason

    def extend(self, sent_at: float) -> None:
        with self._lock:
            if (
                self._lost_reason is None
                and not self.is_ended
                and self._clock.now() < self._trusted_until
            ):
                self.sent_at = sent_at
                self._trusted_until = sent_at + trusted_seconds(self.ttl)
                self.renew_at = sent_at + self.ttl / RENEWALS_PER_TTL

    def mark_lost(self, reason: str) -> bool:
        """Mark the lease as lost. Return False if it was lost or released before."""
        with self._lock:
            if self.is_ended or self._lost_reason is not None:
                return False
            self._lost_reason = reason
        self._on_lost(reason)
        return True

    def end(self) -> None:
        """Mark the lease as released."""
        with self._lock:
            self.is_ended = True


EXPIRED = "it expired before it could be renewed"
TAKEN_BY_OTHER = "another instance acquired it, or an operator released it"
APP_CLOSED = "the app was closed while it was held"
HELD_BY_PARENT = "it is held by the process that this one was forked from"
