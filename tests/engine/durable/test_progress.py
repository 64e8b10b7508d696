"""Progress and log lines of a job: written soon and in batches, whether or not the job succeeds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from copy import copy
from datetime import timedelta
from typing import Any

import pytest

from rota import Context, Rota, RunFailed
from rota.engine.durable import step_writer
from rota.engine.durable.journal import WorkerJournal
from rota.store.database import Database
from rota.testing import Harness
from support import isolated_context_tasks as apart
from support.durable_helpers import wait_until_sleeping
from support.queries import ONCE, TWICE, fetch, until

HOUR = timedelta(hours=1)
PROGRESS = "select done, total, note from rota.progress"
LINES = "select attempt, message from rota.logs order by at, ctid"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)
    monkeypatch.setattr(step_writer, "FLUSH_SECONDS", 0.02)


async def wait_for_rows(dsn: str, query: str, expected: list[Any]) -> None:
    """Poll until the query returns the expected rows."""

    async def so() -> bool:
        return bool(await fetch(dsn, query) == expected)

    await until(so)


async def test_progress_and_log_are_written_while_job_runs(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()

    @rota_app.task
    async def work(ctx: Context) -> None:
        ctx.progress(3, 10, "copying")
        ctx.log("begun")
        await go.wait()
        ctx.progress(10.5)
        ctx.log("ended")

    async with rota_app.worker():
        run = await work.start()
        await wait_for_rows(rota_dsn, PROGRESS, [(3, 10, "copying")])
        await wait_for_rows(rota_dsn, LINES, [(1, "begun")])
        monkeypatch.setattr(step_writer, "FLUSH_SECONDS", 60)
        go.set()
        await run.result(timeout=60)
    # The last entries are written too, although the job has ended.
    assert await fetch(rota_dsn, PROGRESS) == [(10.5, None, None)]
    assert await fetch(rota_dsn, LINES) == [(1, "begun"), (1, "ended")]


async def test_log_before_sleep_is_written_once(rota_harness: Harness, rota_dsn: str) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> None:
        ctx.log("one")
        await ctx.step("one", lambda: None)
        ctx.progress(1, 2)
        ctx.log("two")
        await ctx.sleep(HOUR)
        ctx.log("three")

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await wait_for_rows(rota_dsn, PROGRESS, [(1, 2, None)])
        await rota_harness.clock.advance(HOUR)
        await run.result(timeout=60)
    assert [message for _, message in await fetch(rota_dsn, LINES)] == ["one", "two", "three"]


async def test_log_line_has_number_of_its_attempt(rota_app: Rota, rota_dsn: str) -> None:
    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        ctx.log("tried")
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    assert await fetch(rota_dsn, LINES) == [(1, "tried"), (2, "tried")]


async def test_progress_and_log_from_thread_are_written(rota_app: Rota, rota_dsn: str) -> None:
    go = threading.Event()

    @rota_app.task
    def work(ctx: Context) -> None:
        ctx.progress(1, 4, note="from a thread")
        ctx.log("from a thread")
        go.wait(60)

    async with rota_app.worker():
        run = await work.start()
        await wait_for_rows(rota_dsn, PROGRESS, [(1, 4, "from a thread")])
        await wait_for_rows(rota_dsn, LINES, [(1, "from a thread")])
        go.set()
        await run.result(timeout=60)


async def test_progress_and_log_inside_step_are_written(rota_app: Rota, rota_dsn: str) -> None:
    @rota_app.task
    async def work(ctx: Context) -> None:
        def copy() -> None:
            ctx.progress(1, 2)
            ctx.log("half")

        await ctx.step("copy", copy)

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    assert await fetch(rota_dsn, PROGRESS) == [(1, 2, None)]
    assert await fetch(rota_dsn, LINES) == [(1, "half")]


async def test_progress_and_log_are_batched_and_last_progress_is_kept(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    insist = Database.run_with_retry

    async def counted(self: Database, query: Any, *args: Any, **kwargs: Any) -> Any:
        if query.statement in ("step/write_progress", "step/write_logs"):
            written.append(query.statement)
        return await insist(self, query, *args, **kwargs)

    monkeypatch.setattr(Database, "run_with_retry", counted)
    monkeypatch.setattr(step_writer, "FLUSH_SECONDS", 0.25)

    @rota_app.task
    async def work(ctx: Context) -> None:
        for n in range(1000):
            ctx.progress(n, 1000)
            ctx.log(f"line {n}")

    async with rota_app.worker():
        for run in await rota_app.start_many([work.bind() for _ in range(5)]):
            await run.result(timeout=60)
    assert await fetch(rota_dsn, f"{PROGRESS} limit 9") == [(999, 1000, None)] * 5
    assert await fetch(rota_dsn, "select count(*) from rota.logs") == [(5000,)]
    assert len(written) <= 10


async def test_progress_and_log_with_unstorable_text_are_escaped(
    rota_app: Rota, rota_dsn: str
) -> None:
    @rota_app.task
    async def work(ctx: Context, message: str) -> None:
        text = message.replace("NUL", "\x00").replace("LONE", "\ud800")
        ctx.log(text)
        ctx.progress(1, note=text)

    async with rota_app.worker():
        runs = await rota_app.start_many([work.bind(m) for m in ("fine", "NUL", "LONE")])
        for run in runs:
            await run.result(timeout=60)
    expected = ["\\0", "\\ud800", "fine"]
    assert sorted(message for _, message in await fetch(rota_dsn, LINES)) == expected
    assert sorted(note for *_, note in await fetch(rota_dsn, PROGRESS)) == expected


async def test_progress_under_old_claim_is_ignored(rota_app: Rota, rota_dsn: str) -> None:
    """Progress reported under an old claim is ignored."""
    go = asyncio.Event()

    @rota_app.task
    async def work(ctx: Context) -> None:
        ctx.progress(9, 10)
        await go.wait()

    async with rota_app.worker() as worker:
        run = await work.start()
        await wait_for_rows(rota_dsn, PROGRESS, [(9, 10, None)])
        before = copy(worker.session.slots._running[run.id])
        before.claim -= 1
        worker.session.step_writer.progress(before, 1, 10, None)
        worker.session.step_writer.log(before, "so far")
        await wait_for_rows(rota_dsn, LINES, [(1, "so far")])
        assert await fetch(rota_dsn, PROGRESS) == [(9, 10, None)]
        go.set()
        await run.result(timeout=60)


# Isolated tasks


@pytest.fixture
async def app(rota_dsn: str) -> AsyncIterator[Rota]:
    async with Harness(apart.app, rota_dsn) as harness:
        yield harness.app


async def test_isolated_task_progress_and_log_are_written(app: Rota, rota_dsn: str) -> None:
    async with app.worker():
        await (await apart.report_progress.start()).result(timeout=60)
    assert await fetch(rota_dsn, PROGRESS) == [(1, 2, "half")]
    assert await fetch(rota_dsn, LINES) == [(1, "from a process")]


async def test_isolated_task_durable_calls_are_refused(app: Rota, rota_dsn: str) -> None:
    async with app.worker():
        for how in ("step", "sleep", "wait", "uuid", "version"):
            run = await apart.durable.options(retry=ONCE).start(how)
            with pytest.raises(RunFailed, match="cannot be used by a task with isolation"):
                await run.result(timeout=60)
    assert await fetch(rota_dsn, "select count(*) from rota.steps") == [(0,)]
