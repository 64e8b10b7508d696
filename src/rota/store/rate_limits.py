"""Rates: how often something may happen, over all instances, reckoned by the database's clock."""

from __future__ import annotations

import msgspec

from rota.store.query import Query


class RateLimitSlot(msgspec.Struct, frozen=True):
    delay: float
    """Seconds until it is one's turn."""
    is_reserved: bool


def take(
    name: str, count: int, interval: float, burst: int, max_wait: float
) -> Query[RateLimitSlot]:
    """`apart`: seconds from one to the next. `wait`: further off than this, nothing is reserved."""
    params = {"name": name, "n": count, "apart": interval, "burst": burst, "wait": max_wait}
    return Query("rate/take", params, RateLimitSlot)
