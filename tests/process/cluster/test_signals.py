"""Runs wait for signals in several processes while other sessions send them, with race windows open.

Each run waits for two signals, one after the other. Two sessions send each signal at the same moment:
before the run waits, after it has checked and before it has locked the signal, while it suspends, or when
it sleeps. The run always receives the first payload, once, and no other.
"""

from __future__ import annotations

import time

import pytest

from support.fleet import Fleet, fetch_row, wait_for_row
from support.programs.signal_app import END, NAMES
from support.scale import scale
from support.signal_races import (
    LOST,
    WORKERS,
    SentSignals,
    prepare,
    results,
    send_concurrently,
)

pytestmark = pytest.mark.slow


RUNS = scale(120, 2000)
"""Number of runs."""


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
