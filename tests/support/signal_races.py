"""Signals sent at the moment in which a run begins to wait for them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from psycopg import AsyncConnection

from support.fleet import Fleet
from support.places import PROGRAMS
from support.programs.signal_app import NAMES, number_of

WORKERS = 8
SENDERS = 8


# Delays the waiting job before it locks the signal and before it commits its suspension. Advisory locks
# show both windows to the test. The sender is delayed, too.
SLOW = """
create table public.laid (job bigint, wake_at timestamptz);
create function public.linger() returns trigger language plpgsql as $$ begin
    if new.at is null then
        perform pg_advisory_xact_lock(1, new.run::int);
        perform pg_sleep(0.015);
    end if;
    return new;
end $$;
create trigger slow before insert on rota.signals for each row execute function public.linger();
create function public.dawdle() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.002 * random()); return null; end $$;
create trigger slower after insert or update on rota.signals for each row execute function public.dawdle();
create function public.note() returns trigger language plpgsql as $$ begin
    insert into public.laid values (new.job, new.wake_at);
    perform pg_advisory_xact_lock(2, new.job::int);
    perform pg_sleep(0.015);
    return null;
end $$;
create constraint trigger lie after insert on rota.sleeping
    deferrable initially deferred for each row execute function public.note()
"""

MOMENTS = ("before it waits", "before it locks", "lying down", "sleeping")


# Returns whether a run is in the given window, and whether it sleeps.
SEEN = """
select exists (select from pg_locks
                where locktype = 'advisory' and classid = %s::oid and objid = %s::oid and granted),
       exists (select from rota.sleeping where job = %s)
"""

START = "select run from rota.start(task => 'listen', args => json_build_object('n', %s::int))"


# Counts jobs that sleep although their signal has arrived.
LOST = """
select count(*) from rota.sleeping
 where exists (select from rota.signals
                where signals.run = sleeping.job and signals.name = any(sleeping.signals) and at is
                       not null)
"""


@pytest.fixture
def signal_fleet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Fleet that runs the task of signal_app.py."""
    monkeypatch.setattr("support.fleet.APP", PROGRAMS / "signal_app.py")
    return fleet


@dataclass
class SentSignals:
    """Signals that were sent, and their answers."""

    start: str = START
    runs: dict[int, int] = field(default_factory=dict)
    sent: dict[int, dict[str, int]] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    """Number of runs met in each window."""


async def send_all(dsn: str, story: SentSignals, numbers: list[int], seed: int) -> None:
    """Start runs one after the other and send their signals in random windows."""
    chance = random.Random(seed)
    async with (
        await AsyncConnection.connect(dsn, autocommit=True) as one,
        await AsyncConnection.connect(dsn, autocommit=True) as two,
    ):

        async def send(on: AsyncConnection[Any], n: int, name: str, who: int) -> None:
            cursor = await on.execute(
                "select rota.signal(%s, %s, %s::text::json)",
                (story.runs[n], name, number_of(n, name, who)),
            )
            row = await cursor.fetchone()
            assert row is not None
            story.answers[row[0]] += 1
            if row[0] == "sent":
                assert name not in story.sent[n], "sent twice"
                story.sent[n][name] = number_of(n, name, who)

        async def aim(run: int) -> None:
            """Wait until the run is in a random window."""
            moment = chance.choice(MOMENTS)
            if moment == "before it waits":
                await asyncio.sleep(0.01 * chance.random())
            else:
                query, lock = SEEN.encode(), MOMENTS.index(moment)
                asleep = seen = False
                while not asleep and not seen:
                    await asyncio.sleep(0.003)
                    [[seen, asleep]] = await (await one.execute(query, (lock, run, run))).fetchall()
                moment = moment if seen else "sleeping"
            story.met[moment] += 1

        for n in numbers:
            story.sent[n] = {}
            row = await (await one.execute(story.start.encode(), (n,))).fetchone()
            assert row is not None
            story.runs[n] = row[0]
            for name in NAMES:
                await aim(row[0])
                await asyncio.gather(send(one, n, name, 0), send(two, n, name, 1))


async def send_concurrently(dsn: str, many: int, story: SentSignals) -> None:
    shares = [list(range(many))[each::SENDERS] for each in range(SENDERS)]
    await asyncio.gather(*(send_all(dsn, story, share, seed) for seed, share in enumerate(shares)))
    assert len(story.runs) == many
    # The second of two signals may arrive after the end of the run.
    assert story.answers["sent"] == story.answers["known"] + story.answers["ended"] == 2 * many


async def prepare(dsn: str) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(SLOW.encode())


async def results(dsn: str) -> dict[int, Any]:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(
            "select job, result from rota.outcomes where state = 'succeeded'"
        )
        return dict(await cursor.fetchall())
