"""Runs wait for signals in several processes while other sessions send them, with race windows open.

Each run waits for two signals, one after the other. Two sessions send each signal at the same moment:
before the run waits, after it has checked and before it has locked the signal, while it suspends, or when
it sleeps. The run always receives the first payload, once, and no other.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from psycopg import AsyncConnection

from support.fleet import Fleet, fetch_row, wait_for_row
from support.places import PROGRAMS
from support.programs.signal_app import END, NAMES, mutated, number_of

pytestmark = pytest.mark.slow

WORKERS = 8
SENDERS = 8

LONG = os.environ.get("ROTA_TEST_LONG") == "1"
RUNS = 2000 if LONG else 120
"""Number of runs."""

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

# An earlier wait has already created the row of the signal.
EXPECTED = """
with begun as materialized (
    select run from rota.start(task => 'listen', args => json_build_object('n', %s::int)))
insert into rota.signals (run, name, jobs)
select run, name, array[run] from begun, unnest(array['go', 'on']) as name
returning run
"""

# Counts jobs that sleep although their signal has arrived.
LOST = """
select count(*) from rota.sleeping
 where exists (select from rota.signals
                where signals.run = sleeping.job and signals.name = any(sleeping.signals) and at is
                       not null)
"""

QUIET = "select (select count(*) from rota.queued) + (select count(*) from rota.claims)"


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


@pytest.mark.timeout(120 + RUNS // 5)
async def test_signals_in_eight_processes_are_received_exactly_once(
    rota_dsn: str, direct_dsn: str, signal_fleet: Fleet
) -> None:
    await prepare(direct_dsn)
    signal_fleet.start(rota_dsn, WORKERS, concurrency=4)
    await wait_for_row(direct_dsn, "select count(*) from rota.workers", (WORKERS,), within=60)
    story = SentSignals()
    began = time.perf_counter()
    await send_concurrently(direct_dsn, RUNS, story)
    await wait_for_row(direct_dsn, "select count(*) from rota.outcomes", (RUNS,), within=60)
    took = time.perf_counter() - began

    assert signal_fleet.stop() == [0] * WORKERS
    assert await fetch_row(direct_dsn, LOST) == (0,)
    # Every run received the payloads that were stored, also on replay, and ended once.
    notes = signal_fleet.notes()
    values = {value for sent in story.sent.values() for value in sent.values()}
    ends = {100 * n + END for n in range(RUNS)}
    assert notes.keys() == values | ends
    assert {notes[end] for end in ends} == {1}
    wanted = {story.runs[n]: [sent[name] for name in NAMES] for n, sent in story.sent.items()}
    assert await results(direct_dsn) == wanted
    # The windows were hit: signals arrived before the wait, during the suspension and during the sleep.
    [laid, early, looked] = await fetch_row(
        direct_dsn,
        "select (select count(*) from public.laid), count(*) filter (where jobs = '{}'),"
        " count(*) - (select count(*) from public.laid) - count(*) filter (where jobs = '{}')"
        " from rota.signals",
    )
    print(
        f"{RUNS} runs, {2 * RUNS} waits in {took:.1f} s: {early} heard without waiting, {looked} seen "
        f"while lying down, {laid} woken; sent {dict(story.met)}"
    )
    assert min(early, looked, laid) > 0
    assert await fetch_row(
        direct_dsn,
        "select (select count(*) from rota.queued), (select count(*) from rota.claims),"
        " (select count(*) from rota.sleeping), (select count(*) from rota.attempts),"
        " (select count(distinct worker) > 1 from rota.outcomes),"
        " (select deadlocks from pg_stat_database where datname = current_database())",
    ) == (0, 0, 0, 0, True, 0)


async def results(dsn: str) -> dict[int, Any]:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(
            "select job, result from rota.outcomes where state = 'succeeded'"
        )
        return dict(await cursor.fetchall())


@pytest.mark.parametrize("mutant", ["blind", "unlocked"] if LONG else ["blind"])
async def test_signals_without_lock_or_second_check_are_lost(
    rota_dsn: str,
    direct_dsn: str,
    signal_fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    mutant: str,
) -> None:
    """Mutants: they show that the test above can fail."""
    mutated(mutant)  # fails if the statement no longer contains the text
    monkeypatch.setenv("SIGNAL_MUTANT", mutant)
    await prepare(direct_dsn)
    signal_fleet.start(rota_dsn, WORKERS, concurrency=4)
    await wait_for_row(direct_dsn, "select count(*) from rota.workers", (WORKERS,), within=60)
    many = 60
    await send_concurrently(direct_dsn, many, SentSignals(EXPECTED))
    await wait_for_row(direct_dsn, QUIET, (0,), within=60)

    signal_fleet.stop()
    [lost] = await fetch_row(direct_dsn, LOST)
    print(f"{mutant}: {lost} of {2 * many} waits never heard what was said")
    assert lost > 0


async def test_signals_sent_at_timeout_continue_the_run_once(
    rota_dsn: str, direct_dsn: str, signal_fleet: Fleet
) -> None:
    """In both cases the run continues once, although eight timers and the sender wake it together."""
    many = 100
    await prepare(direct_dsn)
    signal_fleet.start(rota_dsn, WORKERS, concurrency=20)
    await wait_for_row(direct_dsn, "select count(*) from rota.workers", (WORKERS,), within=60)
    answers: dict[int, str] = {}
    chance = random.Random(1)

    async def send(due: list[tuple[int, float]], began: float) -> None:
        async with await AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
            for job, rest in due:
                left = began + rest + chance.uniform(-0.1, 0.2) - time.monotonic()
                await asyncio.sleep(max(left, 0))
                cursor = await connection.execute(
                    "select rota.signal(%s, 'go', %s::text::json)",
                    (job, number_of(runs[job], "go", 0)),
                )
                [[answers[job]]] = await cursor.fetchall()

    async with await AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
        cursor = await connection.execute(
            "select begun.run, n from generate_series(0, %s) as n, lateral rota.start("
            " task => 'listen_for', args => json_build_object('n', n, 'seconds', 3 + 0.02 * n)) as begun",
            (many - 1,),
        )
        runs: dict[int, int] = dict(await cursor.fetchall())
        await wait_for_row(direct_dsn, "select count(*) from public.laid", (many,), within=60)
        # Each signal is sent about when the run's wait times out.
        cursor = await connection.execute(
            "select job, extract(epoch from wake_at - clock_timestamp())::float8 from public.laid"
            " order by wake_at"
        )
        due = await cursor.fetchall()
        began = time.monotonic()
    await asyncio.gather(*(send(due[each::SENDERS], began) for each in range(SENDERS)))
    await wait_for_row(direct_dsn, "select count(*) from rota.outcomes", (many,), within=60)

    assert signal_fleet.stop() == [0] * WORKERS
    found = await results(direct_dsn)
    heard = [job for job, value in found.items() if value != -1]
    print(
        f"{len(heard)} of {many} heard what was sent as their time was up; {Counter(answers.values())}"
    )
    assert signal_fleet.notes() == {100 * n + END: 1 for n in range(many)}
    assert all(found[job] == number_of(runs[job], "go", 0) for job in heard)
    assert {answers[job] for job in heard} == {"sent"}
    assert 0 < len(heard) < many
