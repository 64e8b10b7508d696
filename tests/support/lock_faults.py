"""Ways to lose a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
