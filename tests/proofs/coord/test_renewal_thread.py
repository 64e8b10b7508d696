"""Renewal of many locks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from rota import Rota
from rota.coord import lease
from rota.store import locks
from rota.store.query import Query
from support.lock_renewals import LONG_TTL, Db, wait_for_renewals


async def test_renewal_of_500_locks_takes_few_statements(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch, db: Db
) -> None:
    monkeypatch.setattr(lease, "RENEWALS_PER_TTL", LONG_TTL)  # once a second
    names = [f"lock {number}" for number in range(500)]
    statements: list[int] = []
    right = locks.renew

    def renew(instance: UUID, held: Sequence[tuple[str, int, float]]) -> Query[locks.RenewedLock]:
        statements.append(len(held))
        return right(instance, held)

    monkeypatch.setattr(locks, "renew", renew)
    held = [rota_app.lock(name, ttl=LONG_TTL) for name in names]
    await asyncio.gather(*(lock.acquire() for lock in held))
    await wait_for_renewals(db, 2, *names)
    assert all(lock.held for lock in held)
    assert sum(statements) / len(statements) > 100, statements
    await asyncio.gather(*(lock.release() for lock in held))
