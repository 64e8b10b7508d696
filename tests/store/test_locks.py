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
from support.lock_calls import (
    ME,
    NAME,
    OTHER,
    acquire,
    acquire_query,
    acquire_token,
    assert_in_open_transaction,
    expire_lock,
    force_release,
    release,
    renew,
    row,
)
from support.stage import Connection, Stage


@pytest.fixture(autouse=True)
async def clear_locks(stage: Stage) -> None:
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


@pytest.mark.usefixtures("stopped_clock")
async def test_acquire_held_lock_returns_its_holder(stage: Stage) -> None:
    token = await acquire_token(stage)

    answer = await acquire(stage, by=OTHER)

    assert answer.token is answer.permit is None
    assert (answer.instance, answer.host, answer.holder_token) == (ME, f"host of {ME}", token)
    assert answer.held_seconds is not None
    assert answer.expires_in is not None
    assert 0 <= answer.held_seconds < 5
    assert 25 < answer.expires_in <= 30


async def test_acquire_expired_lock_gets_a_higher_token(stage: Stage) -> None:
    first = await acquire_token(stage)
    await expire_lock(stage)

    assert await acquire_token(stage, by=OTHER) > first


@pytest.mark.parametrize(
    "doing", ["takes it", "renews it", "gives it back", "takes it away", "relies on it"]
)
async def test_acquire_lock_with_uncommitted_change_does_not_wait(
    stage: Stage, session: Connection, doing: str
) -> None:
    """Another session changes the lock and has not committed."""
    token = await acquire_token(stage)
    if doing == "takes it":
        await expire_lock(stage)
    await stage.sql("begin", on=session)
    match doing:
        case "takes it":
            await acquire_token(stage, session, by=OTHER)
        case "renews it":
            assert (await renew(stage, token, on=session)).renewed
        case "gives it back":
            await release(stage, token, session)
        case "takes it away":
            await force_release(stage, session)
        case "relies on it":
            await stage.run(locks.assert_lock(NAME, token), session)
    await expire_lock(stage) if doing == "relies on it" else None

    async with asyncio.timeout(60):
        for wait in (False, True):
            assert (await acquire(stage, by=OTHER, wait=wait)).token is None

    await stage.sql("rollback", on=session)


async def test_acquire_lock_with_uncommitted_insert_waits(
    stage: Stage, session: Connection
) -> None:
    await stage.sql("begin", on=session)
    await acquire_token(stage, session)
    second = stage.meanwhile(acquire(stage, stage.engine, by=OTHER))
    await stage.waits(stage.engine, session)

    await stage.sql("commit", on=session)

    answer = await second
    assert (answer.token, answer.lost_race) == (None, True)
    assert (await acquire(stage, by=OTHER)).instance == ME


async def test_acquire_retried_after_lost_answer_gets_a_new_token(stage: Stage) -> None:
    first, second = uuid4(), uuid4()
    lost = await acquire_token(stage, nonce=first)

    again = await acquire_token(stage, nonce=second, earlier=[first])

    assert again > lost
    assert not (await renew(stage, lost)).renewed
    assert (await renew(stage, again)).renewed


async def test_acquire_late_request_of_retried_call_gets_nothing(
    stage: Stage,
) -> None:
    """The request was sent on a connection that was given up, and the call has been retried since."""
    first, second = uuid4(), uuid4()
    token = await acquire_token(stage, nonce=second, earlier=[first])

    assert (await acquire(stage, nonce=first)).token is None
    assert (await renew(stage, token)).renewed


async def test_abandon_releases_only_lock_with_own_nonce(stage: Stage) -> None:
    first, second = uuid4(), uuid4()
    await acquire_token(stage, nonce=first)

    await stage.run(locks.abandon(NAME, [uuid4()], ME))
    await stage.run(locks.abandon(NAME, [first, second], OTHER))
    assert (await acquire(stage, by=OTHER)).token is None
    await stage.run(locks.abandon(NAME, [second, first], ME))

    await acquire_token(stage, by=OTHER)
    before = await row(stage)
    await stage.run(locks.abandon(NAME, [first, second], ME))
    assert await row(stage) == before, "it is somebody else's by now"


# Assert


async def test_asserted_lock_after_expiry_blocks_acquire(stage: Stage, session: Connection) -> None:
    token = await acquire_token(stage)
    await assert_in_open_transaction(stage, token, session)
    await expire_lock(stage)

    for wait in (False, True):
        assert (await acquire(stage, by=OTHER, wait=wait)).token is None
    await stage.sql("commit", on=session)

    assert await acquire_token(stage, by=OTHER) > token
    await refused(stage, token)


async def test_asserted_lock_can_be_renewed_and_released(stage: Stage, session: Connection) -> None:
    token = await acquire_token(stage)
    await assert_in_open_transaction(stage, token, session)

    async with asyncio.timeout(60):
        assert (await renew(stage, token)).renewed
        assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)

    answer = await acquire(stage, by=OTHER)
    assert (answer.token, answer.host) == (None, None), "given back, and still relied on"
    await stage.sql("rollback", on=session)
    await acquire_token(stage, by=OTHER)


async def test_asserted_lock_after_renewal_still_blocks_acquire(
    stage: Stage, session: Connection
) -> None:
    """A renewal writes a new version of the row: the pin applies to it, too."""
    token = await acquire_token(stage)
    await assert_in_open_transaction(stage, token, session)
    for _ in range(3):
        assert (await renew(stage, token)).renewed
    await expire_lock(stage)

    assert (await acquire(stage, by=OTHER)).token is None
    await stage.sql("commit", on=session)
    await acquire_token(stage, by=OTHER)


async def test_asserted_lock_forced_release_raises_lock_not_available(
    stage: Stage, session: Connection
) -> None:
    token = await acquire_token(stage)
    await assert_in_open_transaction(stage, token, session)

    with pytest.raises(LockNotAvailable):
        await force_release(stage)

    await stage.sql("commit", on=session)
    assert (await force_release(stage))["token"] == token


async def test_assert_lock_during_forced_release_waits_for_its_end(
    stage: Stage, session: Connection
) -> None:
    """The assertion is refused only if the forced release commits."""
    token = await acquire_token(stage)
    for end in ("rollback", "commit"):
        await stage.sql("begin", on=session)
        await force_release(stage, session)
        relying = stage.meanwhile(stage.run(locks.assert_lock(NAME, token), stage.engine))
        await stage.waits(stage.engine, session)
        await stage.sql(end, on=session)
        if end == "rollback":
            await relying
    with pytest.raises(psycopg.Error, match="no longer held under token"):
        await relying


@pytest.mark.parametrize("how", ["other token", "given back", "run out", "no row", "taken away"])
async def test_assert_lock_not_held_is_refused(stage: Stage, how: str) -> None:
    token = await acquire_token(stage)
    await stage.run(locks.assert_lock(NAME, token))
    match how:
        case "other token":
            token -= 1
        case "given back":
            await release(stage, token)
        case "run out":
            await expire_lock(stage)
        case "no row":
            await stage.sql("delete from rota.locks")
        case "taken away":
            await force_release(stage)

    await refused(stage, token)


# Renew


async def test_renew_expired_lock_is_refused(stage: Stage) -> None:
    token = await acquire_token(stage)
    assert (await renew(stage, token, ttl=60.0)).renewed
    [left] = await stage.sql("select extract(epoch from expires - rota.clock()) from rota.locks")
    assert 50 < left <= 60
    await expire_lock(stage)
    before = await row(stage)

    answer = await renew(stage, token)

    assert (answer.renewed, answer.is_duplicate) == (False, False)
    assert await row(stage) == before


@pytest.mark.parametrize("wrong", ["token", "instance", "given back", "taken over"])
async def test_renew_by_non_holder_is_refused(stage: Stage, wrong: str) -> None:
    token, by = await acquire_token(stage), ME
    match wrong:
        case "token":
            token += 1
        case "instance":
            by = OTHER
        case "given back":
            await release(stage, token)
        case "taken over":
            await expire_lock(stage)
            await acquire_token(stage, by=OTHER)
    before = await row(stage)

    answer = await renew(stage, token, by)

    assert answer.renewed is False
    assert answer.is_duplicate is (wrong == "instance"), "the same token in two hands is told"
    assert await row(stage) == before


async def test_renew_with_one_locked_row_renews_the_rest(stage: Stage, session: Connection) -> None:
    """An operator locks one row for a long time. That lock is not lost, and the rest are renewed at
    once."""
    names = [f"lock {number}" for number in range(5)]
    tokens = [await acquire_token(stage, name=name) for name in names]
    await stage.sql("begin", on=session)
    await force_release(stage, session, names[2])
    held = [(name, token, 30.0) for name, token in zip(names, tokens, strict=True)]

    async with asyncio.timeout(60):
        answers = await stage.run(locks.renew(ME, held), stage.watch)

    assert {each.token: each.renewed for each in answers} == {
        token: None if token == tokens[2] else True for token in tokens
    }
    await stage.sql("rollback", on=session)
    assert all(each.renewed for each in await stage.run(locks.renew(ME, held), stage.watch))


# Release


async def test_release_twice_is_accepted_until_the_next_holder(stage: Stage) -> None:
    token = await acquire_token(stage)

    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)
    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)

    following = await acquire_token(stage, by=OTHER)
    before = await row(stage)
    assert await release(stage, token) is None, "it has passed to somebody else"
    assert await row(stage) == before
    assert await release(stage, following) is not None


async def test_release_expired_lock_returns_not_held(stage: Stage) -> None:
    token = await acquire_token(stage)
    await expire_lock(stage)

    assert await release(stage, token) == ReleasedLockRow(held=False, awaited=False)
    await acquire_token(stage, by=OTHER)


async def test_release_with_waiting_acquirer_returns_awaited(stage: Stage) -> None:
    token = await acquire_token(stage)
    assert not (await acquire(stage, by=OTHER)).wait_flag_set
    assert (await acquire(stage, by=OTHER, wait=True)).wait_flag_set
    assert (await acquire(stage, by=OTHER, wait=True)).wait_flag_set

    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=True)
    token = await acquire_token(stage, by=OTHER)
    assert await release(stage, token) == ReleasedLockRow(held=True, awaited=False)


@pytest.fixture
async def waiting(stage: Stage) -> AsyncIterator[Connection]:
    connection = await stage.connect()
    yield connection
    await stage.sql("rollback", on=connection)


async def test_acquire_waiting_after_wait_flag_is_set_writes_nothing(
    stage: Stage, waiting: Connection
) -> None:
    """Row locks of waiters would block renewals, and each poll would be written to disk."""
    token = await acquire_token(stage)
    assert (await acquire(stage, by=OTHER, wait=True)).wait_flag_set
    await stage.sql("begin", on=waiting)

    assert (await acquire(stage, waiting, by=OTHER, wait=True)).wait_flag_set

    assert await stage.one("select pg_current_xact_id_if_assigned() is null")
    [assigned] = await stage.sql("select pg_current_xact_id_if_assigned()", on=waiting)
    assert assigned is None
    assert (await renew(stage, token)).renewed


async def test_acquire_permits_gives_each_permit_once(stage: Stage) -> None:
    *slots, none = [(await acquire(stage, permits=3)).permit for _ in range(4)]

    assert {*slots} == {1, 2, 3}
    assert none is None
    assert (await stage.run(acquire_query()))[0].token is not None, (
        "a lock of the same name is another thing"
    )
