"""Branches with equal step names: a replay gives each branch its own results, in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from rota import Context, Rota
from rota.engine.durable.journal import WorkerJournal
from rota.testing import Harness
from support.durable_helpers import note, wait_for_suspensions, wait_until_sleeping
from support.queries import TWICE

HOUR = timedelta(hours=1)
MANY = 6


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


class Turnstile:
    """Turnstile that orders the branches in the first attempt."""

    def __init__(self) -> None:
        self._passed = 0
        self._news = asyncio.Condition()

    async def wait(self, turn: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self._passed >= turn)

    async def done(self) -> None:
        async with self._news:
            self._passed += 1
            self._news.notify_all()


async def gathered(branches: list[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*branches))


async def grouped(branches: list[Awaitable[Any]]) -> list[Any]:
    async def each(branch: Awaitable[Any]) -> Any:
        return await branch

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each(branch)) for branch in branches]
    return [task.result() for task in tasks]


async def nested(branches: list[Awaitable[Any]]) -> list[Any]:
    half = len(branches) // 2
    found = await asyncio.gather(gathered(branches[:half]), gathered(branches[half:]))
    return [*found[0], *found[1]]


async def limited(branches: list[Awaitable[Any]]) -> list[Any]:
    """Run at most `MANY` branches at a time, with a semaphore."""
    places = asyncio.Semaphore(MANY)

    async def each(branch: Awaitable[Any]) -> Any:
        async with places:
            return await branch

    return await gathered([each(branch) for branch in branches])


@pytest.mark.parametrize("how", [gathered, grouped, nested, limited])
async def test_branches_with_equal_steps_replay_their_own_results(
    rota_app: Rota, how: Callable[[list[Awaitable[Any]]], Awaitable[list[Any]]]
) -> None:
    """Branches reach their second step in reverse order first, and in the code's order on replay."""
    turns = Turnstile()
    ran: list[str] = []
    seen: list[list[Any]] = []

    async def load(n: int) -> int:
        await turns.wait(MANY - 1 - n)
        return n

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        async def process(n: int) -> list[Any]:
            loaded = await ctx.step("load", load, n)
            key, number, now = ctx.uuid(), ctx.random(), ctx.now()
            parsed = await ctx.step("parse", note, ran, f"parse {n}", f"parsed {n}")
            again = await ctx.step("parse", note, ran, f"again {n}", f"again {n}")
            await turns.done()
            return [loaded, key, number, now, parsed, again]

        seen.append(await how([process(n) for n in range(MANY)]))
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    first, second = seen
    assert [(each[0], *each[4:]) for each in first] == [
        (n, f"parsed {n}", f"again {n}") for n in range(MANY)
    ]
    assert second == first
    assert len(ran) == 2 * MANY


async def test_branches_retry_finds_their_own_child_runs(rota_app: Rota) -> None:
    turns = Turnstile()
    ran: list[int] = []

    @rota_app.task
    async def part(n: int) -> int:
        ran.append(n)
        return 10 * n

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> list[Any]:
        async def process(n: int) -> list[int]:
            await ctx.step("load", turns.wait, MANY - 1 - n)
            found = [await ctx.run(part.bind(n)), await ctx.run(part.bind(-n))]
            await turns.done()
            return found

        found = await asyncio.gather(*(process(n) for n in range(MANY)))
        found.append(await ctx.map([part.bind(99)]))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return found

    async with rota_app.worker():
        found = await (await work.start()).result(timeout=60)
    assert found == [*([10 * n, -10 * n] for n in range(MANY)), [990]]
    assert len(ran) == 2 * MANY + 1


async def test_branches_sleeping_wake_at_their_own_times(rota_harness: Harness) -> None:
    app = rota_harness.app
    order: list[str] = []
    slow = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        async def line(name: str, hours: int) -> None:
            if name == "short":
                await ctx.step("first", slow.wait)
            else:
                await ctx.step("first", lambda: None)
            await ctx.sleep(hours=hours)
            slow.set()
            await ctx.step("after", note, order, name)

        asyncio.get_running_loop().call_later(0.1, slow.set)
        await asyncio.gather(line("short", 1), line("long", 10))

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(HOUR)
        await wait_for_suspensions(rota_harness, run, 2)
        assert order == ["short"]
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(9 * HOUR)
        await run.result(timeout=60)
    assert order == ["short", "long"]


async def test_branches_of_parent_and_child_job_are_separate(rota_app: Rota) -> None:
    """The child starts from the parent's code, and so begins with a copy of its context variables."""

    @rota_app.task
    async def part(ctx: Context, n: int) -> list[int]:
        return list(await asyncio.gather(*(ctx.step("s", note, [], m, n + m) for m in range(3))))

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> Any:
        async def branch(n: int) -> Any:
            await ctx.step("before", lambda: None)
            return await ctx.run(part.bind(n))

        found = await asyncio.gather(branch(10), branch(20))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return found

    async with rota_app.worker(concurrency=1):
        assert await (await work.start()).result(timeout=60) == [[10, 11, 12], [20, 21, 22]]
