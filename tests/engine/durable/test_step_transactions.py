"""Transactions in steps: the step's writes and its journal entry commit together, or neither does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest

from rota import ClaimLost, Context, Retry, Rota, RunCancelled, StepFailed
from rota.engine.durable.step import current_step
from rota.engine.execution.job_transaction import JobTransaction
from rota.errors import RotaError
from rota.model.events import JobFinished
from rota.testing import Harness, Proxy
from rota.testing.proxy.connection import CutPoint
from support.durable_helpers import lose_workers, steps
from support.queries import ONCE, TWICE, fetch, until

NOTE = "insert into note (n) values (%s)"


@pytest.fixture
async def notes(rota_dsn: str) -> str:
    async with await psycopg.AsyncConnection.connect(rota_dsn, autocommit=True) as connection:
        await connection.execute("create table note (n int)")
    return rota_dsn


async def test_step_transaction_commits_with_journal_entry(rota_app: Rota, notes: str) -> None:
    seen: list[Any] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        async def write() -> int:
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, (1,))
            # Not visible yet: the commit follows the return of the step.
            seen.append(await fetch(notes, "select n from note"))
            return 5

        found = await ctx.step("write", write)
        seen.append(await fetch(notes, "select n, result::text from note, rota.steps"))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return found

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 5
    assert seen == [[], [(1, "5")], [(1, "5")]]


async def test_step_transaction_of_failed_step_is_rolled_back(rota_app: Rota, notes: str) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        async def write() -> None:
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, (1,))
            raise LookupError("after all")

        with pytest.raises(StepFailed, match="after all"):
            await ctx.step("write", write)
        return await ctx.step("next", lambda: "went on")

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == "went on"
    assert await fetch(notes, "select n from note") == []
    assert await fetch(notes, "select count(*) from rota.claims") == [(0,)]


async def test_step_transaction_blocks_share_one_transaction(rota_app: Rota, notes: str) -> None:
    """A block that fails is rolled back alone, as with a savepoint."""

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> list[Any]:
        ids: list[Any] = []

        async def write() -> None:
            for n in range(3):
                with suppress(LookupError):
                    async with ctx.transaction() as connection:
                        row = await connection.execute("select pg_current_xact_id()::text")
                        ids.append(await row.fetchone())
                        await connection.execute(NOTE, (n,))
                        if n == 1:
                            raise LookupError

        await ctx.step("write", write)
        return ids

    async with rota_app.worker():
        ids = await (await work.start()).result(timeout=60)
    assert len(ids) == 3
    assert ids[0] == ids[1] == ids[2]
    assert await fetch(notes, "select n from note order by n") == [(0,), (2,)]


async def test_step_retry_begins_a_new_transaction(rota_app: Rota, notes: str) -> None:
    tries: list[int] = []

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        async def write() -> None:
            tries.append(1)
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, (len(tries),))
            if len(tries) < 3:
                raise LookupError

        await ctx.options(retry=Retry(max_attempts=3, delay=0)).step("write", write)

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    assert await fetch(notes, "select n from note") == [(3,)]


@pytest.mark.parametrize("kind", ["thread", "plain step of a coroutine"])
async def test_step_transaction_in_thread_commits_with_journal_entry(
    rota_app: Rota, notes: str, kind: str
) -> None:
    seen: list[Any] = []

    def write(ctx: Context, n: int) -> int:
        with ctx.sync.transaction() as connection:
            connection.execute(NOTE, (n,))
        with ctx.sync.transaction() as connection:
            connection.execute(NOTE, (n + 1,))
        with psycopg.connect(notes) as other:
            seen.append(other.execute("select n from note").fetchall())
        if n == 0:
            raise LookupError("after all")
        return n

    if kind == "thread":

        @rota_app.task(name="work", retry=TWICE)
        def work(ctx: Context) -> int:
            with pytest.raises(StepFailed):
                ctx.sync.step("breaks", write, ctx, 0)
            found = ctx.sync.step("write", write, ctx, 5)
            if ctx.attempt == 1:
                raise ValueError("not yet")
            return found
    else:

        @rota_app.task(name="work", retry=TWICE)
        async def work(ctx: Context) -> int:
            with pytest.raises(StepFailed):
                await ctx.step("breaks", write, ctx, 0)
            found = await ctx.step("write", write, ctx, 5)
            if ctx.attempt == 1:
                raise ValueError("not yet")
            return found

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == 5
    assert seen == [[], []]
    assert await fetch(notes, "select n from note order by n") == [(5,), (6,)]
    assert await steps(notes, run) == ["step breaks", "step write"]


async def test_step_transaction_after_lost_claim_writes_nothing(
    rota_harness: Harness, notes: str
) -> None:
    app = rota_harness.app
    told: list[BaseException] = []
    here, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def work(ctx: Context) -> str:
        if here.is_set():
            return "again"

        async def write() -> None:
            here.set()
            await go.wait()
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, (1,))

        try:
            await ctx.step("write", write)
        except BaseException as error:
            told.append(error)
            raise
        return "zombie"

    run = await work.start()
    async with app.worker() as worker:
        await asyncio.wait_for(here.wait(), 60)
        worker.session.heartbeat._on_result = lambda pulse: None  # it ignores that it is dead
        await lose_workers(app)
        go.set()
        await until(lambda: _has_some(told))
        del worker.session.heartbeat._on_result
    async with app.worker():
        assert await run.result(timeout=60) == "again"
    assert [type(each) for each in told] == [ClaimLost]
    assert await fetch(notes, "select n from note") == []
    assert await steps(notes, run) == []


@pytest.mark.parametrize("when", ["before", "sent", "answered", "late"])
@pytest.mark.parametrize("form", ["transaction", "record"])
async def test_step_commit_with_cut_connection_is_applied_once(
    notes: str, when: CutPoint, form: str
) -> None:
    """The connection is cut before or after the commit: Rota detects the commit or repeats it."""
    ran: list[int] = []
    with Proxy(notes) as proxy:
        async with Rota(proxy.dsn, poll_interval=0.1) as app:

            @app.task(retry=Retry(max_attempts=3, delay=0))
            async def work(ctx: Context) -> int:
                async def write() -> int:
                    ran.append(ctx.attempt)
                    if form == "transaction":
                        async with ctx.transaction() as connection:
                            await connection.execute(NOTE, (1,))
                    if len(ran) == 1:
                        proxy.cut(when)
                    return 5

                return await ctx.step("write", write)

            run = await work.start()
            async with app.worker():
                assert await run.result(timeout=60) == 5
            if when != "late":  # its cut is recorded after the delayed commit
                await asyncio.to_thread(proxy.wait_for_cuts)
    assert await fetch(notes, "select n from note") == [(1,)] * (form == "transaction")
    assert await fetch(notes, "select name, result::text from rota.steps") == [("write", "5")]
    if when == "answered" or form == "record":
        assert ran == [1]


def wait_until_abandoned() -> None:
    """Block this thread until the step that it runs was abandoned."""
    step, deadline = current_step.get(), time.monotonic() + 60
    assert step is not None
    while not step._has_ended:
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def test_step_abandoned_while_opening_transaction_writes_nothing(
    rota_app: Rota, notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be stopped: it opens its transaction after the step has timed out."""
    opened_blocking = JobTransaction.sync_locked_transaction
    told: list[Any] = []

    @contextmanager
    def slowly(self: JobTransaction, wait: Any) -> Iterator[Any]:
        with opened_blocking(self, wait) as connection:
            wait_until_abandoned()
            yield connection

    monkeypatch.setattr(JobTransaction, "sync_locked_transaction", slowly)

    def write(ctx: Context) -> None:
        with ctx.sync.transaction() as connection:
            connection.execute(NOTE, (1,))

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        with pytest.raises(StepFailed) as failed:
            await ctx.options(timeout=0.05).step("write", write, ctx)
        told.append(failed)  # keeps the traceback and its frames alive
        return failed.value.kind

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == "rota.errors.TaskTimeout"
    assert await fetch(notes, "select n from note") == []


async def test_step_abandoned_before_transaction_cannot_open_one(
    rota_app: Rota, notes: str
) -> None:
    told: list[str] = []

    def write(ctx: Context) -> None:
        wait_until_abandoned()
        try:
            with ctx.sync.transaction() as connection:
                connection.execute(NOTE, (1,))
        except RotaError as error:
            told.append(str(error))

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        with pytest.raises(StepFailed):
            await ctx.options(timeout=0.05).step("write", write, ctx)

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
        await until(lambda: _has_some(told))
    assert "step 'write' was abandoned" in told[0]
    assert await fetch(notes, "select n from note") == []


async def test_step_cancelled_inside_transaction_writes_nothing(
    rota_harness: Harness, notes: str
) -> None:
    app = rota_harness.app
    here = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        async def write() -> None:
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, (1,))
                here.set()
                await asyncio.Event().wait()

        await ctx.step("write", write)

    async with app.worker():
        run = await work.start()
        await asyncio.wait_for(here.wait(), 60)
        assert await run.cancel() == "requested"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        await rota_harness.wait_for_event(JobFinished, job=run.id)
    assert await fetch(notes, "select n from note") == []
    assert await fetch(notes, "select count(*) from rota.claims") == [(0,)]


async def test_step_transaction_refuses_complete(rota_app: Rota, notes: str) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        async def write() -> None:
            async with ctx.transaction():
                ctx.complete(1)

        with pytest.raises(StepFailed) as failed:
            await ctx.step("write", write)
        return failed.value.reason

    async with rota_app.worker():
        assert "return from it first" in await (await work.start()).result(timeout=60)


async def test_step_transaction_open_does_not_block_other_jobs(rota_app: Rota, notes: str) -> None:
    go = asyncio.Event()

    @rota_app.task
    async def work(ctx: Context, n: int) -> int:
        async def write() -> int:
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, (n,))
                await go.wait()
            return n

        return await ctx.step("write", write)

    @rota_app.task
    async def plain(ctx: Context, n: int) -> int:
        return await ctx.step("plain", lambda: n)

    calls: list[Any] = [plain.bind(n) for n in range(20)]
    calls[5:5] = [work.bind(n) for n in range(2)]
    async with rota_app.worker():
        runs = await rota_app.start_many(calls)
        for run in [*runs[:5], *runs[7:]]:
            await run.result(timeout=60)
        go.set()
        assert [await run.result(timeout=60) for run in runs[5:7]] == [0, 1]


async def _has_some(seen: list[Any]) -> bool:
    return bool(seen)
