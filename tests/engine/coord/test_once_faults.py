"""`once` under faults: many callers, few keys, lost connections and frozen callers.

Each key has one result.

ROTA_TEST_LONG=1 runs it for a minute.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Busy, LockLost, Rota
from rota.errors import DatabaseUnavailable
from support.scale import scale

SECONDS = scale(4.0, 60.0)
TTL = 0.5

KILL = """
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() order by random() limit 2
"""


class Failed(Exception):
    pass


class OnceStress:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.inside: Counter[str] = Counter()
        self.frozen: Counter[str] = Counter()
        self.results: dict[str, set[int]] = defaultdict(set)
        self.seen: Counter[str] = Counter()
        self.number = 0
        self.over = time.monotonic() + SECONDS

    async def charge(self, app: Rota, key: str) -> int:
        assert not self.inside[key], "another is at it, and nobody was frozen"
        self.inside[key] += 1
        self.number += 1
        mine, fate = self.number, self.dice.random()
        try:
            await asyncio.sleep(self.dice.uniform(0, 0.02))
            if fate < 0.3:
                raise Failed
            if fate < 0.45:
                await self._freeze(app, key)
            return mine
        finally:
            self.inside[key] -= 1

    async def _freeze(self, app: Rota, key: str) -> None:
        """Stop renewing this call, so that another caller makes it."""
        calls = (await app.coordinator()).once_renewals
        for lease in calls._held_leases():
            if lease.name == key:
                calls.remove(lease)
        self.inside[key] -= 1
        self.frozen[key] += 1
        try:
            await asyncio.sleep(TTL * self.dice.uniform(0.8, 1.6))
        finally:
            self.frozen[key] -= 1
            self.inside[key] += 1

    async def call(self, app: Rota) -> None:
        while time.monotonic() < self.over:
            key = f"{int(time.monotonic() * 2)}.{self.dice.randrange(3)}"
            task = asyncio.create_task(
                app.once(key, self.charge, app, key, ttl=TTL, wait=self.dice.choice([0, 0.1, 3]))
            )
            if self.dice.random() < 0.3:
                await asyncio.sleep(self.dice.uniform(0, 0.03))
                task.cancel()
            try:
                result = await task
                self.results[key].add(result)
                self.seen["result"] += 1
            except (Busy, Failed, LockLost, DatabaseUnavailable) as error:
                self.seen[type(error).__name__] += 1
            except asyncio.CancelledError:
                self.seen["cancelled"] += 1

    async def kill(self, db: AsyncConnection[Any]) -> None:
        while time.monotonic() < self.over:
            await asyncio.sleep(0.3)
            await db.execute(KILL)


@pytest.mark.timeout(150)
async def test_once_under_faults_keeps_one_result_per_key(
    rota_dsn: str, db: AsyncConnection[Any]
) -> None:
    storm = OnceStress(7)
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(Rota(rota_dsn)) for _ in range(3)]
        callers = [storm.call(app) for app in apps for _ in range(6)]
        await asyncio.gather(storm.kill(db), *callers)
        cursor = await db.execute(
            "select key, result::text::int from rota.once_calls where finished is not null"
        )
        kept = dict(await cursor.fetchall())

    for key, results in storm.results.items():
        assert results <= {kept[key]}, key
    assert len(kept) > SECONDS
    print(dict(storm.seen))
    for outcome in ("result", "Failed", "Busy", "cancelled", *(scale([], ["LockLost"]))):
        assert storm.seen[outcome]
