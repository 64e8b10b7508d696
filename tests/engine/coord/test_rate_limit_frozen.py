"""Rate limit slots that pass while the process is frozen: they are lost, and no call waits longer."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from rota import Rota
from rota.coord.rate_limiter import RateLimiter
from rota.errors import RateLimitExceeded
from rota.store.rate_limits import RateLimitSlot


@pytest.mark.serial
async def test_rate_limit_frozen_process_lets_waiters_proceed_spaced(
    rota_app: Rota,
) -> None:
    rate = rota_app.rate_limit("feed", 20, per=1)
    went: list[float] = []

    async def go() -> None:
        await rate.take()
        went.append(time.monotonic())

    await rate.take()
    waiting = asyncio.gather(*(go() for _ in range(12)))
    while len(went) < 2:
        await asyncio.sleep(0.001)
    before = len(went)
    time.sleep(1)  # noqa: ASYNC251  as if the process were stopped
    woke = time.monotonic()
    await waiting

    # Requests whose slot has just come proceed; the rest keep their distance.
    late = sorted(at - woke for at in went if at >= woke)
    assert len(late) == 12 - before
    assert sum(at < 0.04 for at in late) <= 2, late
    assert late[-1] > 0.05 * (len(late) - 4), late


@pytest.mark.parametrize("wait", [0.3, 30.0])
async def test_rate_limit_missed_slot_is_reserved_again_within_the_wait(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    asked: list[float] = []
    usual = RateLimiter._reserve

    async def reserve(rate: RateLimiter, n: int, wait: float) -> RateLimitSlot:
        turn = await usual(rate, n, wait)
        asked.append(wait)
        if turn.delay > 0 and len(asked) == 2:
            # Block the loop once it sleeps, as if the process were stopped.
            asyncio.get_running_loop().call_soon(time.sleep, 0.6)
        return turn

    monkeypatch.setattr(RateLimiter, "_reserve", reserve)
    rate = rota_app.rate_limit("feed", 10, per=1)
    await rate.take()
    await rate.take(wait=wait)

    assert asked[:2] == [math.inf, wait]
    assert len(asked) == 3
    assert asked[2] <= max(wait - 0.6, 0.0)


async def test_rate_limit_missed_slot_beyond_the_wait_raises(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = iter([RateLimitSlot(0.01, True), RateLimitSlot(0.2, False)])

    async def reserve(rate: RateLimiter, n: int, wait: float) -> RateLimitSlot:
        asyncio.get_running_loop().call_soon(time.sleep, 0.4)
        return next(turns)

    monkeypatch.setattr(RateLimiter, "_reserve", reserve)

    with pytest.raises(RateLimitExceeded, match=r"no more for 0\.2 s") as raised:
        await rota_app.rate_limit("feed", 10, per=1).take(wait=0.3)
    assert raised.value.retry_after == 0.2
