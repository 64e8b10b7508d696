"""Leaders in outages and failovers: a leader without its server stops, and a new term begins later."""

from __future__ import annotations

import asyncio
import time

import pytest

from coord.leading import ask, elected, seats
from outage.conftest import gone
from outage.pair import Pair
from pooler.bouncer import bouncer
from rota import Rota
from rota.localpg import LocalPostgres
from store.polls import NAME as SOMEBODY
from store.polls import polls_at

NAME = "nightly"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", ["killed", "restarted at once"])
async def test_a_term_ends_with_the_server_and_another_begins_with_the_next(
    server: LocalPostgres, how: str
) -> None:
    async with Rota(server.dsn) as app, app.leader(NAME) as leader:
        term = await elected(leader)
        began = time.monotonic()
        if how == "killed":
            await gone(server)
            await asyncio.wait_for(term.lost.wait(), 60)
            assert not leader.is_leader()
            await asyncio.sleep(1)
            await asyncio.to_thread(server.restart)
        else:
            await asyncio.to_thread(server.restart, immediately=True)
            await asyncio.wait_for(term.lost.wait(), 60)
        assert (await elected(leader)).number == term.number + 1
        print(f"{how}: leads again after {time.monotonic() - began:.2f} s")


async def test_a_lease_outlives_a_restart_that_is_short_enough(server: LocalPostgres) -> None:
    with bouncer(server.dsn) as pooler:
        async with Rota(pooler.before(server.dsn)) as app, app.leader(NAME) as leader:
            term = await elected(leader)
            await asyncio.to_thread(server.restart)
            await asyncio.sleep(4)
            assert leader.current is term
            assert await ask(server.dsn, "select term from rota.leaders") == [(1,)]


async def a_seat_there_is_not_enough(pair: Pair) -> None:
    async with polls_at(pair.primary.dsn) as polls, polls_at(pair.standby_dsn) as others:
        voter, same = await polls.voter(), await others.voter()
        same.instance = voter.instance
        term = await voter.wins()
        await asyncio.to_thread(pair.follows)
        # Everything else is correct: the standby has a session with the session lock and the leader's row.
        assert await same.sits()
        asked = "select term from rota.leaders where name = %s"
        assert await ask(pair.standby_dsn, asked, SOMEBODY) == [(term,)]
        assert await same.stands(term) is False
        assert await voter.stands(term) is True


async def test_nobody_leads_at_a_standby_and_terms_go_on_when_it_is_the_primary(
    pair: Pair,
) -> None:
    async with Rota(pair.primary.dsn) as app, app.leader(NAME) as first:
        assert (await elected(first)).number == 1
        await asyncio.to_thread(pair.follows)
        await a_seat_there_is_not_enough(pair)
        async with Rota(pair.standby_dsn) as other, other.leader(NAME) as second:
            await asyncio.sleep(1.5)
            assert not second.is_leader()
            await gone(pair.primary)
            await asyncio.sleep(1.5)
            assert not second.is_leader()
            assert not first.is_leader()
            await asyncio.to_thread(pair.promote)
            assert (await elected(second)).number == 2
            assert len(await seats(pair.standby_dsn)) == 1
