"""Statements about locks, between sessions that meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import psycopg
import pytest
from psycopg.errors import LockNotAvailable

from rota.store import locks
from rota.store.locks import ReleasedLockRow

from .holding import (
    ME,
    NAME,
    OTHER,
    pin,
    release,
    renew,
    row,
    run_out,
    take,
    take_away,
    taken,
    taking,
)
from .stage import Connection, Stage


@pytest.fixture(autouse=True)
async def none_held(stage: Stage) -> None:
    await stage.sql("delete from rota.locks")


@pytest.fixture
async def session(stage: Stage) -> Connection:
    """One more session beside `stage.watch`."""
    return await stage.connect()


async def refused(stage: Stage, token: int) -> None:
    with pytest.raises(psycopg.Error) as caught:
        await stage.run(locks.assert_lock(NAME, token), stage.watch)
    assert caught.value.sqlstate == "RT004"


# Acquire


async def test_a_lock_is_taken_once_and_the_second_is_told_who_has_it(stage: Stage) -> None:
    token = await taken(stage)

    answer = await take(stage, by=OTHER)

    assert answer.token is answer.permit is None
    assert (answer.instance, answer.host, answer.holder_token) == (ME, f"host of {ME}", token)
    assert answer.held_seconds is not None
    assert answer.expires_in is not None
    assert 0 <= answer.held_seconds < 5
    assert 25 < answer.expires_in <= 30


async def test_what_has_run_out_is_taken_under_a_larger_token(stage: Stage) -> None:
    first = await taken(stage)
    await run_out(stage)

    assert await taken(stage, by=OTHER) > first


@pytest.mark.parametrize(
    "doing", ["takes it", "renews it", "gives it back", "takes it away", "relies on it"]
)
async def test_to_take_one_never_waits(stage: Stage, session: Connection, doing: str) -> None:
    """Another session changes the lock and has not committed."""
    token = await taken(stage)
    if doing == "takes it":
        await run_out(stage)
    await stage.sql("begin", on=session)
    match doing:
        case "takes it":
            await taken(stage, session, by=OTHER)
        case "renews it":
            assert (await renew(stage, token, on=session)).renewed
        case "gives it back":
            await release(stage, token, session)
        case "takes it away":
            await take_away(stage, session)
        case "relies on it":
            await stage.run(locks.assert_lock(NAME, token), session)
    await run_out(stage) if doing == "relies on it" else None

    async with asyncio.timeout(60):
        for wait in (False, True):
            assert (await take(stage, by=OTHER, wait=wait)).token is None

    await stage.sql("rollback", on=session)


async def test_only_who_makes_the_row_is_waited_for(stage: Stage, session: Connection) -> None:
    await stage.sql("begin", on=session)
    await taken(stage, session)
    second = stage.meanwhile(take(stage, stage.engine, by=OTHER))
    await stage.waits(stage.engine, session)

    await stage.sql("commit", on=session)

    answer = await second
    assert (answer.token, answer.lost_race) == (None, True)
    assert (await take(stage, by=OTHER)).instance == ME


async def test_the_same_call_takes_again_what_it_had_taken_unknowingly(stage: Stage) -> None:
    first, second = uuid4(), uuid4()
    lost = await taken(stage, nonce=first)

    again = await taken(stage, nonce=second, earlier=[first])

    assert again > lost
    assert not (await renew(stage, lost)).renewed
    assert (await renew(stage, again)).renewed


async def test_an_ask_that_arrives_late_takes_nothing_from_the_one_that_was_answered(
    stage: Stage,
) -> None:
    """The request was sent on a connection that was given up, and the call has been retried since."""
    first, second = uuid4(), uuid4()
    token = await taken(stage, nonce=second, earlier=[first])

    assert (await take(stage, nonce=first)).token is None
    assert (await renew(stage, token)).renewed


async def test_what_was_taken_for_nobody_can_be_let_go_of(stage: Stage) -> None:
    first, second = uuid4(), uuid4()
    await taken(stage, nonce=first)

    await stage.run(locks.abandon(NAME, [uuid4()], ME))
    await stage.run(locks.abandon(NAME, [first, second], OTHER))
    assert (await take(stage, by=OTHER)).token is None
    await stage.run(locks.abandon(NAME, [second, first], ME))

    await taken(stage, by=OTHER)
    before = await row(stage)
    await stage.run(locks.abandon(NAME, [first, second], ME))
    assert await row(stage) == before, "it is somebody else's by now"


# Assert


async def test_a_transaction_that_relies_on_it_keeps_it_from_others_though_it_has_run_out(
    stage: Stage, session: Connection
) -> None:
    token = await taken(stage)
    await pin(stage, token, session)
    await run_out(stage)

    for wait in (False, True):
        assert (await take(stage, by=OTHER, wait=wait)).token is None
    await stage.sql("commit", on=session)

    assert await taken(stage, by=OTHER) > token
    await refused(stage, token)


async def test_a_transaction_that_relies_on_it_disturbs_neither_renewing_nor_giving_back(
    stage: Stage, session: Connection
) -> None:
    token = await taken(stage)
    await pin(stage, token, session)

    async with asyncio.timeout(60):
        assert (await renew(stage, token)).renewed
        assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)

    answer = await take(stage, by=OTHER)
    assert (answer.token, answer.host) == (None, None), "given back, and still relied on"
    await stage.sql("rollback", on=session)
    await taken(stage, by=OTHER)


async def test_it_is_pinned_still_when_it_was_renewed_meanwhile(
    stage: Stage, session: Connection
) -> None:
    """A renewal writes a new version of the row: the pin applies to it, too."""
    token = await taken(stage)
    await pin(stage, token, session)
    for _ in range(3):
        assert (await renew(stage, token)).renewed
    await run_out(stage)

    assert (await take(stage, by=OTHER)).token is None
    await stage.sql("commit", on=session)
    await taken(stage, by=OTHER)


async def test_nobody_takes_it_away_by_hand_while_a_transaction_relies_on_it(
    stage: Stage, session: Connection
) -> None:
    token = await taken(stage)
    await pin(stage, token, session)

    with pytest.raises(LockNotAvailable):
        await take_away(stage)

    await stage.sql("commit", on=session)
    assert (await take_away(stage))["token"] == token


async def test_who_relies_on_it_waits_for_who_takes_it_away(
    stage: Stage, session: Connection
) -> None:
    """The assertion is refused only if the forced release commits."""
    token = await taken(stage)
    for end in ("rollback", "commit"):
        await stage.sql("begin", on=session)
        await take_away(stage, session)
        relying = stage.meanwhile(stage.run(locks.assert_lock(NAME, token), stage.engine))
        await stage.waits(stage.engine, session)
        await stage.sql(end, on=session)
        if end == "rollback":
            await relying
    with pytest.raises(psycopg.Error, match="no longer held under token"):
        await relying


@pytest.mark.parametrize("how", ["other token", "given back", "run out", "no row", "taken away"])
async def test_what_is_not_held_cannot_be_relied_on(stage: Stage, how: str) -> None:
    token = await taken(stage)
    await stage.run(locks.assert_lock(NAME, token))
    match how:
        case "other token":
            token -= 1
        case "given back":
            await release(stage, token)
        case "run out":
            await run_out(stage)
        case "no row":
            await stage.sql("delete from rota.locks")
        case "taken away":
            await take_away(stage)

    await refused(stage, token)


# Renew


async def test_what_has_run_out_is_not_revived(stage: Stage) -> None:
    token = await taken(stage)
    assert (await renew(stage, token, ttl=60.0)).renewed
    [left] = await stage.sql("select extract(epoch from expires - rota.clock()) from rota.locks")
    assert 50 < left <= 60
    await run_out(stage)
    before = await row(stage)

    answer = await renew(stage, token)

    assert (answer.renewed, answer.is_duplicate) == (False, False)
    assert await row(stage) == before


@pytest.mark.parametrize("wrong", ["token", "instance", "given back", "taken over"])
async def test_only_the_holder_renews(stage: Stage, wrong: str) -> None:
    token, by = await taken(stage), ME
    match wrong:
        case "token":
            token += 1
        case "instance":
            by = OTHER
        case "given back":
            await release(stage, token)
        case "taken over":
            await run_out(stage)
            await taken(stage, by=OTHER)
    before = await row(stage)

    answer = await renew(stage, token, by)

    assert answer.renewed is False
    assert answer.is_duplicate is (wrong == "instance"), "the same token in two hands is told"
    assert await row(stage) == before


async def test_a_row_that_somebody_keeps_locked_costs_only_itself(
    stage: Stage, session: Connection
) -> None:
    """An operator locks one row for a long time. That lock is not lost, and the rest are renewed at
    once."""
    names = [f"lock {number}" for number in range(5)]
    tokens = [await taken(stage, name=name) for name in names]
    await stage.sql("begin", on=session)
    await take_away(stage, session, names[2])
    held = [(name, token, 30.0) for name, token in zip(names, tokens, strict=True)]

    async with asyncio.timeout(60):
        answers = await stage.run(locks.renew(ME, held), stage.watch)

    assert {each.token: each.renewed for each in answers} == {
        token: None if token == tokens[2] else True for token in tokens
    }
    await stage.sql("rollback", on=session)
    assert all(each.renewed for each in await stage.run(locks.renew(ME, held), stage.watch))


# Release


async def test_giving_back_twice_is_no_mistake(stage: Stage) -> None:
    token = await taken(stage)

    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)
    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)

    following = await taken(stage, by=OTHER)
    before = await row(stage)
    assert await release(stage, token) is None, "it has passed to somebody else"
    assert await row(stage) == before
    assert await release(stage, following) is not None


async def test_what_has_run_out_was_not_held_until_it_was_given_back(stage: Stage) -> None:
    token = await taken(stage)
    await run_out(stage)

    assert await release(stage, token) == ReleasedLockRow(held=False, awaited=False)
    await taken(stage, by=OTHER)


async def test_who_gives_it_back_hears_that_somebody_waits(stage: Stage) -> None:
    token = await taken(stage)
    assert not (await take(stage, by=OTHER)).wait_flag_set
    assert (await take(stage, by=OTHER, wait=True)).wait_flag_set
    assert (await take(stage, by=OTHER, wait=True)).wait_flag_set

    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=True)
    token = await taken(stage, by=OTHER)
    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)


@pytest.fixture
async def waiting(stage: Stage) -> AsyncIterator[Connection]:
    connection = await stage.connect()
    yield connection
    await stage.sql("rollback", on=connection)


async def test_many_waiters_lock_nothing_once_the_holder_knows(
    stage: Stage, waiting: Connection
) -> None:
    """Row locks of waiters would block renewals, and each poll would be written to disk."""
    token = await taken(stage)
    assert (await take(stage, by=OTHER, wait=True)).wait_flag_set
    await stage.sql("begin", on=waiting)

    assert (await take(stage, waiting, by=OTHER, wait=True)).wait_flag_set

    assert await stage.one("select pg_current_xact_id_if_assigned() is null")
    [assigned] = await stage.sql("select pg_current_xact_id_if_assigned()", on=waiting)
    assert assigned is None
    assert (await renew(stage, token)).renewed


async def test_permits_are_taken_once_each(stage: Stage) -> None:
    *slots, none = [(await take(stage, permits=3)).permit for _ in range(4)]

    assert {*slots} == {1, 2, 3}
    assert none is None
    assert (await stage.run(taking()))[0].token is not None, (
        "a lock of the same name is another thing"
    )
