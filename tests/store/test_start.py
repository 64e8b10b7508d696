"""Starting jobs: each is put in its place, and a key gives one run to every caller."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.errors import DeadlockDetected

from rota.app.client import Client
from rota.errors import ArgumentError, KeyBusy
from rota.model.settings import Settings
from rota.store import jobs, runs
from rota.store.jobs import StartedJob, StartJob
from rota.store.query import Query
from rota.store.user_connection import run_on
from support.stage import Connection, Stage

FUTURE = datetime(2040, 2, 29, tzinfo=UTC)


async def keyed(stage: Stage, on: Connection | None = None, **more: Any) -> StartedJob:
    start = StartJob(**{"task": "work", "args": "{}", "queue": "default", "key": "k", **more})
    [started] = await stage.run(jobs.start(start, notify=False), on)
    return started


# Places


async def test_start_job_is_queued_with_its_id_as_seq(stage: Stage) -> None:
    run = await stage.start("work", queue="images", priority=3, args='{"a":1}', options='{"b":2}')

    assert await stage.sql(
        "select seq, job, priority, attempt, crashes, queue, task from rota.queued"
    ) == [(run, run, 3, 1, 0, "images", "work")]
    assert await stage.sql(
        "select id, run, expires, priority, task, queue, key, args ->> 'a', options ->> 'b' from rota.jobs"
    ) == [(run, None, None, 3, "work", "images", None, "1", "2")]


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_start_in_the_future_sleeps_until_then(stage: Stage, many: bool) -> None:
    async def start(**more: Any) -> int:
        if many:
            return (await stage.start_several(1, **more))[0]
        return await stage.start(**more)

    at = await start(at=FUTURE)
    delayed = await start(delay=timedelta(minutes=5), priority=2)
    past = await start(at=datetime(2001, 1, 1, tzinfo=UTC))
    at_once = await start(delay=timedelta(0))

    assert await stage.sql("select job from rota.queued order by job") == [past, at_once]
    assert await stage.sql("select wake_at from rota.sleeping where job = %s", at) == [FUTURE]
    assert await stage.sql(
        "select priority, extract(epoch from wake_at - since)::int from rota.sleeping where job = %s",
        delayed,
    ) == [(2, 300)]


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_start_expiry_is_stored_as_timestamp(stage: Stage, many: bool) -> None:
    for more in ({"expires": FUTURE}, {"expires_in": timedelta(hours=1)}):
        if many:
            await stage.start_several(1, **more)
        else:
            await stage.start(**more)

    first, second = await stage.sql("select expires, created from rota.jobs order by id")
    assert first[0] == FUTURE
    assert second[0] - second[1] == timedelta(hours=1)


@pytest.mark.parametrize("priority", [-1, 10, 32767])
async def test_start_priority_out_of_range_is_refused(stage: Stage, priority: int) -> None:
    with pytest.raises(ArgumentError, match=f"priority must be from 0 to 9, not {priority}"):
        await stage.database.run(
            jobs.start(StartJob("work", "{}", "default", priority, key="k"), notify=False)
        )
    for start in (stage.start(priority=priority), stage.start_several(1, priority=priority)):
        with pytest.raises(psycopg.errors.CheckViolation):
            await start

    assert await stage.sql("select id from rota.jobs") == []


@pytest.mark.parametrize("args", ["[1]", '"text"', "null"])
async def test_start_arguments_not_an_object_are_refused(stage: Stage, args: str) -> None:
    with pytest.raises(ArgumentError, match="args must be a JSON object"):
        await stage.database.run(
            jobs.start(StartJob("work", args, "default", key="k"), notify=False)
        )


async def test_start_simple_and_full_statement_write_same_rows(stage: Stage) -> None:
    """They are two statements that must write identical rows."""
    plain = StartJob("work", "{}", "images", priority=3)
    [one] = await stage.run(jobs.start(plain, notify=False))
    [other] = await stage.run(
        Query(
            "job/start", {**jobs.start(_full(plain), notify=False).params, "key": None}, StartedJob
        )
    )

    assert one.created
    assert other.created
    for table, key in (("jobs", "id"), ("queued", "job")):
        rows = await stage.sql(
            f"select to_jsonb(t) - '{key}' - 'seq' - 'created' from rota.{table} t"
        )
        assert len(rows) == 2
        assert rows[0] == rows[1]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "with a key"])
@pytest.mark.parametrize("notify", [True, False])
async def test_start_notifies_only_if_requested(stage: Stage, plain: bool, notify: bool) -> None:
    listener = await stage.connect()
    await stage.sql('listen "rota.wake"', on=listener)
    start = StartJob("work", "{}", "images", key=None if plain else "k")

    await stage.run(jobs.start(start, notify=notify))
    await stage.sql("select pg_notify('rota.wake', 'the end')")

    heard = [note.payload async for note in listener.notifies(timeout=60, stop_after=1)]
    assert heard[0] == ("images" if notify else "the end")


async def test_start_many_returns_ids_in_given_order(stage: Stage) -> None:
    starts = [
        StartJob(f"task{number}", "{}", "default", priority=number % 10) for number in range(50)
    ]

    ids = await stage.run(jobs.start_many(starts))

    assert await stage.sql("select task from rota.jobs order by id") == [
        start.task for start in starts
    ]
    assert ids == sorted(ids)


async def test_start_many_by_copy_writes_same_rows(stage: Stage) -> None:
    awkward = '{"a":"\\\\ \\n \\t \\" ü \\u2028 \U0001f600 \\\\.","b":[1.5,null,true]}'
    plain = StartJob("work", awkward, "images", priority=4)
    client = Client(stage.dsn, Settings(notify=False))
    try:
        written = [each.run for each in await client.start_many([plain])]
        copied = [each.run for each in await client.start_many([plain] * 600)]
    finally:
        await client.close()

    assert len(set(copied)) == 600
    assert await stage.sql("select distinct args::text, priority, task, queue from rota.jobs") == [
        (awkward, 4, "work", "images")
    ]
    assert await stage.sql("select job from rota.queued order by seq") == [*written, *copied]
    assert await stage.sql("select job from rota.queued where seq <> job or priority <> 4") == []


def _full(start: StartJob) -> StartJob:
    """Return a start with a key, which uses the other statement."""
    return msgspec.structs.replace(start, key="k")


# Keys


async def test_start_same_key_returns_same_run(stage: Stage) -> None:
    first = await keyed(stage)
    second = await keyed(stage, args='{"other": 1}')

    assert (first.created, second.created) == (True, False)
    assert first.run == second.run
    assert await stage.sql("select id, key from rota.jobs") == [(first.run, "k")]


async def test_start_same_key_of_another_task_creates_a_run(stage: Stage) -> None:
    assert (await keyed(stage)).run != (await keyed(stage, task="other")).run


async def test_start_same_key_by_fifty_callers_creates_one_run(stage: Stage) -> None:
    sessions = [await stage.connect() for _ in range(50)]

    answers = await asyncio.gather(*(keyed(stage, on) for on in sessions))

    assert len({answer.run for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert len(await stage.sql("select id from rota.jobs")) == 1


async def test_start_key_after_waiting_returns_the_first_run(stage: Stage) -> None:
    """Finding 7: insert-or-select in one statement returned nothing to the second caller."""
    other, waiting = await stage.connect(), await stage.connect()

    async with other.transaction():
        first = await keyed(stage, other)
        second = stage.meanwhile(keyed(stage, waiting))
        await stage.waits(waiting, other)

    assert (await second).run == first.run
    assert not (await second).created


async def test_start_key_after_rolled_back_holder_creates_a_run(
    stage: Stage,
) -> None:
    other, waiting = await stage.connect(), await stage.connect()

    async with other.transaction(force_rollback=True):
        first = await keyed(stage, other)
        second = stage.meanwhile(keyed(stage, waiting))
        await stage.waits(waiting, other)

    assert (await second).created
    assert (await second).run != first.run


async def test_start_key_held_by_open_transaction_raises_key_busy(stage: Stage) -> None:
    other = await stage.connect()

    async with other.transaction():
        await keyed(stage, other)
        began = time.monotonic()
        with pytest.raises(KeyBusy, match=r"key k of task work is held by an open transaction"):
            await stage.database.run(
                jobs.start(StartJob("work", "{}", "default", key="k"), notify=False)
            )

    assert time.monotonic() - began > 1.5
    assert await stage.one("show lock_timeout") == "2s"


async def in_a_savepoint(connection: Connection, query: Query[StartedJob]) -> None:
    async with connection.transaction():
        answer = run_on(connection, query, "rota")
        assert not isinstance(answer, list)
        await answer


async def test_start_busy_key_keeps_the_caller_transaction_usable(stage: Stage) -> None:
    """The caller can roll back to a savepoint and commit the rest; its settings are unchanged."""
    other = await stage.connect()
    query = jobs.start(StartJob("work", "{}", "default", key="k"), notify=False)

    async with other.transaction():
        await keyed(stage, other)
        async with await psycopg.AsyncConnection.connect(stage.dsn) as mine:
            await mine.execute("set lock_timeout = '1h'")
            await mine.execute(
                "insert into rota.workers (host, pid, version, queues, tasks, capacity)"
                " values ('mine', 1, '', '{}', '{}', 1)"
            )
            with pytest.raises(KeyBusy):
                await in_a_savepoint(mine, query)
            timeout = await (await mine.execute("show lock_timeout")).fetchone()
            await mine.commit()

    assert timeout == ("1h",)
    assert await stage.sql("select host from rota.workers") == ["mine"]


async def test_start_many_same_keys_reversed_do_not_deadlock(stage: Stage) -> None:
    """Finding 7: keys are sorted in a batch, so two callers wait for each other in one direction."""
    clients = [Client(stage.dsn, Settings(notify=False)) for _ in range(2)]
    starts = [StartJob("work", "{}", "default", key=f"{number:02}") for number in range(40)]
    try:
        for _ in range(5):
            try:
                up, down = await asyncio.gather(
                    clients[0].start_many(starts), clients[1].start_many(starts[::-1])
                )
            except DeadlockDetected:
                pytest.fail("deadlock")
            assert [each.run for each in up] == [each.run for each in down][::-1]
            await stage.sql("delete from rota.keys")
    finally:
        for client in clients:
            await client.close()


async def test_start_many_with_and_without_keys_keeps_order(stage: Stage) -> None:
    client = Client(stage.dsn, Settings(notify=False))
    taken = await keyed(stage, key="b")
    starts = [
        StartJob("plain", "{}", "default"),
        StartJob("work", "{}", "default", key="z"),
        StartJob("work", "{}", "default", key="b"),
        StartJob("plain", "{}", "default"),
        StartJob("work", "{}", "default", key="a"),
    ]
    try:
        answers = await client.start_many(starts)
    finally:
        await client.close()

    assert [each.created for each in answers] == [True, True, False, True, True]
    assert answers[2].run == taken.run
    for start, answer in zip(starts, answers, strict=True):
        assert await stage.sql("select task, key from rota.jobs where id = %s", answer.run) == [
            (start.task, start.key)
        ]


async def test_start_key_unique_for_a_period_is_free_afterwards(own_stage: Stage) -> None:
    stage = own_stage
    noon = datetime(2030, 6, 1, 12, tzinfo=UTC)

    async def at(offset: timedelta) -> StartedJob:
        await stage.sql(
            "create or replace function rota.clock() returns timestamptz language sql stable"
            f" as $$ select timestamptz '{(noon + offset).isoformat()}' $$"
        )
        return await keyed(stage, unique_for=timedelta(hours=1))

    first = await at(timedelta(0))
    within = await at(timedelta(minutes=59, seconds=59))
    after = await at(timedelta(hours=1))
    within_again = await at(timedelta(hours=1, minutes=59))

    assert [each.created for each in (first, within, after, within_again)] == [
        *(True, False, True, False),
    ]
    assert (first.run == within.run, after.run == within_again.run) == (True, True)


async def test_start_key_unique_while_open_is_free_after_end(stage: Stage) -> None:
    first = await keyed(stage, unique_open=True)
    assert (await keyed(stage, unique_open=True)).run == first.run

    batch = await stage.claim(await stage.worker())
    assert (await keyed(stage, unique_open=True)).run == first.run

    await stage.retry(batch)
    assert (await keyed(stage, unique_open=True)).run == first.run

    await stage.run(runs.cancel(first.run), stage.watch)
    second = await keyed(stage, unique_open=True)
    assert second.created
    assert (await keyed(stage, unique_open=True)).run == second.run


async def test_start_freed_key_by_two_callers_creates_one_run(
    stage: Stage,
) -> None:
    old = await keyed(stage, unique_open=True)
    await stage.run(runs.cancel(old.run), stage.watch)
    other, waiting = await stage.connect(), await stage.connect()

    async with other.transaction():
        first = await keyed(stage, other, unique_open=True)
        second = stage.meanwhile(keyed(stage, waiting, unique_open=True))
        await stage.waits(waiting, other)

    assert first.created
    assert (await second).run == first.run


# From any language


async def test_start_sql_function_queues_job_and_notifies(stage: Stage) -> None:
    listener = await stage.connect()
    await stage.sql('listen "rota.wake"', on=listener)

    [(run, created)] = await stage.sql("""select * from rota.start('work', '{"a": 1}', 'images')""")

    assert created
    assert await stage.place(run) == "queued"
    [heard] = [note async for note in listener.notifies(timeout=60, stop_after=1)]
    assert heard.payload == "images"


async def test_start_rolled_back_leaves_no_rows(stage: Stage) -> None:
    before = await stage.everything()

    async with stage.engine.transaction(force_rollback=True):
        await keyed(stage, stage.engine)

    assert await stage.everything() == before
