"""Starting flows: keys, times, priorities, the caller's connection, refused arguments."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from rota import ArgumentError, KeyBusy, Rota, RunExpired
from rota.errors import PayloadTooLarge, RunNotFound
from rota.testing import Harness
from support.queries import fetch, nothing, states


async def test_flow_start_key_is_unique_forever_for_period_or_while_open(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    flow = app.flow("f")
    flow.task(nothing, name="a")
    flow.task(nothing, name="b", after=["a"])

    first = await flow.options(key="k").start()
    second = await flow.options(key="k").start()
    assert (first.created, second.created, second.id) == (True, False, first.id)

    hourly = flow.options(key="hour", unique=timedelta(hours=1))
    once = await hourly.start()
    assert (await hourly.start()).id == once.id
    await rota_harness.clock.advance(timedelta(hours=1, seconds=1))
    assert (await hourly.start()).created

    single = flow.options(key="single", unique="open")
    once = await single.start()
    assert (await single.start()).id == once.id
    await rota_harness.run_until_idle()
    assert (await single.start()).created
    assert await fetch(app.database.dsn or "", "select count(*) from rota.runs") == [(5,)]


async def test_flow_start_same_key_concurrently_creates_one_run(rota_app: Rota) -> None:
    flow = rota_app.flow("f")
    flow.task(nothing, name="a")

    started = await asyncio.gather(*(flow.options(key="k").start() for _ in range(8)))

    assert len({run.id for run in started}) == 1
    assert [run.created for run in started].count(True) == 1


async def test_flow_start_key_in_open_transaction_raises_key_busy(
    rota_app: Rota, rota_dsn: str
) -> None:
    flow = rota_app.flow("f")
    flow.task(nothing, name="a")

    async with await psycopg.AsyncConnection.connect(rota_dsn) as theirs:
        await flow.options(key="k", on=theirs).start()
        with pytest.raises(KeyBusy):
            await flow.options(key="k").start()
        await theirs.rollback()
    assert (await flow.options(key="k").start()).created


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("kind", ["async", "sync", "blocking"])
async def test_flow_start_on_user_connection_follows_its_commit(
    rota_harness: Harness, rota_dsn: str, kind: str, commit: bool
) -> None:
    flow = rota_harness.app.flow("f")
    flow.task(nothing, name="a")
    flow.task(nothing, name="b", after=["a"])
    count = "select count(*) from rota.jobs"

    if kind == "async":
        async with await psycopg.AsyncConnection.connect(rota_dsn) as theirs:
            run = (await flow.options(on=theirs).start()).id
            assert await fetch(rota_dsn, count) == [(0,)]
            await (theirs.commit() if commit else theirs.rollback())
    else:
        with psycopg.connect(rota_dsn) as connection:
            way = flow.options(on=connection)
            run = way.sync.start().id if kind == "blocking" else (await way.start()).id
            assert await fetch(rota_dsn, count) == [(0,)]
            connection.commit() if commit else connection.rollback()

    assert await fetch(rota_dsn, count) == [(2 if commit else 0,)]
    if commit:
        await rota_harness.run_until_idle()
        assert await rota_harness.app.run(run).status() == "succeeded"
    else:
        with pytest.raises(RunNotFound):
            await rota_harness.app.run(run).status()


async def test_flow_sync_start_on_async_connection_is_refused(
    rota_app: Rota, rota_dsn: str
) -> None:
    flow = rota_app.flow("f")
    flow.task(nothing, name="a")
    async with await psycopg.AsyncConnection.connect(rota_dsn) as theirs:
        with pytest.raises(ArgumentError, match="cannot use an async connection"):
            flow.sync.options(on=theirs).start()


async def test_flow_start_delayed_begins_when_due(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow = app.flow("f")
    flow.task(nothing, name="a")
    flow.task(nothing, name="b", after=["a"])
    soon = await rota_harness.clock.now() + timedelta(minutes=5)

    runs = [
        await flow.options(delay=300).start(),
        await flow.options(at=soon).start(),
        await flow.options(at=datetime(2020, 1, 1, tzinfo=UTC)).start(),
    ]
    await rota_harness.run_until_idle()
    assert [await run.status() for run in runs] == ["running", "running", "succeeded"]
    await rota_harness.clock.advance(timedelta(minutes=5, seconds=1))
    await rota_harness.run_until_idle()

    assert [await run.status() for run in runs] == ["succeeded"] * 3


async def test_flow_expired_expires_first_job_and_skips_successor(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow = app.flow("f")
    flow.task(nothing, name="a")
    flow.task(nothing, name="b", after=["a"])

    run = await flow.options(expires=60).start()
    await rota_harness.clock.advance(timedelta(minutes=2))
    await rota_harness.run_until_idle()

    with pytest.raises(RunExpired):
        await run.result(timeout=60)
    assert await states(app, run.id) == {"a": "expired", "b": "skipped"}


async def test_flow_start_priority_overrides_all_jobs_of_run(rota_harness: Harness) -> None:
    flow = rota_harness.app.flow("f")
    flow.task(nothing, name="a", priority=3)
    flow.task(nothing, name="b", after=["a"])

    await flow.start()
    await flow.options(priority=7).start()

    assert await fetch(
        rota_harness.app.database.dsn or "",
        "select array_agg(priority order by id) from rota.jobs group by run",
    ) in ([([3, 0],), ([7, 7],)], [([7, 7],), ([3, 0],)])


async def test_start_many_flows_creates_all_or_none(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow, other = app.flow("f"), app.flow("g")

    @flow.task
    async def echo(n: int) -> int:
        return n

    other.task(nothing, name="a")
    task = app.task(name="t")(nothing)

    runs = await app.start_many([flow.bind(n=n) for n in range(50)])
    keyed = await app.start_many([flow.options(key=f"k{n % 3}").bind(n=n) for n in range(6)])
    await rota_harness.run_until_idle()

    assert [(await run.result(timeout=60))["echo"] for run in runs] == list(range(50))
    assert [run.created for run in keyed].count(True) == 3
    assert [keyed[n].id for n in range(3)] == [keyed[n + 3].id for n in range(3)]
    with pytest.raises(ArgumentError, match="not BoundFlow and BoundTask"):
        await app.start_many([task.bind(), other.bind()])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="does not fit task 'echo'"):
        await app.start_many([flow.bind(n=1), flow.bind(n="x")])
    assert await fetch(app.database.dsn or "", "select count(*) from rota.runs") == [(53,)]


async def test_flow_start_invalid_input_is_refused_before_writing(rota_app: Rota) -> None:
    flow = rota_app.flow("f")

    @flow.task
    async def one(sizes: list[int]) -> None: ...

    with pytest.raises(ArgumentError, match=r"does not fit task 'one'.*sizes\[0\]"):
        await flow.start(sizes=["x"])
    with pytest.raises(ArgumentError, match="takes 'sizes'"):
        await flow.start()
    with pytest.raises(ArgumentError, match="no task of flow 'f' takes 'more'"):
        await flow.start(sizes=[], more=1)
    with pytest.raises(PayloadTooLarge):
        await flow.start(sizes=list(range(rota_app.settings.payload_limit)))
    assert await fetch(rota_app.database.dsn or "", "select count(*) from rota.jobs") == [(0,)]


async def test_worker_start_with_invalid_flow_is_refused(rota_app: Rota) -> None:
    flow = rota_app.flow("f")
    flow.task(nothing, name="a", after=["b"])

    with pytest.raises(Exception, match="'a' of flow 'f' is to run after 'b'"):
        async with rota_app.worker():
            raise AssertionError


async def test_flow_sync_start_without_event_loop_returns_result(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow = app.flow("f")

    @flow.task
    def double(n: int) -> int:
        return 2 * n

    def program() -> Any:
        run = flow.sync.options(key="k").start(n=4)
        return run.created, run.result(timeout=60), run.status()

    async with app.worker():
        assert await asyncio.to_thread(program) == (True, {"double": 8}, "succeeded")
    await asyncio.to_thread(app.close_sync)
