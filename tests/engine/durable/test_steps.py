"""Steps: they run once, are stored before the code continues, and are replayed in later attempts."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from rota import ArgumentError, Context, Rota, RunFailed
from rota.engine.durable.journal import WorkerJournal
from rota.model.events import JobClaimed, JobReturned
from rota.model.journal import JournalEntry
from rota.testing import Harness
from support.durable_helpers import lose_workers, note, steps, wait_until_sleeping
from support.queries import ONCE, TWICE, fetch


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


# Results


@dataclass
class Point:
    x: int
    y: int


class Parcel(msgspec.Struct):
    to: str


class Order(BaseModel):
    number: int


async def point(x: int, y: int = 2) -> Point:
    return Point(x, y)


def parcel(to: str) -> Parcel:
    return Parcel(to)


def order(number: int) -> Order:
    return Order(number=number)


async def nothing() -> None: ...


def later(x: int) -> Awaitable[Point]:
    return point(x)


class Shop:
    def sell(self, number: int) -> Order:
        return Order(number=number)

    @classmethod
    async def open(cls) -> Parcel:
        return Parcel("shop")

    def __call__(self) -> Point:
        return Point(0, 0)


CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...], Any]] = [
    ("dataclass", point, (1,), Point(1, 2)),
    ("struct", parcel, ("x",), Parcel("x")),
    ("pydantic", order, (7,), Order(number=7)),
    ("none", nothing, (), None),
    ("lambda", lambda: (1, 2), (), [1, 2]),
    ("lambda of a coroutine", lambda: point(3), (), {"x": 3, "y": 2}),
    ("method", Shop().sell, (3,), Order(number=3)),
    ("class method", Shop.open, (), Parcel("shop")),
    ("object", Shop(), (), Point(0, 0)),
    ("partial", functools.partial(point, y=9), (1,), Point(1, 9)),
    ("class", Point, (4, 5), Point(4, 5)),
    ("awaitable", later, (6,), Point(6, 2)),
]


async def test_step_result_has_hinted_type_when_new_and_on_replay(
    rota_app: Rota,
) -> None:
    seen: list[list[Any]] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        seen.append([await ctx.step(name, fn, *args) for name, fn, args, _ in CASES])
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    assert seen == [[expected for *_, expected in CASES]] * 2
    assert [[type(each) for each in some] for some in seen] == [
        [type(expected) for *_, expected in CASES]
    ] * 2


async def test_step_with_a_task_starts_no_job(rota_app: Rota) -> None:
    @rota_app.task
    async def double(n: int) -> int:
        return 2 * n

    @rota_app.task
    async def work(ctx: Context) -> int:
        return await ctx.step("double", double, 4)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 8
    assert await fetch(rota_app.database.dsn or "", "select count(*) from rota.jobs") == [(1,)]


async def test_step_decorator_makes_each_call_a_step(rota_app: Rota, rota_dsn: str) -> None:
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> list[Any]:
        @ctx.step("make")
        async def make(n: int) -> int:
            ran.append(n)
            return n * n

        @ctx.options(timeout=5).step("plain")
        def plain() -> str:
            ran.append(0)
            return "plain"

        found = [await make(2), await make(n=3), await plain()]
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return found

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == [4, 9, "plain"]
    assert ran == [2, 3, 0]
    assert await steps(rota_dsn, run) == ["step make", "step make 2", "step plain"]


async def test_step_repeated_name_is_numbered(rota_app: Rota, rota_dsn: str) -> None:
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> list[int]:
        found = []
        for n in range(3):
            found.append(await ctx.step("each", note, ran, n, n))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return found

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == [0, 1, 2]
    assert ran == [0, 1, 2]
    assert await steps(rota_dsn, run) == ["step each", "step each 2", "step each 3"]


async def test_step_invalid_name_function_or_timeout_is_refused(
    rota_app: Rota, rota_dsn: str
) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        for name in ("", "x" * 201, "a\x00b", 3):
            with pytest.raises(ArgumentError, match="1 to 200 letters"):
                ctx.step(name, nothing)  # type: ignore[call-overload]
        with pytest.raises(ArgumentError, match=r"ctx\.step\(name, fn, …\)"):
            ctx.step("called", 3)  # type: ignore[call-overload]
        with pytest.raises(ArgumentError, match="above 0 seconds"):
            ctx.options(timeout=0)

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    assert await fetch(rota_dsn, "select count(*) from rota.steps") == [(0,)]


# Storage and replay


async def test_step_result_is_stored_before_code_continues(rota_app: Rota, rota_dsn: str) -> None:
    seen: list[list[str]] = []

    @rota_app.task
    async def work(ctx: Context) -> None:
        for name in "abc":
            await ctx.step(name, nothing)
            seen.append(await steps(rota_dsn, ctx.job_id))

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    kept = ["step a", "step b", "step c"]
    assert seen == [kept[:1], kept[:2], kept]


async def test_step_with_delayed_write_holds_the_code(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is held back, and the code does not continue meanwhile."""
    writing, go = asyncio.Event(), asyncio.Event()
    write = WorkerJournal.write
    went_on = False

    async def slowly(self: WorkerJournal, entries: Sequence[JournalEntry]) -> None:
        writing.set()
        await go.wait()
        await write(self, entries)

    monkeypatch.setattr(WorkerJournal, "write", slowly)

    @rota_app.task
    async def work(ctx: Context) -> None:
        nonlocal went_on
        await ctx.step("a", nothing)
        went_on = True

    async with rota_app.worker():
        run = await work.start()
        await asyncio.wait_for(writing.wait(), 60)
        await asyncio.sleep(0.05)
        assert not went_on
        go.set()
        await run.result(timeout=60)


async def test_step_finished_is_not_run_again_on_retry(rota_app: Rota) -> None:
    ran: list[str] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        await ctx.step("one", ran.append, "one")
        if ctx.attempt == 1:
            raise ValueError("between")
        await ctx.step("two", ran.append, "two")
        return ",".join(ran)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == "one,two"


async def test_step_finished_is_not_run_again_after_sleep(rota_app: Rota, rota_dsn: str) -> None:
    ran: list[str] = []

    @rota_app.task
    async def work(ctx: Context) -> list[str]:
        await ctx.step("one", ran.append, "one")
        await ctx.sleep(0.1)
        await ctx.step("two", ran.append, "two")
        await ctx.sleep(0.1)
        return ran

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == ["one", "two"]
    assert await steps(rota_dsn, run) == ["step one", "sleep sleep", "step two", "sleep sleep 2"]
    assert await fetch(rota_dsn, "select attempt from rota.outcomes") == [(1,)]


async def test_step_finished_before_drain_is_not_run_again(rota_dsn: str) -> None:
    ran: list[str] = []
    begun = asyncio.Event()
    async with (
        Rota(rota_dsn, drain_timeout=0.05, poll_interval=0.05) as app,
        Harness(app) as harness,
    ):

        @app.task
        async def work(ctx: Context) -> int:
            await ctx.step("one", ran.append, "one")
            if not begun.is_set():
                begun.set()
                await asyncio.Event().wait()
            await ctx.step("two", ran.append, "two")
            return ctx.attempt

        run = await work.start()
        async with app.worker():
            await asyncio.wait_for(begun.wait(), 60)
        await harness.wait_for_event(JobReturned, job=run.id)
        async with app.worker():
            assert await run.result(timeout=60) == 1
    assert ran == ["one", "two"]


async def test_step_of_lost_worker_is_not_stored_and_runs_again(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    ran: list[str] = []
    begun, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def work(ctx: Context) -> str:
        await ctx.step("one", ran.append, "one")
        first = not begun.is_set()
        if first:
            begun.set()
            with suppress(asyncio.CancelledError):  # it ignores the cancellation
                await go.wait()
        found: str = await ctx.step("two", note, ran, "two", f"first: {first}")
        return found

    run = await work.start()
    async with app.worker() as worker:
        await asyncio.wait_for(begun.wait(), 60)
        worker.session.heartbeat._on_result = lambda pulse: None  # it ignores that it is dead
        await lose_workers(app)
        go.set()
        while "two" not in ran:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert await steps(rota_dsn, run) == ["step one"]
        del worker.session.heartbeat._on_result
    async with app.worker():
        assert await run.result(timeout=60) == "first: False"
    assert ran == ["one", "two", "two"]


async def test_run_retry_resumes_at_failed_step(rota_harness: Harness, rota_dsn: str) -> None:
    app = rota_harness.app
    ran: list[str] = []
    broken = True

    def charge() -> str:
        ran.append("charge")
        if broken:
            raise LookupError("no card")
        return "charged"

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        await ctx.step("reserve", ran.append, "reserve")
        return await ctx.step("charge", charge)

    async with app.worker():
        run = await work.start()
        with pytest.raises(RunFailed, match="no card") as failed:
            await run.result(timeout=60)
        assert failed.value.kind == "LookupError"
        broken = False
        await run.retry()
        assert await run.result(timeout=60) == "charged"
    assert ran == ["reserve", "charge", "charge"]


async def test_run_cancelled_while_sleeping_is_not_claimed_again(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.step("one", nothing)
        await ctx.sleep(days=1)

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        assert await run.cancel() == "cancelled"
        assert await run.status() == "cancelled"
    assert len([each for each in rota_harness.events if isinstance(each, JobClaimed)]) == 1
