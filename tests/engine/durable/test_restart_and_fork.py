"""Restart and fork: a run that restarts itself, and a run that begins in the middle of another one."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota import ArgumentError, Context, Rota, RunCancelled, Task
from rota.engine.durable.journal import WorkerJournal
from rota.errors import RunNotFound
from rota.testing import Harness
from support.durable_helpers import note, steps, wait_for_suspensions, wait_until_sleeping
from support.queries import ONCE, TWICE, fetch, until

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


# Restart


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_restart_keeps_run_with_new_arguments_and_no_steps(
    rota_app: Rota, rota_dsn: str, kind: str
) -> None:
    seen: list[tuple[int, int, int]] = []
    ran: list[int] = []

    if kind == "async":

        @rota_app.task(name="work", retry=TWICE)
        async def work(ctx: Context, n: int, total: int = 0) -> int:
            seen.append((ctx.run_id, ctx.attempt, n))
            if n == 1 and ctx.attempt == 1:
                raise ValueError("counted, and forgotten")
            total += await ctx.step("add", note, ran, n, n)
            if n < 3:
                await ctx.restart(n=n + 1, total=total)
                raise AssertionError("it does not come back")
            return total
    else:

        @rota_app.task(name="work", retry=TWICE)
        def work(ctx: Context, n: int, total: int = 0) -> int:
            seen.append((ctx.run_id, ctx.attempt, n))
            if n == 1 and ctx.attempt == 1:
                raise ValueError("counted, and forgotten")
            total += ctx.sync.step("add", note, ran, n, n)
            if n < 3:
                ctx.sync.restart(n=n + 1, total=total)
            return total

    async with rota_app.worker():
        run = await work.start(n=1)
        assert await run.result(timeout=60) == 6
    id = run.id
    assert seen == [(id, 1, 1), (id, 2, 1), (id, 1, 2), (id, 1, 3)]
    assert ran == [1, 2, 3]
    assert await steps(rota_dsn, run) == ["step add"]
    assert await fetch(rota_dsn, "select args from rota.jobs") == [({"n": 3, "total": 3},)]


async def test_restart_makes_new_child_runs(rota_app: Rota) -> None:
    ran: list[int] = []

    @rota_app.task
    async def part(n: int) -> int:
        ran.append(n)
        return n

    @rota_app.task
    async def work(ctx: Context, lives: int) -> list[int]:
        found = await ctx.map(part.bind(n) for n in range(lives))
        if lives < 3:
            await ctx.restart(lives=lives + 1)
        return found

    async with rota_app.worker():
        assert await (await work.start(lives=1)).result(timeout=60) == [0, 1, 2]
    assert sorted(ran) == [0, 0, 0, 1, 1, 2]


async def test_restart_drops_received_signals_and_keeps_unread_ones(
    rota_harness: Harness, rota_dsn: str
) -> None:
    """Otherwise every restart would receive the same signal."""
    app = rota_harness.app
    heard: list[Any] = []

    @app.task
    async def work(ctx: Context, life: int = 1) -> list[Any]:
        heard.append((life, await ctx.wait_signal("word")))
        if life < 2:
            await ctx.restart(life=life + 1)
        return [
            await ctx.wait_signal("other"),
            await ctx.wait_signal("never", timeout=0, default=None),
        ]

    async with app.worker():
        run = await work.start()
        assert await run.signal("word", "one")
        assert await run.signal("other", "stays")
        await wait_until_sleeping(run)
        assert heard == [(1, "one")]
        assert await run.signal("word", "two") is True
        assert await run.result(timeout=60) == ["stays", None]
    assert heard == [(1, "one"), (2, "two")]


async def test_restart_of_expiring_run_does_not_expire(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context, life: int = 1) -> int:
        await ctx.sleep(2 * HOUR)
        if life == 1:
            await ctx.restart(life=2)
        return life

    run = await work.options(expires=HOUR).start()
    for _ in range(2):
        await rota_harness.run_until_idle()
        await rota_harness.clock.advance(2 * HOUR)
    await rota_harness.run_until_idle()
    assert await run.result(timeout=60) == 2


async def test_restart_invalid_arguments_are_refused(
    rota_app: Rota,
) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context, n: int) -> str:
        for wrong in ({"n": "three"}, {}, {"n": 1, "m": 2}):
            with pytest.raises(ArgumentError):
                await ctx.restart(**wrong)
        return "still here"

    async with rota_app.worker():
        assert await (await work.start(n=1)).result(timeout=60) == "still here"


async def test_restart_after_cancel_request_is_cancelled(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    lives: list[int] = []

    @app.task
    async def work(ctx: Context, n: int = 0) -> None:
        lives.append(n)
        if n == 3:
            # A request that reaches the worker only after the restart.
            await fetch(
                rota_dsn, f"insert into rota.cancels (job) values ({ctx.job_id}) returning job"
            )
        await ctx.restart(n=n + 1)

    async with app.worker():
        run = await work.start()
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
    assert lives == [0, 1, 2, 3]


async def test_restart_ends_running_branches(rota_app: Rota) -> None:
    ended: list[str] = []

    @rota_app.task
    async def work(ctx: Context, n: int = 1) -> int:
        async def forever() -> None:
            try:
                await ctx.step("forever", asyncio.Event().wait)
            finally:
                ended.append("ended")

        async def again() -> None:
            await ctx.step("short", lambda: None)
            await ctx.restart(n=2)

        if n == 1:
            await asyncio.gather(forever(), again())
        return n

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 2
    assert ended == ["ended"]


# Fork


@pytest.fixture
def journey(rota_app: Rota) -> Task[[int], list[Any]]:
    ran: list[str] = []

    @rota_app.task(retry=ONCE)
    async def journey(ctx: Context, n: int) -> list[Any]:
        key = str(ctx.uuid())
        one = await ctx.step("one", note, ran, "one", n + 1)
        word = await ctx.wait_signal("word")
        two = await ctx.step("two", note, ran, "two", one * 10 + n)
        await ctx.step("three", note, ran, "three")
        return [key, one, word, two, ",".join(ran)]

    return journey


async def test_fork_from_step_replays_earlier_steps_and_runs_the_rest(
    rota_app: Rota, rota_dsn: str, journey: Task[[int], list[Any]]
) -> None:
    async with rota_app.worker():
        run = await journey.start(1)
        await run.signal("word", "go")
        first = await run.result(timeout=60)
        assert first[1:] == [2, "go", 21, "one,two,three"]

        copy = await rota_app.fork(run.id, from_step="two")
        assert copy.id != run.id
        second = await copy.result(timeout=60)
        assert second == [*first[:4], "one,two,three,two,three"]

        other = await rota_app.fork(run.id, from_step="two", input={"n": 5})
        third = await other.result(timeout=60)
        assert third[1:4] == [2, "go", 25]
        assert third[0] == first[0]

        whole = await rota_app.fork(run.id, from_step="one", input={"n": 5})
        await wait_until_sleeping(whole)
        await whole.signal("word", "again")
        assert (await whole.result(timeout=60))[1:4] == [6, "again", 65]
    assert await fetch(
        rota_dsn, f"select id, forked_from from rota.jobs where id <> {run.id} order by 1"
    ) == [
        (copy.id, run.id),
        (other.id, run.id),
        (whole.id, run.id),
    ]


async def test_fork_of_sleeping_run_leaves_first_run_sleeping(
    rota_harness: Harness, journey: Task[[int], list[Any]]
) -> None:
    app = rota_harness.app
    async with app.worker():
        run = await journey.start(1)
        await wait_until_sleeping(run)
        copy = await app.fork(run.id, from_step="word")
        await wait_until_sleeping(copy)
        await copy.signal("word", "mine")
        assert (await copy.result(timeout=60))[2] == "mine"
        assert await run.status() == "sleeping"


async def test_fork_invalid_run_or_step_is_refused(
    rota_app: Rota, journey: Task[[int], list[Any]]
) -> None:
    run = await journey.start(1)
    wrong: list[tuple[type[Exception], int, dict[str, Any]]] = [
        (RunNotFound, 4711, {"from_step": "one"}),
        (ArgumentError, run.id, {"from_step": "nowhere"}),
        (ArgumentError, run.id, {}),
        (ArgumentError, run.id, {"from_step": "one", "from_": "x"}),
    ]
    for error, id, how in wrong:
        with pytest.raises(error):
            await rota_app.fork(id, **how)


# Retry of a flow


async def test_flow_retry_drops_steps_of_task_with_changed_input(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    flow = app.flow("shop")
    broken = True
    ran: list[str] = []

    @flow.task(retry=ONCE)
    async def price(ctx: Context) -> int:
        await ctx.step("look up", note, ran, "look up")
        if broken:
            raise LookupError("no price")
        return 7

    @flow.task(retry=ONCE, when="all_done")
    async def sell(ctx: Context, price: int | None = None) -> str:
        told = await ctx.step("quote", note, ran, f"quote {price}", str(price))
        if broken:
            raise LookupError("no customer")
        return f"sold for {told}"

    async with app.worker():
        run = await flow.start()
        with pytest.raises(Exception, match="no price"):
            await run.result(timeout=60)
        await until(lambda: _has(ran, "quote None"))
        broken = False
        await run.retry()
        assert await run.result(timeout=60) == {"sell": "sold for 7"}
    # The steps of `price` are kept; those of `sell` are dropped, because its input changed.
    assert ran == ["look up", "quote None", "quote 7"]


async def test_restart_after_sleep_sleeps_again(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context, n: int = 1) -> int:
        await ctx.sleep(HOUR)
        if n < 3:
            await ctx.restart(n=n + 1)
        return n

    async with app.worker():
        run = await work.start()
        for times in (1, 2, 3):
            await wait_for_suspensions(rota_harness, run, times)
            await wait_until_sleeping(run)
            await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == 3


async def _has(seen: list[str], what: str) -> bool:
    return what in seen
