"""Loss of leadership: a leader that is cut off stops before another one begins.

A term on a session lock ends with its connection; a lease does not depend on a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rota import Rota
from rota.coord.lease import LeaseClock
from rota.errors import LeadershipLost
from rota.testing.proxy.proxy import Proxy
from rota.testing.server import DatabaseServer
from support.leader_helpers import (
    OWNED_LEASE,
    candidate_of,
    elected,
    run_sql,
    seek_election,
    session_lock_pids,
    terminate_leader_sessions,
    until,
)
from support.owned_clock import ClockedRota
from support.pgbouncer import PgBouncer, run_pgbouncer

NAME = "housekeeping"
LEASE = 1.5


@pytest.fixture(scope="module")
def pooler(rota_server: DatabaseServer) -> Iterator[PgBouncer]:
    with run_pgbouncer(rota_server.dsn) as started:
        yield started


async def test_term_with_terminated_session_is_lost_at_once(direct_dsn: str) -> None:
    async with ClockedRota(direct_dsn) as app, app.leader(NAME, lease=OWNED_LEASE) as leader:
        term = await elected(leader)
        await terminate_leader_sessions(direct_dsn)
        await asyncio.wait_for(term.lost.wait(), 60)
        assert term.lost_reason == "the connection that held it was lost"
        # The same candidate wins again, because there is no other.
        assert (await elected(leader)).number == 2


@pytest.mark.parametrize("way", ["cut", "refused"])
async def test_term_with_cut_connection_is_lost_at_once(direct_dsn: str, way: str) -> None:
    with Proxy(direct_dsn) as proxy:
        async with ClockedRota(proxy.dsn) as app, app.leader(NAME, lease=OWNED_LEASE) as leader:
            term = await elected(leader)
            if way == "refused":
                await asyncio.to_thread(proxy.refuse)
            await asyncio.to_thread(proxy.reset)
            await asyncio.wait_for(term.lost.wait(), 60)
            await asyncio.to_thread(proxy.heal)
            await elected(leader)


@pytest.mark.parametrize("between", ["nothing", "a pooler"])
async def test_term_unconfirmed_ends_before_the_next_leader_begins(
    direct_dsn: str, pooler: PgBouncer, between: str
) -> None:
    """The proxy drops all data silently.

    The first leader's block ends before the second leader is elected.
    """
    with Proxy(direct_dsn if between == "nothing" else pooler.before(direct_dsn)) as proxy:
        async with Rota(proxy.dsn) as app, Rota(direct_dsn) as other:
            inside, over = asyncio.Event(), asyncio.Event()
            ended = 0.0

            async def lead() -> None:
                nonlocal ended
                async with app.leader(NAME, lease=LEASE).term() as term:
                    inside.set()
                    try:
                        await asyncio.sleep(60)
                    finally:
                        ended = LeaseClock().now()
                        over.set()
                        assert not term.held

            leading = asyncio.create_task(lead())
            await asyncio.wait_for(inside.wait(), 60)
            async with other.leader(NAME) as second:
                await asyncio.to_thread(proxy.drop)
                await elected(second)
                began = LeaseClock().now()
                assert over.is_set()
                assert ended < began
                # Resigning over a dead connection takes a bounded time.
                with pytest.raises(LeadershipLost, match="was lost"):
                    await asyncio.wait_for(leading, 60)
                await asyncio.to_thread(proxy.heal)


async def test_leader_resignation_notifies_the_waiting_candidate(
    direct_dsn: str,
) -> None:
    async with Rota(direct_dsn) as app, app.leader(NAME) as first:
        await elected(first)
        async with ClockedRota(direct_dsn) as other, other.leader(NAME) as second:
            # The clock of this candidate stands still, so it does not poll.
            await until(lambda: candidate_of(second).due_at > 0)
            ears, channel = (await other.open()).listener, "rota.leaders"
            await until(lambda: ears.is_listening(channel))
            await first.resign()
            await elected(second, within=60)


async def test_leader_through_pooler_survives_broken_connections(
    direct_dsn: str, pooler: PgBouncer
) -> None:
    with Proxy(pooler.before(direct_dsn)) as proxy:
        async with Rota(proxy.dsn) as app, app.leader(NAME, lease=LEASE) as leader:
            term = await elected(leader)
            for _ in range(3):
                await asyncio.to_thread(proxy.reset)
                await run_sql(
                    direct_dsn,
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()",
                )
                # The next beat of the candidate extends its trust.
                trusted = candidate_of(leader).trusted_until
                async with asyncio.timeout(60):
                    while candidate_of(leader).trusted_until <= trusted:
                        await asyncio.sleep(0.01)
            assert leader.current is term
            assert term.held
            # A lease does not use a session lock.
            assert await session_lock_pids(direct_dsn) == []


async def test_leader_with_direct_dsn_beside_pooler_takes_session_lock(
    direct_dsn: str, pooler: PgBouncer
) -> None:
    dsn = pooler.before(direct_dsn)
    async with Rota(dsn, direct=direct_dsn) as app, app.leader(NAME).term():
        assert len(await session_lock_pids(direct_dsn)) == 1
        async with ClockedRota(dsn) as other, other.leader(NAME) as second:
            for _ in range(3):
                await seek_election(other, second)
                assert not second.is_leader()


@pytest.mark.parametrize("how", ["noticed", "not noticed"])
async def test_leader_resignation_during_pooler_outage_is_sent_later(
    direct_dsn: str, pooler: PgBouncer, how: str
) -> None:
    with Proxy(pooler.before(direct_dsn)) as proxy:
        async with Rota(proxy.dsn) as app, app.leader(NAME, lease=5) as leader:
            await elected(leader)
            if how == "noticed":
                await asyncio.to_thread(proxy.refuse)
                await asyncio.to_thread(proxy.reset)
            else:
                await asyncio.to_thread(proxy.drop)
            resigning = asyncio.create_task(leader.resign())
            await until(lambda: not leader.is_leader())
            await asyncio.to_thread(proxy.heal)
            await resigning
            assert await run_sql(direct_dsn, "select term, instance from rota.leaders") == [
                (1, None)
            ]
