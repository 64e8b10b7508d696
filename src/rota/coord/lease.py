"""Lease from its holder's view: trusted until a time, renewed before it, lost for good after it.

The server counts the ttl from when it executes the statement, which is after the holder sent it. The
holder counts from when it sent the statement, and stops a little earlier. So a holder stops trusting its
lease, without any message, before another instance can acquire it. The clock advances while the machine
is suspended; the event loop's clock may not.

Code that waits until a time sets a timer on this clock. A test that advances the clock therefore wakes all
waiting code.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from rota.clock import Clock

# Linux's clock that advances during a suspend; other systems use the monotonic clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

MARGIN_SHARE, MAX_MARGIN_SECONDS = 0.1, 1.0
MAX_CLOCK_DRIFT = 0.001
"""Allowed drift, as a share of the ttl. A clock that is being slewed runs fast or slow by half of this."""

RENEWALS_PER_TTL = 3
"""Renewals that fit into one ttl: a lease is renewed after ttl / RENEWALS_PER_TTL."""

EXPIRED = "it expired before it could be renewed"
TAKEN_BY_OTHER = "another instance acquired it, or an operator released it"
APP_CLOSED = "the app was closed while it was held"
HELD_BY_PARENT = "it is held by the process that this one was forked from"


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """Identity of a lease holder: one app in one process, with the host and pid to find it."""

    instance: UUID
    """New with every start, because host names and pids are reused."""
    host: str
    pid: int

    def as_params(self, label: str) -> dict[str, Any]:
        """Return the identity as parameters of a statement."""
        return {"instance": self.instance, "host": self.host, "pid": self.pid, "label": label}


def new_identity() -> InstanceIdentity:
    """Return the identity of one app in one event loop of this process."""
    return InstanceIdentity(uuid4(), socket.gethostname(), os.getpid())


class LeaseClock(Clock):
    def now(self) -> float:
        return time.clock_gettime(_CLOCK)


def trusted_seconds(ttl: float) -> float:
    """Return how many seconds of a lease the holder may trust."""
    return ttl - min(ttl * MARGIN_SHARE, MAX_MARGIN_SECONDS + ttl * MAX_CLOCK_DRIFT)


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
