"""Notifier: a single notification is sent at once, many within a short time are batched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace

import psycopg
import pytest

from rota.engine.notify import notifier
from rota.engine.notify.notifier import MAX_BATCH_SECONDS, MIN_BATCH_SECONDS, Notifier
from rota.model.settings import Settings
from rota.store.database import Database


@pytest.fixture
async def warm_notifier(rota_dsn: str) -> AsyncIterator[Notifier]:
    database = Database(rota_dsn, Settings())
    news = Notifier(database)
    news.notify(["warm up"])
    await news.close()
    yield news
    await news.close()
    await database.close()


async def test_notifier_burst_is_sent_in_batches(warm_notifier: Notifier) -> None:
    began, before = time.monotonic(), warm_notifier.sent
    while time.monotonic() - began < 0.1:
        warm_notifier.notify(["mail"])
        await asyncio.sleep(0)
    await warm_notifier.close()
    took = time.monotonic() - began
    # The first two are sent at once, before the notifier detects the burst.
    assert 2 <= warm_notifier.sent - before <= took / MAX_BATCH_SECONDS + 2


@pytest.mark.serial
async def test_notifier_spaced_notifications_are_each_sent_at_once(
    warm_notifier: Notifier, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pattern of a client that starts a job, waits for its result and starts the next."""
    rounds, before = 20, warm_notifier.sent
    pauses: list[float] = []

    async def recorded_sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(seconds)

    its_asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": recorded_sleep})
    monkeypatch.setattr(notifier, "asyncio", its_asyncio)
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as listening:
        await listening.execute('listen "rota.wake"')
        heard = listening.notifies()
        for _ in range(rounds):
            warm_notifier.notify(["mail"])
            async with asyncio.timeout(60):
                while (await anext(heard)).payload != "mail":
                    pass
            await asyncio.sleep(MAX_BATCH_SECONDS / 2)  # duration of the job
        await heard.aclose()
    assert warm_notifier.sent - before == rounds
    assert set(pauses) == {MIN_BATCH_SECONDS}, "collected, as in a burst"
