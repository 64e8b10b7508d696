"""Statements of `once` calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from rota.store import once_calls
from rota.store.once_calls import OnceStart, RenewedOnce
from rota.store.query import Query
from support.stage import Connection, Stage

WHO = {"instance": uuid4(), "host": "box", "pid": 7, "label": "charge"}
DAY = 86400.0


@pytest.fixture
async def calls(stage: Stage) -> Stage:
    await stage.sql("delete from rota.once_calls")
    return stage


def begin_query(
    key: str = "k",
    nonce: UUID | None = None,
    earlier: Sequence[UUID] = (),
    ttl: float = 30,
    wait: bool = False,
) -> Query[OnceStart]:
    return once_calls.begin(key, nonce or uuid4(), earlier, WHO, ttl, wait=wait)


async def begin(stage: Stage, key: str = "k", **how: Any) -> OnceStart:
    [answer] = await stage.run(begin_query(key, **how))
    return answer


async def begin_token(stage: Stage, key: str = "k", **how: Any) -> int:
    token = (await begin(stage, key, **how)).token
    assert token is not None
    return token


async def finish(
    stage: Stage, token: int, result: str = "1", keep: float | None = DAY, key: str = "k"
) -> list[bool]:
    return await stage.run(once_calls.finish(key, token, result, keep))


async def expire(stage: Stage, column: str = "expires", key: str = "%") -> None:
    await stage.sql(
        f"update rota.once_calls set {column} = rota.clock() - interval '1 second' where key like %s",
        key,
    )


async def keys(stage: Stage) -> list[str]:
    return await stage.sql("select key from rota.once_calls order by key")


# Begin


@pytest.mark.usefixtures("stopped_clock")
async def test_once_begin_running_call_returns_its_holder(calls: Stage) -> None:
    first, second = await begin(calls), await begin(calls)

    assert (first.is_done, first.lost_race, first.has_result) == (True, False, False)
    assert (second.is_done, second.lost_race, second.has_result) == (False, False, False)
    assert (second.host, second.pid, second.label) == ("box", 7, "charge")
    assert second.running_seconds is not None
    assert second.expires_in is not None
    assert 29 < second.expires_in <= 30


async def test_once_tokens_rise_after_release_and_expiry(calls: Stage) -> None:
    tokens = []
    for _ in range(3):
        nonce = uuid4()
        tokens.append(await begin_token(calls, nonce=nonce))
        await calls.run(once_calls.release("k", [nonce]))
        tokens.append(await begin_token(calls))
        await expire(calls)
        tokens.append(await begin_token(calls))
        await expire(calls)
    assert tokens == sorted(set(tokens))


async def test_once_begin_retried_after_lost_answer_begins_again(calls: Stage) -> None:
    nonce = uuid4()
    first = await begin_token(calls, nonce=nonce)

    assert not (await begin(calls, earlier=[uuid4()])).is_done
    assert await begin_token(calls, earlier=[uuid4(), nonce]) > first
    assert not (await begin(calls, earlier=[nonce])).is_done, "it came late: a newer one has it"


async def test_once_begin_concurrently_starts_one_call(calls: Stage) -> None:
    """With and without an existing row."""
    connections = [await calls.connect() for _ in range(8)]
    for turn in range(20):
        if turn % 2:
            await expire(calls)
        else:
            await calls.sql("delete from rota.once_calls")
        answers = await asyncio.gather(*(calls.run(begin_query(), each) for each in connections))
        tokens = [answer.token for [answer] in answers if answer.token is not None]
        assert len(tokens) == 1
        for [answer] in answers:
            assert answer.is_done or answer.lost_race or answer.host == "box"


async def test_once_begin_locked_row_returns_lost_race_at_once(calls: Stage) -> None:
    await begin_token(calls)
    await expire(calls)
    other = await calls.connect()
    async with other.transaction():
        await other.execute("select from rota.once_calls for update")
        answer = await asyncio.wait_for(begin(calls, wait=True), 60)
    assert (answer.is_done, answer.lost_race) == (False, True)


# Wait


async def test_once_finish_returns_the_wait_flag_once(calls: Stage) -> None:
    token = await begin_token(calls)
    assert not (await begin(calls)).wait_flag_set
    assert (await begin(calls, wait=True)).wait_flag_set
    assert (await begin(calls, wait=True)).wait_flag_set

    assert await finish(calls, token) == [True]
    assert await finish(calls, token) == [False]
    assert (await begin(calls)).result == b"1"


async def test_once_begin_after_expiry_clears_the_wait_flag(calls: Stage) -> None:
    await begin_token(calls)
    await begin(calls, wait=True)
    await expire(calls)
    nonce = uuid4()
    token = await begin_token(calls, nonce=nonce)

    assert await finish(calls, token, keep=-1) == [False]
    nonce = uuid4()
    await begin_token(calls, nonce=nonce)
    assert await calls.run(once_calls.release("k", [nonce])) == [False]
    nonce = uuid4()
    await begin_token(calls, nonce=nonce)
    await begin(calls, wait=True)
    assert await calls.run(once_calls.release("k", [nonce])) == [True]


# Finish


async def test_once_replaced_call_cannot_finish_or_release(calls: Stage) -> None:
    nonce = uuid4()
    zombie = await begin_token(calls, nonce=nonce)
    await expire(calls)
    token = await begin_token(calls)

    assert await finish(calls, zombie, '"zombie"') == []
    assert await calls.run(once_calls.release("k", [nonce])) == []
    assert not (await begin(calls)).is_done
    assert await finish(calls, token, '"mine"') == [False]
    assert await finish(calls, zombie, '"zombie"') == []
    assert (await begin(calls)).result == b'"mine"'


async def test_once_finish_after_expiry_is_accepted_if_not_replaced(calls: Stage) -> None:
    token = await begin_token(calls)
    await expire(calls)

    assert await finish(calls, token) == [False]
    assert (await begin(calls)).has_result


async def test_once_release_of_finished_call_is_refused(calls: Stage) -> None:
    nonce = uuid4()
    token = await begin_token(calls, nonce=nonce)
    await finish(calls, token)

    assert await calls.run(once_calls.release("k", [nonce])) == []
    assert (await begin(calls)).has_result


async def test_once_begin_during_late_finish_has_one_winner(
    calls: Stage,
) -> None:
    """Either the late result is stored before the next call begins, or it is refused."""
    one, other = await calls.connect(), await calls.connect()
    for _ in range(20):
        await calls.sql("delete from rota.once_calls")
        zombie = await begin_token(calls)
        await expire(calls)
        written, [answer] = await asyncio.gather(
            calls.run(once_calls.finish("k", zombie, "1", DAY), one),
            calls.run(begin_query(), other),
        )
        assert bool(written) != (answer.token is not None)


# Expired results


async def test_once_begin_after_retention_starts_a_new_call(calls: Stage) -> None:
    await finish(calls, await begin_token(calls))
    await expire(calls, "retained_until")

    answer = await begin(calls)
    assert (answer.has_result, answer.result) == (False, None)
    assert answer.token is not None


async def test_once_finish_deletes_a_few_expired_rows(calls: Stage) -> None:
    for number in range(23):
        await finish(calls, await begin_token(calls, f"over {number:02}"), key=f"over {number:02}")
    await finish(calls, await begin_token(calls, "kept"), key="kept")
    await begin_token(calls, "over, and never finished")
    await begin_token(calls, "goes on")
    await expire(calls, "retained_until", "over%")
    await expire(calls, "retained_until", "goes on")
    await expire(calls, "expires", "over, and%")

    left = []
    for _ in range(4):
        await finish(calls, await begin_token(calls, "last"), key="last", keep=DAY)
        left.append(len(await keys(calls)))
        await expire(calls, "retained_until", "last")

    assert left == [17, 7, 3, 3]
    assert await keys(calls) == ["goes on", "kept", "last"]


async def test_once_finish_late_retains_its_own_result(calls: Stage) -> None:
    token = await begin_token(calls)
    await expire(calls)
    await expire(calls, "retained_until")

    assert await finish(calls, token) == [False]
    assert (await begin(calls)).has_result


async def test_once_finish_skips_locked_expired_rows(calls: Stage) -> None:
    for number in range(3):
        await finish(calls, await begin_token(calls, f"over {number}"), key=f"over {number}")
    await expire(calls, "retained_until")
    token = await begin_token(calls)
    other = await calls.connect()
    async with other.transaction():
        await other.execute("select from rota.once_calls where key = 'over 1' for key share")
        await asyncio.wait_for(finish(calls, token), 60)
        assert await keys(calls) == ["k", "over 1"]


# Renew


async def test_once_renew_extends_only_current_calls(calls: Stage) -> None:
    held = await begin_token(calls, "held")
    over = await begin_token(calls, "over")
    await expire(calls, key="over")
    replaced = await begin_token(calls, "replaced")
    await expire(calls, key="replaced")
    await begin_token(calls, "replaced")
    locked = await begin_token(calls, "locked")
    done = await begin_token(calls, "done")
    await finish(calls, done, key="done")
    other = await calls.connect()
    async with other.transaction():
        await other.execute("select from rota.once_calls where key = 'locked' for update")
        answers = await calls.run(
            once_calls.renew(
                [
                    ("held", held, 90.0),
                    ("over", over, 90.0),
                    ("replaced", replaced, 90.0),
                    ("locked", locked, 90.0),
                    ("done", done, 90.0),
                    ("gone", 1, 90.0),
                ]
            )
        )

    assert sorted(answers, key=lambda each: each.token) == sorted(
        [
            RenewedOnce(held, True),
            RenewedOnce(over, False),
            RenewedOnce(replaced, False),
            RenewedOnce(locked, None),
            RenewedOnce(done, True),
            RenewedOnce(1, False),
        ],
        key=lambda each: each.token,
    )
    left = await calls.sql(
        "select key from rota.once_calls where expires > rota.clock() + interval '60 seconds' order by 1"
    )
    assert left == ["done", "held"]


# Many rows

READ = """
select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::int from pg_stat_xact_user_tables
 where schemaname = 'rota' and relname = 'once_calls'
"""

OTHERS = """
insert into rota.once_calls
      (key, token, instance, nonce, host, pid, label, started, expires, finished, retained_until, result)
select 'other ' || number, -number, gen_random_uuid(), gen_random_uuid(), '', 1, '', rota.clock(),
       rota.clock(), rota.clock(), rota.clock() + make_interval(days => 1 + number), '1'
  from generate_series(1, 20000) as number
"""


async def read_by(stage: Stage, on: Connection, keeper: Connection) -> dict[str, int]:
    """Run each statement often enough for its plan to be cached; return the most rows that each read."""
    nonce = uuid4()
    key = f"k {nonce}"
    token = await begin_token(stage, key, nonce=nonce)
    statements: dict[str, Query[Any]] = {
        "begin": begin_query(f"new {nonce}"),
        "wait": begin_query(key, wait=True),
        "renew": once_calls.renew([(key, token, 30.0), ("gone", 1, 30.0)]),
        "free": once_calls.release(key, [nonce]),
        "finish": once_calls.finish(key, token, "1", DAY),
    }
    found = dict[str, int]()
    for name, query in statements.items():
        for _ in range(8):
            session = keeper if name == "renew" else on
            async with session.transaction(force_rollback=True):
                [before] = await stage.sql(READ, on=session)
                await stage.run(query, session)
                [after] = await stage.sql(READ, on=session)
            found[name] = max(found.get(name, 0), after - before)
    return found


@pytest.mark.parametrize("analysed", ["never", "empty", "full"])
async def test_once_statements_read_few_rows(own_stage: Stage, analysed: str) -> None:
    """An ordinary session keeps a plan made for a nearly empty table until the table is analysed.
    Renewals do not depend on that."""
    stage, old, keeper = own_stage, await own_stage.connect(), own_stage.engine
    await stage.sql("alter table rota.once_calls set (autovacuum_enabled = off)")
    if analysed == "empty":
        await stage.sql("analyze rota.once_calls")
    await read_by(stage, old, keeper)
    await stage.sql(OTHERS)
    if analysed == "full":
        await stage.sql("analyze rota.once_calls")

    assert max((await read_by(stage, await stage.connect(), keeper)).values()) < 30
    await stage.sql("analyze rota.once_calls")
    assert max((await read_by(stage, old, keeper)).values()) < 30
