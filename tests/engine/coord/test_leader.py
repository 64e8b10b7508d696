"""Leader election: one leader at a time, with callbacks when a term begins and ends.

These tests also pass through a pooler.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time

import pytest
from psycopg.errors import LockNotAvailable

from rota import Rota
from rota.coord import elector
from rota.coord.candidate import PROBE_SHARE, TRUSTED_SHARE
from rota.coord.elector import Elector
from rota.coord.leader import Leader, Term
from rota.errors import ArgumentError, LeadershipLost
from rota.model.events import AlertRaised, LeaderElected, LeadershipEnded
from support.leader_helpers import (
    OWNED_LEASE,
    elected,
    run_sql,
    seek_election,
    session_lock_pids,
    until,
)
from support.owned_clock import ClockedRota

POOLED = os.environ.get("ROTA_TEST_POOLER") == "1"


async def test_leader_resigned_is_replaced_by_the_waiting_candidate(
    clocked_app: ClockedRota, rota_dsn: str
) -> None:
    async with Rota(rota_dsn) as other, other.leader("housekeeping", lease=60) as second:
        first = await elected(second)
        async with clocked_app.leader("housekeeping", lease=OWNED_LEASE) as waiting:
            await seek_election(clocked_app, waiting)
            assert not waiting.is_leader()
            assert waiting.current is None
            await second.resign()
            assert not second.is_leader()
            assert not first.held
            await clocked_app.lease_clock.advance_until(waiting.is_leader, 0.1)
            term = await elected(waiting)
            assert term.number == first.number + 1
            assert waiting.is_leader()
            assert term.held


async def test_leader_resigned_without_rival_abstains_then_leads_again(
    clocked_app: ClockedRota,
) -> None:
    clock = clocked_app.lease_clock
    async with clocked_app.leader("housekeeping", lease=OWNED_LEASE) as leader:
        term = await elected(leader)
        began = clock.now()
        await leader.resign()
        await leader.resign()  # resigning without a term does nothing
        await clock.advance_until(leader.is_leader, 0.1)
        again = await elected(leader)
        assert again.number == term.number + 1
        assert clock.now() - began >= 0.7 * elector.ABSTAIN_SECONDS


async def test_leader_callbacks_run_in_sequence(rota_app: Rota) -> None:
    heard: list[object] = []
    said: list[str] = []
    rota_app.subscribe(heard.append)
    begun, go = asyncio.Event(), asyncio.Event()
    leader = rota_app.leader("housekeeping")

    @leader.on_elected
    async def begin(term: Term) -> None:
        said.append(f"elected {term.number}")
        begun.set()
        await go.wait()
        said.append("and done")

    leader.on_lost(lambda term: said.append(f"lost {term.number}"))
    async with leader:
        term = await elected(leader)
        await asyncio.wait_for(begun.wait(), 60)
        await leader.resign()
        assert term.lost.is_set()
        assert said == ["elected 1"]
        go.set()
    assert said == ["elected 1", "and done", "lost 1"]
    assert [type(each) for each in heard] == [LeaderElected, LeadershipEnded]


async def test_leader_failed_callback_does_not_stop_the_next(
    rota_app: Rota, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []

    async def begin(term: Term) -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(0)).cancel()
        raise asyncio.CancelledError if said else ValueError("no")

    leader = rota_app.leader("housekeeping", on_elected=begin)
    leader.on_lost(lambda term: said.append("lost"))
    for _ in range(2):
        async with leader:
            await elected(leader)
    assert said == ["lost", "lost"]
    assert "on_elected of 'housekeeping' failed" in caplog.text
    assert "on_elected of 'housekeeping' was cancelled" in caplog.text


async def test_leader_blocked_event_loop_keeps_the_term(clocked_app: ClockedRota) -> None:
    asked: list[bool] = []
    over = threading.Event()
    clock = clocked_app.lease_clock
    async with clocked_app.leader("housekeeping", lease=OWNED_LEASE).term() as term:
        candidate = term._candidate
        thread = threading.Thread(target=lambda: _poll_held(term, asked, over))
        thread.start()
        for _ in range(8):  # for more than a lease
            clock.advance(PROBE_SHARE * OWNED_LEASE)
            while candidate.trusted_until < clock.now() + TRUSTED_SHARE * OWNED_LEASE:
                time.sleep(0.005)  # noqa: ASYNC251 - blocks on purpose
        while len(asked) < 50:
            time.sleep(0.005)  # noqa: ASYNC251
        over.set()
        thread.join()
        assert term.held
        later = asyncio.Event()
        (await clocked_app.coordinator()).call_in_loop(later.set)
        await later.wait()
        assert not term.lost.is_set()
    assert all(asked)
    assert not term.held


def _poll_held(term: Term, asked: list[bool], over: threading.Event) -> None:
    while not over.is_set():
        asked.append(term.held)
        time.sleep(0.005)


async def test_leader_failed_election_releases_the_session_lock(
    clocked_app: ClockedRota, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that took the session lock and then failed for another reason would keep it for ever."""
    right, failed = Elector._elect, 0

    async def fails(self: Elector, *given: object, **named: object) -> None:
        nonlocal failed
        failed += 1
        if failed <= 2:
            raise LockNotAvailable("somebody alters the table")
        await right(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Elector, "_elect", fails)
    async with clocked_app.leader("housekeeping", lease=OWNED_LEASE) as leader:
        await clocked_app.lease_clock.advance_until(leader.is_leader, 0.1)
        assert len(await session_lock_pids(direct_dsn)) <= 1
        await leader.resign()
        assert await session_lock_pids(direct_dsn) == []
    assert failed == 3


async def test_leader_repeated_elections_raise_alert(rota_app: Rota) -> None:
    alerts: list[AlertRaised] = []
    rota_app.subscribe(lambda each: alerts.append(each) if isinstance(each, AlertRaised) else None)
    leader = rota_app.leader("housekeeping")
    for _ in range(5):
        async with leader:
            await elected(leader)
    await until(lambda: alerts)
    assert (alerts[0].kind, alerts[0].subject) == ("leader flaps", "housekeeping")


@pytest.mark.parametrize("lease", [0.9, float("nan"), 90_000])
async def test_leader_invalid_lease_is_refused(rota_app: Rota, lease: float) -> None:
    with pytest.raises(ArgumentError, match="lease is"):
        rota_app.leader("housekeeping", lease=lease)


async def test_leader_elected_without_candidacy_raises_runtime_error(rota_app: Rota) -> None:
    leader = rota_app.leader("housekeeping")
    assert not leader.is_leader()
    await leader.resign()
    with pytest.raises(
        RuntimeError, match="this instance is not a candidate for leader 'housekeeping'"
    ):
        await leader.elected()


async def test_leader_assert_held_refuses_an_ended_term(rota_app: Rota, direct_dsn: str) -> None:
    client = await rota_app.open()
    async with rota_app.leader("housekeeping").term() as term:
        async with client.database.transaction() as connection:
            await term.assert_held(connection)
    assert repr(term) == "<Term 1 of 'housekeeping', over>"
    async with client.database.transaction() as connection:
        with pytest.raises(LeadershipLost, match="term 1 of leader 'housekeeping' is over"):
            await term.assert_held(connection)
    assert await run_sql(direct_dsn, "select term, instance from rota.leaders") == [(1, None)]


async def test_leader_of_closed_app_is_replaced_at_once(
    clocked_app: ClockedRota, rota_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    other = Rota(rota_dsn)
    led: list[Leader] = []
    for name in ("a", "b"):
        led.append(await other.leader(name).__aenter__())
    a, _ = await asyncio.gather(*(elected(leader) for leader in led))
    async with (
        clocked_app.leader("a", lease=OWNED_LEASE) as first,
        clocked_app.leader("b", lease=OWNED_LEASE) as second,
    ):
        await other.close()
        assert not a.held
        assert a.lost_reason == "the app was closed while it was held"
        if POOLED:  # no notifications, so they poll
            clock = clocked_app.lease_clock
            await clock.advance_until(lambda: first.is_leader() and second.is_leader(), 0.1)
        await asyncio.gather(elected(first), elected(second))
        for leader in led:
            await leader.__aexit__(None, None, None)
    assert "did not confirm it in time" not in caplog.text
