"""Services that lose their term: the iteration is cancelled or abandoned, another instance takes over."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from rota import Rota
from rota.coord.candidate import PROBE_SHARE, TRUSTED_SHARE
from rota.errors import LeadershipLost
from rota.model.service import ServiceContext
from support.leader_helpers import OWNED_LEASE, candidate_of
from support.owned_clock import ClockedRota
from support.service_helpers import (
    begins_blocked,
    elect_other_instance,
    outcomes,
    record_iterations,
    record_pauses,
    run_sql,
    terminate_leader_sessions,
    until,
)


async def test_service_lost_term_cancels_iteration_and_reruns_at_once(rota_app: Rota) -> None:
    heard, said, running = record_iterations(rota_app), [], asyncio.Event()

    @rota_app.service("filings", every=3600)
    async def filings(ctx: ServiceContext) -> None:
        running.set()
        try:
            await asyncio.sleep(0 if ctx.iteration > 1 else 60)
        except asyncio.CancelledError:
            said.append((ctx.held, ctx.stopping))
            raise

    async with rota_app.services():
        await asyncio.wait_for(running.wait(), 60)
        await terminate_leader_sessions(rota_app)
        await until(lambda: len(heard) == 2, within=60)
    assert said == [(False, True)]
    assert [each.outcome for each in heard] == ["lost", "succeeded"]
    assert await outcomes(rota_app) == ["lost", "succeeded"]


async def test_service_lost_between_iterations_keeps_its_interval(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, pauses = record_iterations(rota_app), record_pauses(monkeypatch)
    rota_app.service("hourly", every=3600)(lambda: None)
    async with rota_app.services() as services:
        await until(lambda: len(pauses) == 2)  # one before the iteration, one after it
        await terminate_leader_sessions(rota_app)
        await until(lambda: len(pauses) == 3)
        assert services.list_running() == ["hourly"]
    assert pauses[2] > 3000
    assert len(heard) == 1


async def test_service_with_unnoticed_lost_term_begins_no_iteration(rota_app: Rota) -> None:
    """The instance has not noticed the loss yet: with this lease it checks every six seconds."""
    begun: list[int] = []

    @rota_app.service("filings", every=0.02, lease=30)
    async def filings(ctx: ServiceContext) -> None:
        begun.append(ctx.term)

    async with rota_app.services() as services:
        await until(lambda: len(begun) > 2)
        await elect_other_instance(rota_app)
        count = len(begun)
        await until(lambda: not services.list_running())
        assert len(begun) <= count + 1  # one may have begun before the takeover
        assert set(begun) == {1}


async def test_service_term_lost_during_begin_starts_in_the_next_term(rota_app: Rota) -> None:
    begun: list[tuple[int, int]] = []

    @rota_app.service("filings", every=0.3)
    async def filings(ctx: ServiceContext) -> None:
        begun.append((ctx.iteration, ctx.term))

    async with rota_app.services() as services:
        await until(lambda: begun)
        async with begins_blocked(rota_app):
            count = len(begun)
            await terminate_leader_sessions(rota_app)
            await until(lambda: not services.list_running(), within=60)
        await until(lambda: len(begun) > count, within=60)
    assert begun[count][1] > begun[count - 1][1]
    numbers = [number for number, _ in begun]
    assert numbers == sorted(set(numbers))


async def test_service_stop_requested_during_begin_starts_no_iteration(rota_app: Rota) -> None:
    begun: list[int] = []

    @rota_app.service("filings", every=0.2)
    async def filings(ctx: ServiceContext) -> None:
        begun.append(ctx.iteration)

    async with rota_app.services() as services:
        await until(lambda: begun)
        async with begins_blocked(rota_app):
            count = len(begun)
            stopping = services.request_stop(60)
        await stopping
    assert len(begun) == count
    assert (await outcomes(rota_app))[-1] == "stopped"


async def test_service_with_stuck_iteration_is_taken_over_after_loss(
    rota_app: Rota, rota_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    enough, inside, most = asyncio.Event(), 0, 0

    async def stubborn(ctx: ServiceContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue
        inside -= 1

    async with Rota(rota_dsn) as other:
        rota_app.service("filings", every=0.1)(stubborn)
        elsewhere = record_iterations(other)
        other.service("filings", every=0.1)(lambda: None)
        async with rota_app.services() as services:
            await until(lambda: inside)
            async with other.services() as standing_by:
                await terminate_leader_sessions(rota_app)
                await until(lambda: len(elsewhere) > 2, within=60)
                assert inside == 1
                await standing_by.stop(1)
            await until(lambda: "this instance is no candidate until it has stopped" in caplog.text)
            # It does not hold a service that it cannot run.
            assert services._runners["filings"]._leader._candidacy is None
            assert not services.list_running()
            enough.set()
            await until(lambda: services.list_running(), within=60)
    assert most == 1
    assert (await outcomes(rota_app))[0] == "lost"


async def test_service_plain_function_after_loss_stops_and_cannot_write(
    rota_app: Rota, rota_dsn: str
) -> None:
    await run_sql(rota_app, "create table written (term int)")
    over, seen = threading.Event(), []

    def write(ctx: ServiceContext) -> None:
        with ctx.sync.transaction() as connection:
            connection.execute("insert into written values (%s)", (ctx.term,))

    def filings(ctx: ServiceContext) -> None:
        assert ctx.held
        write(ctx)
        seen.append("begun")
        assert not ctx.sync.sleep(30)  # interrupted by the loss
        over.wait(60)  # another instance runs the service by now
        seen.append(f"held {ctx.held}, stopping {ctx.stopping}")
        with pytest.raises(LeadershipLost, match="is over"):
            write(ctx)
        seen.append("refused")

    async with Rota(rota_dsn) as other:
        elsewhere = record_iterations(other)
        rota_app.service("filings", every=60)(filings)
        other.service("filings", every=60)(write)
        async with rota_app.services():
            await until(lambda: seen)
            async with other.services():
                await terminate_leader_sessions(rota_app)
                await until(lambda: elsewhere, within=60)
                over.set()
                await until(lambda: len(seen) == 3)
    assert seen == ["begun", "held False, stopping True", "refused"]
    terms = [term for (term,) in await run_sql(rota_app, "select term from written")]
    assert len(terms) == 2
    assert terms[0] < terms[1]


async def test_service_blocked_event_loop_keeps_its_term(clocked_app: ClockedRota) -> None:
    heard, clock = record_iterations(clocked_app), clocked_app.lease_clock

    @clocked_app.service("blocks", every=60, lease=OWNED_LEASE)
    async def blocks(ctx: ServiceContext) -> None:
        candidate = candidate_of(services._runners["blocks"]._leader)
        for _ in range(8):  # for more than a lease
            clock.advance(PROBE_SHARE * OWNED_LEASE)
            while candidate.trusted_until < clock.now() + TRUSTED_SHARE * OWNED_LEASE:
                time.sleep(0.005)  # noqa: ASYNC251 - blocks on purpose
        async with ctx.transaction() as connection:
            await connection.execute("select 1")

    async with clocked_app.services() as services:
        # The clock advances because a new instance may wait a moment before it seeks election.
        await clock.advance_until(lambda: heard, 0.01)
    assert [(each.iteration, each.outcome) for each in heard] == [(1, "succeeded")]


async def test_service_of_closed_app_is_cancelled_and_released(
    rota_app: Rota, rota_dsn: str
) -> None:
    running, ended = asyncio.Event(), asyncio.Event()

    async def tail() -> None:
        running.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    app = Rota(rota_dsn)
    app.service("tail", forever=True)(tail)
    async with app.services():
        await running.wait()
        await app.close()
        await asyncio.wait_for(ended.wait(), 60)
    assert await run_sql(rota_app, "select instance from rota.leaders") == [(None,)]
