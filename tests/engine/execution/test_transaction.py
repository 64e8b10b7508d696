"""Transactions of a job's code: its writes and its outcome commit together, or neither does."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from rota import ClaimLost, Context, Retry, Rota, RunFailed
from rota.errors import RotaError
from rota.testing import Harness
from rota.testing.proxy.proxy import Proxy
from support.queries import ONCE, TWICE, fetch

NOTE = "insert into note (n) values (%s)"


@pytest.fixture
async def notes(rota_dsn: str) -> str:
    async with await psycopg.AsyncConnection.connect(rota_dsn, autocommit=True) as connection:
        await connection.execute("create table note (n int)")
    return rota_dsn


async def take_back_jobs(app: Rota) -> None:
    """Declare every worker dead and return its jobs to the queue."""
    client = await app.open()
    async with client.database.connection() as connection:
        await connection.execute("update rota.workers set state = 'dead'")
        await connection.execute("select rota.reap(id) from rota.claims")


async def test_transaction_writes_and_outcome_commit_together(rota_app: Rota, notes: str) -> None:
    @rota_app.task
    async def write(ctx: Context, n: int) -> int:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, (n,))
            ctx.complete(n * 2)
            assert await fetch(notes, "select n from note") == []
        assert await fetch(notes, "select n, state::text from note, rota.outcomes") == [
            (n, "succeeded")
        ]
        return 0  # ignored: the job has ended

    run = await write.start(n=4)
    async with rota_app.worker():
        assert await run.result(timeout=60) == 8
    assert await fetch(notes, "select count(*) from rota.claims") == [(0,)]


async def test_transaction_of_sync_task_commits_writes_and_outcome(
    rota_app: Rota, notes: str
) -> None:
    @rota_app.task
    def write(ctx: Context, n: int) -> int:
        with ctx.sync.transaction() as connection:
            connection.execute(NOTE, (n,))
            ctx.complete(n * 2)
        return 0

    runs = await rota_app.start_many([write.bind(n=n) for n in range(20)])
    async with rota_app.worker():
        assert [await run.result(timeout=60) for run in runs] == [n * 2 for n in range(20)]
    assert await fetch(notes, "select count(*), count(distinct n) from note") == [(20, 20)]


async def test_transaction_failing_is_rolled_back_and_attempt_retried(
    rota_app: Rota, notes: str
) -> None:
    @rota_app.task(retry=TWICE)
    async def write(ctx: Context) -> str:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, (ctx.attempt,))
            ctx.complete("first")
            if ctx.attempt == 1:
                raise ValueError("not yet")
        return "returned"

    run = await write.start()
    async with rota_app.worker():
        assert await run.result(timeout=60) == "first"
    assert await fetch(notes, "select n from note") == [(2,)]


async def test_transaction_after_lost_claim_writes_nothing(
    rota_harness: Harness, notes: str
) -> None:
    app = rota_harness.app
    here, go = asyncio.Event(), asyncio.Event()
    told: list[BaseException] = []

    @app.task
    async def write(ctx: Context) -> None:
        if here.is_set():
            return
        here.set()
        await go.wait()
        try:
            async with ctx.transaction() as connection:
                await connection.execute(NOTE, (1,))
        except ClaimLost as error:
            told.append(error)
            raise

    run = await write.start()
    async with app.worker() as worker:
        await here.wait()
        worker.session.heartbeat._on_result = lambda pulse: None  # it ignores that it is dead
        await take_back_jobs(app)
        go.set()
        while not told:
            await asyncio.sleep(0.01)
        del worker.session.heartbeat._on_result
    async with app.worker():
        await run.result(timeout=60)
    assert len(told) == 1
    assert "this attempt is discarded" in str(told[0])
    assert await fetch(notes, "select n from note") == []


async def test_transaction_open_prevents_taking_back_its_job(rota_app: Rota, notes: str) -> None:
    @rota_app.task
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, (1,))
            await take_back_jobs(rota_app)
            ctx.complete()

    run = await write.start()
    async with rota_app.worker():
        await run.result(timeout=60)
    assert await fetch(notes, "select n from note") == [(1,)]


async def test_transaction_open_does_not_block_jobs_of_same_claim(
    rota_app: Rota, notes: str
) -> None:
    go = asyncio.Event()

    @rota_app.task
    async def write(ctx: Context, n: int) -> int:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, (n,))
            await go.wait()
        return n

    @rota_app.task
    async def plain(n: int) -> int:
        return n

    calls: list[Any] = [plain.bind(n=n) for n in range(50)]
    calls[10:10] = [write.bind(n=n) for n in range(3)]
    runs = await rota_app.start_many(calls)
    async with rota_app.worker():
        for run in [*runs[:10], *runs[13:]]:
            await run.result(timeout=60)
        go.set()
        assert [await run.result(timeout=60) for run in runs[10:13]] == [0, 1, 2]


async def test_transaction_commit_with_lost_answer_is_detected(notes: str) -> None:
    """The connection breaks between the commit and its answer, and the code continues normally."""
    ended = asyncio.Event()
    with Proxy(notes) as proxy:
        async with Rota(proxy.dsn) as app:

            @app.task(retry=ONCE)
            async def write(ctx: Context) -> str:
                async with ctx.transaction() as connection:
                    await connection.execute(NOTE, (1,))
                    proxy.cut("answered")
                    ctx.complete("done")
                ended.set()
                return "returned"

            run = await write.start()
            async with app.worker():
                assert await run.result(timeout=60) == "done"
                await asyncio.wait_for(ended.wait(), 60)
            await asyncio.to_thread(proxy.wait_for_cuts)
    assert await fetch(notes, "select n from note") == [(1,)]
    assert await fetch(notes, "select state::text, attempt from rota.outcomes") == [
        ("succeeded", 1)
    ]


async def test_complete_outside_transaction_or_twice_is_refused(rota_app: Rota) -> None:
    said: list[str] = []

    @rota_app.task(retry=ONCE)
    async def wrong(ctx: Context) -> int:
        with pytest.raises(RotaError) as outside:
            ctx.complete(1)
        said.append(str(outside.value))
        async with ctx.transaction():
            ctx.complete(1)
            with pytest.raises(RotaError) as twice:
                ctx.complete(2)
            said.append(str(twice.value))
            with pytest.raises(RotaError, match="use its connection"):
                async with ctx.transaction():
                    pass
        return 0

    run = await wrong.start()
    async with rota_app.worker():
        assert await run.result(timeout=60) == 1
    assert "inside `async with ctx.transaction()`" in said[0]
    assert "a job ends once" in said[1]


async def test_transaction_connection_has_settings_of_dsn(rota_app: Rota, notes: str) -> None:
    """Rota's search_path and timeouts do not apply to the connection that the user's code gets."""

    @rota_app.task
    async def look(ctx: Context) -> list[str]:
        async with ctx.transaction() as connection:
            answer = []
            for name in ("search_path", "statement_timeout", "lock_timeout"):
                row = await (await connection.execute(f"show {name}".encode())).fetchone()
                assert row is not None
                answer.append(row[0])
            return answer

    run = await look.start()
    async with rota_app.worker():
        assert await run.result(timeout=60) == ['"$user", public', "0", "0"]


async def test_assert_claim_after_lost_claim_aborts_user_transaction(
    rota_harness: Harness, notes: str
) -> None:
    """`rota.assert_claim` aborts the transaction once the worker no longer holds the job."""
    app = rota_harness.app
    first = asyncio.Event()
    refused: list[str] = []

    @app.task(retry=Retry(max_attempts=3, delay=0))
    async def write(ctx: Context) -> str:
        if first.is_set():
            return "again"
        first.set()
        claim = await ctx.fence()
        query = f"select rota.assert_claim({ctx.job_id}, {claim})::text"
        assert await fetch(notes, query) == [("",)]
        await take_back_jobs(app)
        try:
            await fetch(notes, f"{query}; insert into note values (1)")
        except Exception as error:
            refused.append(getattr(error, "sqlstate", ""))
        return "zombie"

    async with app.worker() as worker:
        worker.session.heartbeat._on_result = lambda pulse: None  # it ignores that it is dead
        run = await write.start()
        while not refused:
            await asyncio.sleep(0.01)
        del worker.session.heartbeat._on_result
    async with app.worker():
        assert await run.result(timeout=60) == "again"
    assert refused == ["RT002"]
    assert await fetch(notes, "select n from note") == []


async def test_transaction_complete_of_flow_task_releases_successor(
    rota_app: Rota, notes: str
) -> None:
    flow = rota_app.flow("two")

    @flow.task
    async def first(ctx: Context) -> int:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, (1,))
            ctx.complete(5)
        return 0

    @flow.task
    async def second(first: int) -> int:
        return first + 1

    run = await flow.start()
    async with rota_app.worker():
        assert await run.result(timeout=60) == {"second": 6}


async def test_transaction_complete_with_unstorable_result_rolls_back(
    rota_app: Rota, notes: str
) -> None:
    @rota_app.task(retry=ONCE)
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(NOTE, (1,))
            ctx.complete(float("nan"))

    run = await write.start()
    async with rota_app.worker():
        with pytest.raises(RunFailed, match="cannot be stored"):
            await run.result(timeout=60)
    assert await fetch(notes, "select n from note") == []
