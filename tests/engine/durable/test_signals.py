"""Signals: sent to a run once, and received by waits that begin before or after."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from rota import ArgumentError, Context, Rota, RunCancelled, RunFailed, SignalTimeout
from rota.engine.durable.journal import WorkerJournal
from rota.errors import DefinitionError, RunNotFound
from rota.model.events import JobSuspended
from rota.testing import Harness
from support.durable_helpers import note, steps, wait_for_suspensions, wait_until_sleeping
from support.queries import ONCE, TWICE, fetch

HOUR = timedelta(hours=1)


@dataclass
class Survey:
    grade: int
    remark: str = ""


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


# Sent before and after the wait


async def test_signal_wakes_waiting_run(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word")

    async with app.worker() as worker:
        run = await work.start()
        await wait_until_sleeping(run)
        assert worker.session.slots.running == 0
        assert await run.signal("word", {"said": [1, 2]})
        assert await run.result(timeout=60) == {"said": [1, 2]}


async def test_signal_sent_before_wait_is_received(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        return [
            await ctx.wait_signal("word"),
            await ctx.wait_signal("none", timeout=0, default="none"),
        ]

    run = await work.start()
    assert await run.signal("word")
    async with app.worker():
        assert await run.result(timeout=60) == [None, "none"]
    assert not [each for each in rota_harness.events if isinstance(each, JobSuspended)]


async def test_signal_sent_during_suspension_is_received(
    rota_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is sent after the code has checked for it and before the job is suspended."""
    app = rota_harness.app
    leave = WorkerJournal.end_attempt

    async def slowly(self: WorkerJournal) -> Any:
        assert await run.signal("word", "in between")
        await leave(self)

    monkeypatch.setattr(WorkerJournal, "end_attempt", slowly)

    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word")

    run = await work.start()
    async with app.worker():
        assert await run.result(timeout=60) == "in between"


async def test_signal_sent_twice_keeps_first_payload(rota_harness: Harness, rota_dsn: str) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> list[Any]:
        first = await ctx.wait_signal("word", int)
        await ctx.wait_signal("go")
        return [first, await ctx.wait_signal("word", int)]

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        assert await run.signal("word", 1) is True
        assert await run.signal("word", 2) is False
        await wait_for_suspensions(rota_harness, run, 2)
        assert await app.signal(run.id, "go") is True
        assert await run.result(timeout=60) == [1, 1]
        assert await run.signal("late", 3) is False
    assert await fetch(
        rota_dsn, "select name from rota.signals where at is not null order by 1"
    ) == [
        ("go",),
        ("word",),
    ]


async def test_signal_sent_by_sql_is_received(rota_harness: Harness, rota_dsn: str) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word")

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        answer = await fetch(rota_dsn, f"select rota.signal({run.id}, 'word', '[1]')")
        assert answer == [("sent",)]
        assert await run.result(timeout=60) == [1]


async def test_signal_invalid_run_name_or_payload_is_refused(rota_app: Rota) -> None:
    with pytest.raises(RunNotFound):
        await rota_app.signal(12345, "word")
    with pytest.raises(ArgumentError, match="1 to 200 letters"):
        await rota_app.run(1).signal("")
    with pytest.raises(ArgumentError, match="payload of signal 'word' cannot be stored"):
        await rota_app.run(1).signal("word", float("nan"))


async def test_signal_without_notifications_is_found_by_polling(rota_dsn: str) -> None:
    async with Rota(rota_dsn, poll_interval=0.05, notify=False) as app:

        @app.task
        async def work(ctx: Context) -> Any:
            await ctx.sleep(0.1)
            return await ctx.wait_signal("word")

        async with app.worker():
            run = await work.start()
            await wait_until_sleeping(run)
            await run.signal("word", 5)
            assert await run.result(timeout=60) == 5


# Payloads


async def test_signal_payload_is_decoded_to_requested_type(rota_harness: Harness) -> None:
    app = rota_harness.app
    seen: list[Any] = []

    @app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        survey = await ctx.wait_signal("survey", Survey)
        seen.append(survey)
        await ctx.step("after", lambda: None)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return survey.grade

    async with app.worker():
        run = await work.start()
        await run.signal("survey", Survey(3, "fine"))
        assert await run.result(timeout=60) == 3
    assert seen == [Survey(3, "fine")] * 2


async def test_signal_payload_of_wrong_type_fails_run_with_reason(rota_app: Rota) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("survey", Survey)

    async with rota_app.worker():
        run = await work.start()
        await run.signal("survey", {"grade": "good"})
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=60)
    assert "signal 'survey' is not Survey: Expected `int`, got `str` (in grade)" in str(
        failed.value
    )


async def test_wait_signal_unsupported_type_is_refused_before_wait(rota_app: Rota) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        with pytest.raises(DefinitionError, match="signal 'word'"):
            await ctx.wait_signal("word", Survey | dict[str, int])

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)


# Timeouts


async def test_wait_signal_timeout_returns_default_or_raises(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task(retry=TWICE)
    async def work(ctx: Context) -> list[Any]:
        found: list[Any] = [await ctx.wait_signal("one", int, timeout=HOUR, default="no answer")]
        with pytest.raises(SignalTimeout) as late:
            await ctx.wait_signal("two", timeout=3600)
        return [*found, isinstance(late.value, TimeoutError), str(late.value)]

    async with app.worker():
        run = await work.start()
        for times in (1, 2):
            await wait_for_suspensions(rota_harness, run, times)
            await wait_until_sleeping(run)
            await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == [
            "no answer",
            True,
            "signal 'two' did not arrive before the timeout",
        ]


async def test_wait_signal_timeout_stands_when_signal_arrives_later(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    seen: list[Any] = []

    @app.task
    async def work(ctx: Context) -> Any:
        answer = await ctx.wait_signal("word", timeout=HOUR, default="silence")
        await ctx.step("note", note, seen, answer)
        await ctx.sleep(HOUR)
        return [answer, await ctx.wait_signal("word", timeout=HOUR, default="silence")]

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(HOUR)
        await wait_for_suspensions(rota_harness, run, 2)
        await wait_until_sleeping(run)
        assert await run.signal("word", "hello")
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == ["silence", "hello"]
    assert seen == ["silence"]


async def test_wait_signal_result_is_stored_before_next_step(
    rota_harness: Harness, rota_dsn: str
) -> None:
    """The wait times out, then the signal arrives, then the step fails: the replay still times out."""
    app = rota_harness.app
    seen: list[Any] = []

    @app.task(retry=TWICE)
    async def work(ctx: Context) -> Any:
        answer = await ctx.wait_signal("word", timeout=0.01, default="silence")

        async def send() -> None:
            seen.append(answer)
            if ctx.attempt == 1:
                await app.signal(ctx.run_id, "word", "hello")
                raise ValueError("after it was sent")

        await ctx.step("send", send)
        return answer

    async with app.worker():
        assert await (await work.start()).result(timeout=60) == "silence"
    assert seen == ["silence", "silence"]


async def test_wait_signal_timeout_is_stored_before_the_code_continues(
    rota_app: Rota, rota_dsn: str
) -> None:
    """A worker may die before the next step. The signal may arrive then, and must not be received here."""
    closed = "select open, error->>'type' from rota.steps where name = 'word'"

    @rota_app.task
    async def work(ctx: Context) -> Any:
        answer = await ctx.wait_signal("word", timeout=0, default="silence")
        return [answer, *await fetch(rota_dsn, closed)]

    async with rota_app.worker():
        found = await (await work.start()).result(timeout=60)
    assert found == ["silence", [False, "SignalTimeout"]]


async def test_wait_signal_result_is_stored_with_task_outcome(
    rota_app: Rota, rota_dsn: str
) -> None:
    @rota_app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word", timeout=0, default="silence")

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == "silence"
    assert await steps(rota_dsn, run) == ["wait word"]


# Many signals


async def test_run_waiting_for_signal_is_cancelled_at_once(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word")

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        assert await run.cancel() == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        assert await run.signal("word") is False


async def test_signal_reaches_every_waiting_job_of_run(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow = app.flow("approval")

    @flow.task
    async def left(ctx: Context) -> str:
        return f"left {await ctx.wait_signal('word', str)}"

    @flow.task
    def right(ctx: Context) -> str:
        return f"right {ctx.sync.wait_signal('word', str)}"

    @flow.task
    async def both(left: str, right: str) -> str:
        return f"{left}, {right}"

    async with app.worker():
        run = await flow.start()
        async with asyncio.timeout(60):
            while await fetch(app.database.dsn or "", "select count(*) from rota.sleeping") != [
                (2,)
            ]:
                await asyncio.sleep(0.01)
        assert await run.signal("word", "yes")
        assert await run.result(timeout=60) == {"both": "left yes, right yes"}


async def test_signals_to_many_runs_wake_each_at_most_once(rota_harness: Harness) -> None:
    app = rota_harness.app
    began: list[int] = []

    @app.task
    async def work(ctx: Context, n: int) -> Any:
        began.append(n)
        return await ctx.wait_signal("word", int)

    async def tell(runs: Sequence[Any]) -> None:
        for each in runs:
            await each.signal("word", each.id)

    async with app.worker(concurrency=5):
        runs = await app.start_many([work.bind(n) for n in range(40)])
        await asyncio.gather(tell(runs[:20]), tell(runs[20:]))
        assert [await run.result(timeout=60) for run in runs] == [run.id for run in runs]
    assert all(began.count(n) <= 2 for n in range(40))
