"""Signals at the moment of a timeout, and mutants that lose signals."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest
from psycopg import AsyncConnection

from support.fleet import Fleet, fetch_row, wait_for_row
from support.programs.signal_app import END, mutated, number_of
from support.signal_races import (
    LOST,
    SENDERS,
    WORKERS,
    SentSignals,
    prepare,
    results,
    send_concurrently,
)

pytestmark = pytest.mark.slow


# An earlier wait has already created the row of the signal.
EXPECTED = """
with begun as materialized (
    select run from rota.start(task => 'listen', args => json_build_object('n', %s::int)))
insert into rota.signals (run, name, jobs)
select run, name, array[run] from begun, unnest(array['go', 'on']) as name
returning run
"""

QUIET = "select (select count(*) from rota.queued) + (select count(*) from rota.claims)"


@pytest.mark.parametrize("mutant", ["blind", "unlocked"])
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
