"""Renewals of locks, counted in the database."""

from __future__ import annotations

import asyncio
from typing import Any

from psycopg import AsyncConnection

LONG_TTL = 60.0
"""TTL of locks that must not be lost, however slow the machine is."""

Db = AsyncConnection[tuple[Any, ...]]
RENEWALS = "select min(renewals) from rota.locks where name = any(%s)"


async def wait_for_renewals(db: Db, count: int, *names: str) -> None:
    """Wait until each of the locks was renewed `count` times."""
    async with asyncio.timeout(60):
        while (await (await db.execute(RENEWALS, (list(names),))).fetchall())[0][0] < count:
            await asyncio.sleep(0.02)
