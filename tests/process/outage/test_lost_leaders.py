"""Leaders in outages and failovers: a leader without its server stops, and a new term begins later."""

from __future__ import annotations

import asyncio
import time

import pytest

from rota import Rota
from rota.coord.leader import Leader
from rota.localpg import LocalPostgres
from support.elections import NAME as INSTANCE
from support.elections import open_election
from support.leader_helpers import (
    candidate_of,
    elected,
    run_sql,
    seek_election,
    session_lock_pids,
    until,
)
from support.outage_fixtures import kill_server
from support.owned_clock import ClockedRota
from support.pgbouncer import run_pgbouncer
from support.replication import PrimaryAndStandby

NAME = "nightly"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", ["killed", "restarted at once"])
async def test_leader_in_server_outage_loses_term_and_is_elected_again(
    server: LocalPostgres, how: str
) -> None:
    async with Rota(server.dsn) as app, app.leader(NAME) as leader:
        term = await elected(leader)
        began = time.monotonic()
        if how == "killed":
            await kill_server(server)
            await asyncio.wait_for(term.lost.wait(), 60)
            assert not leader.is_leader()
            await asyncio.sleep(1)
            await asyncio.to_thread(server.restart)
        else:
            await asyncio.to_thread(server.restart, immediately=True)
            await asyncio.wait_for(term.lost.wait(), 60)
        assert (await elected(leader)).number == term.number + 1
        print(f"{how}: leads again after {time.monotonic() - began:.2f} s")


async def wait_until_renewed(app: ClockedRota, leader: Leader) -> None:
    """Advance the clock to the next renewal of the lease, and wait until it was renewed after that."""
    candidate = candidate_of(leader)
    trusted = candidate.trusted_until
    app.lease_clock.advance_to(max(candidate.due_at, app.lease_clock.now()) + 0.01)
    await until(lambda: candidate.trusted_until > trusted)


async def test_leader_lease_survives_a_short_server_restart(server: LocalPostgres) -> None:
    with run_pgbouncer(server.dsn) as pooler:
        async with ClockedRota(pooler.before(server.dsn)) as app, app.leader(NAME) as leader:
            term = await elected(leader)
            await asyncio.to_thread(server.restart)
            for _ in range(3):
                await wait_until_renewed(app, leader)
                assert leader.current is term
            assert await run_sql(server.dsn, "select term from rota.leaders") == [(1,)]


async def check_standby_cannot_confirm_term(pair: PrimaryAndStandby) -> None:
    async with open_election(pair.primary.dsn) as polls, open_election(pair.standby_dsn) as others:
        voter, same = await polls.voter(), await others.voter()
        same.instance = voter.instance
        term = await voter.wins()
        await asyncio.to_thread(pair.follows)
        # Everything else is correct: the standby has a session with the session lock and the leader's row.
        assert await same.sits()
        asked = "select term from rota.leaders where name = %s"
        assert await run_sql(pair.standby_dsn, asked, INSTANCE) == [(term,)]
        assert await same.stands(term) is False
        assert await voter.stands(term) is True


async def test_leader_on_standby_is_elected_only_after_promotion(
    primary_and_standby: PrimaryAndStandby,
) -> None:
    async with Rota(primary_and_standby.primary.dsn) as app, app.leader(NAME) as first:
        term = await elected(first)
        assert term.number == 1
        await asyncio.to_thread(primary_and_standby.follows)
        await check_standby_cannot_confirm_term(primary_and_standby)
        async with (
            ClockedRota(primary_and_standby.standby_dsn) as other,
            other.leader(NAME) as second,
        ):
            await seek_election(other, second)
            assert not second.is_leader()
            await kill_server(primary_and_standby.primary)
            await asyncio.wait_for(term.lost.wait(), 60)
            assert not first.is_leader()
            await seek_election(other, second)
            assert not second.is_leader()
            await asyncio.to_thread(primary_and_standby.promote)
            await other.lease_clock.advance_until(second.is_leader, 0.1)
            assert (await elected(second)).number == 2
            assert len(await session_lock_pids(primary_and_standby.standby_dsn)) == 1
