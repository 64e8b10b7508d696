"""Signals: sent to a run once, and received by waits that begin before or after."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from engine.asking import ONCE, TWICE, fetch
from engine.lasting import asleep, note, slept, steps
from rota import ArgumentError, Context, Rota, RunCancelled, RunFailed, SignalTimeout
from rota.engine.durable.journal import WorkerJournal
from rota.errors import DefinitionError, RunNotFound
from rota.model.events import JobSuspended
from rota.testing import Harness

HOUR = timedelta(hours=1)


@dataclass
class Survey:
    grade: int
    remark: str = ""


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


# Sent before and after the wait


async def test_who_waits_is_woken_by_a_signal(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word")

    async with app.worker() as worker:
        run = await work.start()
        await asleep(run)
        assert worker.session.slots.running == 0
        assert await run.signal("word", {"said": [1, 2]})
        assert await run.result(timeout=60) == {"said": [1, 2]}


async def test_a_signal_sent_before_the_wait_is_not_lost(rota_harness: Harness) -> None:
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


async def test_a_signal_sent_while_the_job_lies_down_is_heard(
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


async def test_the_first_one_stands_for_good(rota_harness: Harness, rota_dsn: str) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> list[Any]:
        first = await ctx.wait_signal("word", int)
        await ctx.wait_signal("go")
        return [first, await ctx.wait_signal("word", int)]

    async with app.worker():
        run = await work.start()
        await asleep(run)
        assert await run.signal("word", 1) is True
        assert await run.signal("word", 2) is False
        await slept(rota_harness, run, 2)
        assert await app.signal(run.id, "go") is True
        assert await run.result(timeout=60) == [1, 1]
        assert await run.signal("late", 3) is False
    assert await fetch(
        rota_dsn, "select name from rota.signals where at is not null order by 1"
    ) == [
        ("go",),
        ("word",),
    ]


async def test_sql_alone_can_send_one(rota_harness: Harness, rota_dsn: str) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word")

    async with app.worker():
        run = await work.start()
        await asleep(run)
        answer = await fetch(rota_dsn, f"select rota.signal({run.id}, 'word', '[1]')")
        assert answer == [("sent",)]
        assert await run.result(timeout=60) == [1]


async def test_nobody_can_be_told_who_is_not_there(rota_app: Rota) -> None:
    with pytest.raises(RunNotFound):
        await rota_app.signal(12345, "word")
    with pytest.raises(ArgumentError, match="1 to 200 letters"):
        await rota_app.run(1).signal("")
    with pytest.raises(ArgumentError, match="payload of signal 'word' cannot be stored"):
        await rota_app.run(1).signal("word", float("nan"))


async def test_without_notify_signals_and_sleeps_are_found_by_looking(rota_dsn: str) -> None:
    async with Rota(rota_dsn, poll_interval=0.05, notify=False) as app:

        @app.task
        async def work(ctx: Context) -> Any:
            await ctx.sleep(0.1)
            return await ctx.wait_signal("word")

        async with app.worker():
            run = await work.start()
            await asleep(run)
            await run.signal("word", 5)
            assert await run.result(timeout=60) == 5


# Payloads


async def test_a_payload_is_read_as_what_the_code_asks_for(rota_harness: Harness) -> None:
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


async def test_a_payload_that_does_not_fit_says_which_signal_and_why(rota_app: Rota) -> None:
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


async def test_what_cannot_be_read_is_said_before_waiting_for_it(rota_app: Rota) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        with pytest.raises(DefinitionError, match="signal 'word'"):
            await ctx.wait_signal("word", Survey | dict[str, int])

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)


# Timeouts


async def test_nobody_sent_it_in_time(rota_harness: Harness) -> None:
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
            await slept(rota_harness, run, times)
            await asleep(run)
            await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == [
            "no answer",
            True,
            "signal 'two' did not arrive before the timeout",
        ]


async def test_a_timeout_that_is_kept_stands_though_the_signal_comes_later(
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
        await asleep(run)
        await rota_harness.clock.advance(HOUR)
        await slept(rota_harness, run, 2)
        await asleep(run)
        assert await run.signal("word", "hello")
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == ["silence", "hello"]
    assert seen == ["silence"]


async def test_what_was_heard_is_kept_before_anything_comes_of_it(
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


async def test_what_a_task_returns_because_of_a_wait_is_kept_with_it(
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


async def test_a_run_that_waits_is_cancelled_at_once(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_signal("word")

    async with app.worker():
        run = await work.start()
        await asleep(run)
        assert await run.cancel() == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        assert await run.signal("word") is False


async def test_a_signal_goes_to_every_job_of_a_run_that_waits_for_it(rota_harness: Harness) -> None:
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
            while await fetch(app._dsn or "", "select count(*) from rota.sleeping") != [(2,)]:
                await asyncio.sleep(0.01)
        assert await run.signal("word", "yes")
        assert await run.result(timeout=60) == {"both": "left yes, right yes"}


async def test_many_who_wait_are_each_woken_once(rota_harness: Harness) -> None:
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
