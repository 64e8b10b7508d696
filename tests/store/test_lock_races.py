"""Many sessions compete for a lock: one holds it, and the former holder detects the loss."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise
from uuid import uuid4

import psycopg
import pytest

from rota.store import locks
from rota.store.locks import LockAnswer
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

SESSIONS = 6
ROUNDS = 40


@pytest.fixture(autouse=True)
async def clear_locks(stage: Stage) -> None:
    await stage.sql("delete from rota.locks")


@pytest.fixture
async def sessions(stage: Stage) -> list[Connection]:
    return [await stage.connect() for _ in range(SESSIONS)]


@pytest.mark.parametrize("state", ["never taken", "given back", "run out"])
async def test_lock_race_has_one_winner_and_rising_tokens(
    stage: Stage, sessions: list[Connection], state: str
) -> None:
    winners: Counter[int] = Counter()
    last = 0
    for _ in range(ROUNDS):
        if state == "never taken":
            await stage.sql("delete from rota.locks")
        elif state == "run out":
            await expire_lock(stage)
        answers: list[LockAnswer] = await asyncio.gather(
            *(
                acquire(stage, on, by=uuid4(), wait=bool(number % 2))
                for number, on in enumerate(sessions)
            )
        )
        [winner] = [number for number, each in enumerate(answers) if each.token is not None]
        token = answers[winner].token
        assert token is not None
        assert token > last
        winners[winner], last = winners[winner] + 1, token
        assert await stage.sql("select token from rota.locks") == [token]
        if state == "given back":
            await release(stage, token)
    assert sum(winners.values()) == ROUNDS


async def test_lock_race_at_expiry_renews_or_acquires_not_both(
    stage: Stage, sessions: list[Connection]
) -> None:
    """A renewal and several acquisitions arrive within milliseconds of the expiry."""
    chance = random.Random(1)
    renewing, *taking = sessions
    met: Counter[str] = Counter()
    delay = 0.019
    while met.total() < 80 or (min(met["kept"], met["taken"]) == 0 and met.total() < 800):
        token = await acquire_token(stage, ttl=0.02)

        async def late(delay: float = delay) -> None:
            await asyncio.sleep(max(0.0, delay + chance.uniform(-0.004, 0.004)))

        async def keep(token: int = token) -> bool:
            await late()
            return bool((await renew(stage, token, on=renewing, ttl=30)).renewed)

        async def get(on: Connection) -> int | None:
            await late()
            return (await acquire(stage, on, by=OTHER, ttl=30)).token

        kept, *others = await asyncio.gather(keep(), *(get(on) for on in taking))
        got = [other for other in others if other is not None]
        assert len(got) + bool(kept) <= 1, "two have it"
        met["kept" if kept else "taken" if got else "neither"] += 1
        # The delay adapts to the speed of the machine.
        delay += 0.0005 if kept else -0.0005
        assert await stage.sql("select token from rota.locks") == (got or [token])
        await stage.sql("update rota.locks set instance = null")
    assert min(met["kept"], met["taken"]) > 0, met


async def test_lock_renewals_and_forced_releases_do_not_deadlock(
    stage: Stage, sessions: list[Connection]
) -> None:
    """An operator releases two locks by force in one transaction, in either order; the rest are renewed."""
    names = [f"lock {number:02}" for number in range(20)]
    tokens = {name: await acquire_token(stage, name=name) for name in names}
    renewing, by_hand = sessions[:2]
    chance = random.Random(2)
    done = asyncio.Event()
    kept: Counter[str] = Counter()

    async def keep() -> None:
        while not done.is_set():
            order = chance.sample(names, len(names))
            held = [(name, tokens[name], 30.0) for name in order]
            for answer in await stage.run(locks.renew(ME, held), renewing):
                kept[str(answer.renewed)] += 1

    keeping = stage.meanwhile(keep())
    for _ in range(40):
        async with by_hand.transaction(force_rollback=True):
            for name in chance.sample(names, 2):
                await force_release(stage, by_hand, name)
                await asyncio.sleep(0.002)
    done.set()
    await keeping

    assert kept["None"] > 0
    assert kept["True"] > 10 * kept["None"]
    assert kept["False"] == 0


async def test_lock_asserting_transactions_never_overlap(
    stage: Stage, sessions: list[Connection]
) -> None:
    """The lock expires again and again; each holder asserts it in a transaction that takes a while.

    On a machine so busy that the lock always expires first, holders acquire it for longer.
    """
    await stage.sql(
        "create table if not exists public.effects (token bigint, began float8, ended float8)"
    )
    await stage.sql("truncate public.effects")
    now = "extract(epoch from clock_timestamp())::float8"
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    relied = refused = 0

    def enough() -> bool:
        took = loop.time() - began_at
        return took > 2 and (min(relied, refused) > 5 or took > 30)

    async def contend(on: Connection, chance: random.Random) -> None:
        nonlocal relied, refused
        me = uuid4()
        while not enough():
            ttl = 0.03 if refused <= 10 + 3 * relied else 0.3
            token = (await acquire(stage, on, by=me, ttl=ttl)).token
            if token is None:
                await asyncio.sleep(0.005)
                continue
            await asyncio.sleep(chance.uniform(0.0, 0.05))  # often beyond the expiry
            try:
                async with on.transaction():
                    await stage.run(locks.assert_lock(NAME, token), on)
                    [began] = await stage.sql(f"select {now}", on=on)
                    await asyncio.sleep(chance.uniform(0.0, 0.05))
                    await stage.sql(
                        f"insert into public.effects values (%s, %s, {now})", token, began, on=on
                    )
                relied += 1
            except psycopg.Error as error:
                if error.sqlstate != "RT004":
                    raise
                refused += 1
            if chance.random() < 0.5:
                await release(stage, token, on)

    await asyncio.gather(*(contend(on, random.Random(n)) for n, on in enumerate(sessions)))

    effects = await stage.sql("select token, began, ended from public.effects order by began")
    await stage.sql("drop table public.effects")
    overlaps = [(one, two) for one, two in pairwise(effects) if one[2] > two[1]]
    tokens = [token for token, _, _ in effects]
    print(f"{len(effects)} effects, {refused} refused")
    assert overlaps == []
    assert tokens == sorted(tokens)
    assert min(refused, len(effects)) > 5
