"""Fencing tokens and their rows: tokens only rise, through any change of the lock."""

from __future__ import annotations

from uuid import uuid4

import pytest

from rota.store import locks
from rota.store.locks import ReleasedLockRow
from support.lock_calls import (
    ME,
    NAME,
    OTHER,
    acquire,
    acquire_token,
    expire_lock,
    force_release,
    release,
    renew,
)
from support.stage import Connection, Stage


@pytest.fixture(autouse=True)
async def clear_locks(stage: Stage) -> None:
    await stage.sql("delete from rota.locks")


@pytest.fixture
async def session(stage: Stage) -> Connection:
    """One more session beside `stage.watch`."""
    return await stage.connect()


async def test_lock_tokens_rise_through_release_expiry_and_deletion(stage: Stage) -> None:
    tokens = [await acquire_token(stage)]
    await release(stage, tokens[-1])
    tokens.append(await acquire_token(stage))
    await expire_lock(stage)
    tokens.append(await acquire_token(stage, by=OTHER))
    assert (await force_release(stage))["token"] == tokens[-1]
    tokens += await stage.sql("select token from rota.locks")
    tokens.append(await acquire_token(stage))
    await stage.sql("delete from rota.locks")  # an operator deletes the rows
    tokens.append(await acquire_token(stage))

    assert tokens == sorted(set(tokens))


async def test_lock_tokens_of_all_sessions_come_from_one_sequence(stage: Stage) -> None:
    """With a sequence cache, tokens would rise only within each session."""
    assert (
        await stage.one("select seqcache from pg_sequence where seqrelid = 'rota.tokens'::regclass")
        == 1
    )
    sessions = [await stage.connect() for _ in range(3)]
    tokens = []
    for turn in range(12):
        tokens.append(await acquire_token(stage, sessions[turn % 3]))
        await release(stage, tokens[-1], sessions[(turn + 1) % 3])

    assert tokens == sorted(set(tokens))


async def test_lock_row_remains_after_any_release(stage: Stage) -> None:
    nonce = uuid4()
    await release(stage, await acquire_token(stage))
    await acquire_token(stage, nonce=nonce)
    await stage.run(locks.abandon(NAME, [nonce], ME))
    await acquire_token(stage)
    await force_release(stage)

    assert await stage.sql("select instance from rota.locks") == [None]


async def test_lock_sessions_in_different_time_zones_agree_on_expiry(
    stage: Stage, session: Connection
) -> None:
    """Times without a zone would differ by hours, and a fresh lock would be expired, or never expire."""
    await stage.sql("set timezone = 'Pacific/Apia'", on=session)
    await stage.sql("set timezone = 'America/New_York'")
    for one, two in ((session, stage.watch), (stage.watch, session)):
        token = await acquire_token(stage, one)
        assert (await acquire(stage, two, by=OTHER)).token is None
        assert (await renew(stage, token, on=two)).renewed
        await stage.run(locks.assert_lock(NAME, token), two)
        await expire_lock(stage)
        other = await acquire_token(stage, two, by=OTHER)
        assert await release(stage, other, one) == ReleasedLockRow(held=True, awaited=False)
