"""Queries for rate limits, shared by all instances and measured by the database's clock."""

from __future__ import annotations

import msgspec

from rota.store.query import Query


class RateLimitSlot(msgspec.Struct, frozen=True):
    delay: float
    """Seconds until the reserved time."""
    is_reserved: bool


def take(
    name: str, count: int, interval: float, burst: int, max_wait: float
) -> Query[RateLimitSlot]:
    """Reserve `count` units, `interval` seconds apart.

    Reserve nothing if the wait would exceed `max_wait`.
    """
    params = {
        "name": name,
        "count": count,
        "interval": interval,
        "burst": burst,
        "max_wait": max_wait,
    }
    return Query("rate_limit/take", params, RateLimitSlot)
