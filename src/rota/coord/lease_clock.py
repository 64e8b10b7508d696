"""Clock by which a holder trusts its lease.

The server counts the ttl from when it executes the statement, which is after the holder sent it. The
holder counts from when it sent the statement, and stops a little earlier. So a holder stops trusting its
lease, without any message, before another instance can acquire it. The clock advances while the machine
is suspended; the event loop's clock may not.

All code that waits for a time of this clock sets a timer on it. So a clock that is advanced by other means
than by waiting wakes all of it.
"""

from __future__ import annotations

import time

from rota.clock import Clock

# Linux's clock that advances during a suspend; other systems use the monotonic clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

MARGIN_SHARE, MAX_MARGIN_SECONDS = 0.1, 1.0
MAX_CLOCK_DRIFT = 0.001
"""Allowed drift, as a share of the ttl. A clock that is being slewed runs fast or slow by half of this."""


class LeaseClock(Clock):
    def now(self) -> float:
        return time.clock_gettime(_CLOCK)


def trusted_seconds(ttl: float) -> float:
    """Return how many seconds of a lease the holder may trust."""
    return ttl - min(ttl * MARGIN_SHARE, MAX_MARGIN_SECONDS + ttl * MAX_CLOCK_DRIFT)
