"""Ways to lose a lock, and waiting until one was renewed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection

from rota import Rota

if TYPE_CHECKING:
    from rota.app.locks import Lock
    from rota.coord.coordinator import Coordinator


async def release_by_operator(app: Rota, name: str = "invoices") -> None:
    """Release the lock by force, as an operator does."""
    client = await app.open()
    async with client.database.connection() as connection:
        await connection.execute("select rota.release_lock(%s, 0, 'me')", (name,))


def stop_renewal(company: Coordinator, lock: Lock) -> None:
    """Stop renewing the lock, as if this process were frozen."""
    company.lock_renewals.remove(lock._require_lease())


async def wait_until_awaited(db: AsyncConnection[Any]) -> None:
    """Wait until a waiting client has set its flag on the row of the only lock."""
    async with asyncio.timeout(60):
        while True:
            cursor = await db.execute("select awaited_since is not null from rota.locks")
            if await cursor.fetchone() == (True,):
                return
            await asyncio.sleep(0.01)


RENEWALS = "select coalesce(min(renewals), 0) from rota.locks where name = any(%s)"


async def wait_for_renewals(db: AsyncConnection[Any], count: int, *names: str) -> None:
    """Wait until each of the locks was renewed `count` times."""
    async with asyncio.timeout(60):
        while (await (await db.execute(RENEWALS, (list(names),))).fetchall())[0][0] < count:
            await asyncio.sleep(0.01)
