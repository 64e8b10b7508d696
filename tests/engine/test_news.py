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
async def news(rota_dsn: str) -> AsyncIterator[Notifier]:
    database = Database(rota_dsn, Settings())
    news = Notifier(database)
    news.notify(["warm up"])
    await news.close()
    yield news
    await news.close()
    await database.close()


async def test_what_comes_in_numbers_goes_together(news: Notifier) -> None:
    began, before = time.monotonic(), news.sent
    while time.monotonic() - began < 0.1:
        news.notify(["mail"])
        await asyncio.sleep(0)
    await news.close()
    took = time.monotonic() - began
    # The first two are sent at once, before the notifier detects the burst.
    assert 2 <= news.sent - before <= took / MAX_BATCH_SECONDS + 2


async def test_what_comes_one_at_a_time_is_not_held_back(
    news: Notifier, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pattern of a client that starts a job, waits for its result and starts the next."""
    rounds, before = 20, news.sent
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
            news.notify(["mail"])
            async with asyncio.timeout(60):
                while (await anext(heard)).payload != "mail":
                    pass
            await asyncio.sleep(MAX_BATCH_SECONDS / 2)  # duration of the job
        await heard.aclose()
    assert news.sent - before == rounds
    assert set(pauses) == {MIN_BATCH_SECONDS}, "collected, as in a burst"
