"""Polls of a candidate for many names."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from rota import Rota
from rota.coord.elector import Elector
from support.leader_helpers import elected, until


async def test_leader_thirty_standby_names_poll_once_a_second(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[float] = []
    campaign = Elector._without_yielding
    async with Rota(rota_dsn) as other, AsyncExitStack() as opened:
        names = [f"name {number}" for number in range(30)]
        led = [await opened.enter_async_context(other.leader(name)) for name in names]
        await asyncio.gather(*(elected(leader) for leader in led))
        mine = (await rota_app.coordinator()).elector

        async def counted(self: Elector, *given: object) -> object:
            if self is mine:
                turns.append(time.monotonic())
            return await campaign(self, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(Elector, "_without_yielding", counted)
        for name in names:
            await opened.enter_async_context(rota_app.leader(name))
        await asyncio.sleep(0.5)
        turns.clear()
        await asyncio.sleep(3)
        assert 2 <= len(turns) <= 6
        await until(lambda: len(turns) >= 4)
    gaps = [later - sooner for sooner, later in pairwise(turns)]
    # The jitter keeps instances from polling in step for long.
    assert max(gaps) - min(gaps) > 0.01
