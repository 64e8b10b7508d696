"""Queries for rate limits, shared by all instances and measured by the database's clock."""

from __future__ import annotations

import msgspec

from rota.store.query import statement


class RateLimitSlot(msgspec.Struct, frozen=True):
    delay: float
    """Seconds until the reserved time."""
    is_reserved: bool


@statement("rate_limit/take", RateLimitSlot)
def take(name: str, count: int, interval: float, burst: int, max_wait: float) -> None:
    """Reserve `count` units, `interval` seconds apart.

    Reserve nothing if the wait would exceed `max_wait`.
    """
