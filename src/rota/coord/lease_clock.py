"""How long one may rely on a hold without asking again.

The server counts from when it was asked, which is after we sent it; we count from when we sent it, and stop
a little earlier. So whoever holds something stops to believe in it before anybody else can have it, without
being told. The clock goes on while the machine sleeps; the one that programs time with may not.
"""

from __future__ import annotations

import time

# What Linux calls the clock that goes on through a suspend; elsewhere the monotonic one does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

MARGIN_SHARE, MAX_MARGIN_SECONDS = 0.1, 1.0
MAX_CLOCK_DRIFT = 0.001
"""Clocks that are being put right run faster or slower by half as much."""


def now() -> float:
    return time.clock_gettime(_CLOCK)


def trusted_seconds(ttl: float) -> float:
    """Of so many seconds that something is held, those that one may rely on."""
    return ttl - min(ttl * MARGIN_SHARE, MAX_MARGIN_SECONDS + ttl * MAX_CLOCK_DRIFT)
