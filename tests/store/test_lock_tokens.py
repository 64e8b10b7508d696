"""Fencing tokens and their rows: tokens only rise, through any change of the lock."""

from __future__ import annotations

from uuid import uuid4

import pytest

from rota.store import locks
from rota.store.locks import ReleasedLockRow

from .holding import ME, NAME, OTHER, release, renew, run_out, take, take_away, taken
from .stage import Connection, Stage


@pytest.fixture(autouse=True)
async def none_held(stage: Stage) -> None:
    await stage.sql("delete from rota.locks")


@pytest.fixture
async def session(stage: Stage) -> Connection:
    """One more session beside `stage.watch`."""
    return await stage.connect()


async def test_tokens_only_rise_whatever_becomes_of_the_lock(stage: Stage) -> None:
    tokens = [await taken(stage)]
    await release(stage, tokens[-1])
    tokens.append(await taken(stage))
    await run_out(stage)
    tokens.append(await taken(stage, by=OTHER))
    assert (await take_away(stage))["token"] == tokens[-1]
    tokens += await stage.sql("select token from rota.locks")
    tokens.append(await taken(stage))
    await stage.sql("delete from rota.locks")  # an operator deletes the rows
    tokens.append(await taken(stage))

    assert tokens == sorted(set(tokens))


async def test_each_session_draws_tokens_from_one_source(stage: Stage) -> None:
    """With a sequence cache, tokens would rise only within each session."""
    assert (
        await stage.one("select seqcache from pg_sequence where seqrelid = 'rota.tokens'::regclass")
        == 1
    )
    sessions = [await stage.connect() for _ in range(3)]
    tokens = []
    for turn in range(12):
        tokens.append(await taken(stage, sessions[turn % 3]))
        await release(stage, tokens[-1], sessions[(turn + 1) % 3])

    assert tokens == sorted(set(tokens))


async def test_rows_stay(stage: Stage) -> None:
    nonce = uuid4()
    await release(stage, await taken(stage))
    await taken(stage, nonce=nonce)
    await stage.run(locks.abandon(NAME, [nonce], ME))
    await taken(stage)
    await take_away(stage)

    assert await stage.sql("select instance from rota.locks") == [None]


async def test_sessions_in_different_time_zones_agree(stage: Stage, session: Connection) -> None:
    """Times without a zone would differ by hours, and a fresh lock would be expired, or never expire."""
    await stage.sql("set timezone = 'Pacific/Apia'", on=session)
    await stage.sql("set timezone = 'America/New_York'")
    for one, two in ((session, stage.watch), (stage.watch, session)):
        token = await taken(stage, one)
        assert (await take(stage, two, by=OTHER)).token is None
        assert (await renew(stage, token, on=two)).renewed
        await stage.run(locks.assert_lock(NAME, token), two)
        await run_out(stage)
        other = await taken(stage, two, by=OTHER)
        assert await release(stage, other, one) == ReleasedLockRow(held=True, awaited=False)
