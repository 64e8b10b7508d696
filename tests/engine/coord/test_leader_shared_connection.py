"""Several candidates in one program, under one or many names and in many loops, share a connection.

These tests also pass through a pooler.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack

import pytest

from rota import Rota
from rota.coord import elector
from rota.store import leaders
from support.leader_helpers import (
    OWNED_LEASE,
    candidate_of,
    elected,
    seek_election,
    session_lock_pids,
    until,
)
from support.owned_clock import ClockedRota


async def test_leader_candidates_of_one_name_lead_one_at_a_time(
    rota_app: Rota, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share a session, and one session can take the same session lock twice."""
    monkeypatch.setattr(elector, "ABSTAIN_SECONDS", 0.3)
    three = [rota_app.leader("housekeeping") for _ in range(3)]
    async with AsyncExitStack() as opened:
        for leader in three:
            await opened.enter_async_context(leader)
        terms = []
        for _ in range(4):
            await until(lambda: any(leader.current for leader in three))
            await asyncio.sleep(0.1)
            [leading] = [leader for leader in three if leader.is_leader()]
            assert leading.current is not None
            terms.append(leading.current.number)
            assert len(await session_lock_pids(direct_dsn)) <= 1
            await leading.resign()
    assert terms == [1, 2, 3, 4]
    async with asyncio.timeout(60):
        # A candidate that withdrew during its election releases the session lock in the next turn.
        while await session_lock_pids(direct_dsn):
            await asyncio.sleep(0.02)
    async with Rota(direct_dsn) as other, other.leader("housekeeping") as last:
        await elected(last)


async def test_leader_in_two_event_loops_leads_in_one(rota_dsn: str) -> None:
    app = ClockedRota(rota_dsn)
    over, led = threading.Event(), threading.Event()

    async def elsewhere() -> int:
        async with app, app.leader("housekeeping", lease=OWNED_LEASE).term() as term:
            led.set()
            await asyncio.to_thread(over.wait, 60)
            return term.number

    beside = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(elsewhere())))
    await asyncio.to_thread(led.wait, 60)
    async with app, app.leader("housekeeping", lease=OWNED_LEASE) as leader:
        await seek_election(app, leader)
        assert not leader.is_leader()
        over.set()
        await app.lease_clock.advance_until(leader.is_leader, 0.1)
        term = await elected(leader)
        assert term.number == await beside + 1


def test_leader_object_works_in_consecutive_event_loops(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    leader = app.leader("housekeeping", lease=1)

    async def lead() -> int:
        async with app, leader.term() as term:
            return term.number

    async def lead_and_leave() -> None:
        await leader.__aenter__()
        await elected(leader)

    assert asyncio.run(lead()) == 1
    assert asyncio.run(lead()) == 2
    # A candidate whose loop has ended releases nothing, but its term still ends.
    asyncio.run(lead_and_leave())
    assert asyncio.run(lead()) == 4


async def test_leader_object_in_two_event_loops_is_refused(rota_app: Rota) -> None:
    leader = rota_app.leader("housekeeping")

    async def enter() -> None:
        try:
            async with leader:
                pass
        finally:
            await rota_app.close()

    async with leader:
        await elected(leader)
        with pytest.raises(RuntimeError, match="stands in another event loop already"):
            await asyncio.to_thread(lambda: asyncio.run(enter()))
        assert leader.is_leader()


async def test_leader_thirty_names_share_one_connection(rota_app: Rota, direct_dsn: str) -> None:
    names = [f"name {number}" for number in range(30)]
    async with AsyncExitStack() as opened:
        led = [await opened.enter_async_context(rota_app.leader(name)) for name in names]
        await asyncio.gather(*(elected(leader) for leader in led))
        sat = await session_lock_pids(direct_dsn)
        pooled = not sat
        assert pooled or (len(sat), len(set(sat))) == (30, 1)
        async with ClockedRota(direct_dsn) as other, AsyncExitStack() as beside:
            waiting = [
                await beside.enter_async_context(other.leader(name, lease=OWNED_LEASE))
                for name in names
            ]
            await seek_election(other, waiting[0])
            assert not any(leader.is_leader() for leader in waiting)
            await opened.aclose()
            await other.lease_clock.advance_until(
                lambda: all(leader.is_leader() for leader in waiting)
            )
            sat = await session_lock_pids(direct_dsn)
            assert (len(sat), len(set(sat))) == (30, 1)


async def test_leader_names_with_same_session_lock_key_can_both_lead(
    rota_app: Rota, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in four billion pairs of names has the same key.

    Other instances can then lead under neither name.
    """
    monkeypatch.setattr(leaders, "session_lock_key", lambda name, schema: -7)
    async with rota_app.leader("a") as a, ClockedRota(direct_dsn) as other:
        await elected(a)
        async with rota_app.leader("b") as b:
            await elected(b)
            async with other.leader("b", lease=OWNED_LEASE) as waiting:
                await a.resign()
                await seek_election(other, waiting)
                assert b.is_leader()
                assert not waiting.is_leader()
                await b.resign()
                await other.lease_clock.advance_until(waiting.is_leader, 0.1)
                assert (await elected(waiting)).number == 2


async def test_leader_shorter_lease_limits_trust_in_other_terms(
    rota_app: Rota, direct_dsn: str
) -> None:
    """The server ends the shared session after the shorter lease, so no term is trusted for longer."""
    async with rota_app.leader("long", lease=60) as long:
        await elected(long)
        [candidate] = (await rota_app.coordinator()).elector._candidates
        assert candidate.trusted_until - candidate.elected_at >= 36.0

        def trusted_seconds() -> float:
            return candidate.trusted_until - time.clock_gettime(time.CLOCK_BOOTTIME)

        async with rota_app.leader("short", lease=6) as short:
            await elected(short)
            if await session_lock_pids(direct_dsn):
                await until(lambda: trusted_seconds() < 0.6 * 6)
            else:
                beaten = candidate_of(short).trusted_until
                await until(lambda: candidate_of(short).trusted_until > beaten)
                assert trusted_seconds() > 0.6 * 6
        term = long.current
        await until(lambda: trusted_seconds() > 24)
        assert term is not None
        assert term.held
