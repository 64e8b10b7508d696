"""Rates: how often something may happen, over all instances, reckoned by the database's clock."""

from __future__ import annotations

import msgspec

from rota.store.query import Query


class Turn(msgspec.Struct, frozen=True):
    delay: float
    """Seconds until it is one's turn."""
    reserved: bool


def take(name: str, n: int, apart: float, burst: int, wait: float) -> Query[Turn]:
    """`apart`: seconds from one to the next. `wait`: further off than this, nothing is reserved."""
    params = {"name": name, "n": n, "apart": apart, "burst": burst, "wait": wait}
    return Query("rate/take", params, Turn)
