"""Renewal of many locks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from psycopg import AsyncConnection

from rota.store import locks
from rota.store.query import Query
from support.lock_faults import wait_for_renewals
from support.owned_clock import ClockedRota

TTL = 30.0


async def test_renewal_of_500_locks_takes_few_statements(
    clocked_app: ClockedRota, monkeypatch: pytest.MonkeyPatch, db: AsyncConnection[Any]
) -> None:
    names = [f"lock {number}" for number in range(500)]
    statements: list[int] = []
    right = locks.renew

    def renew(instance: UUID, held: Sequence[tuple[str, int, float]]) -> Query[locks.RenewedLock]:
        statements.append(len(held))
        return right(instance, held)

    monkeypatch.setattr(locks, "renew", renew)
    held = [clocked_app.lock(name, ttl=TTL) for name in names]
    await asyncio.gather(*(lock.acquire() for lock in held))
    for renewal in (1, 2):
        clocked_app.lease_clock.advance(TTL / 3)
        await wait_for_renewals(db, renewal, *names)
    assert all(lock.held for lock in held)
    assert sum(statements) / len(statements) > 100, statements
    await asyncio.gather(*(lock.release() for lock in held))
