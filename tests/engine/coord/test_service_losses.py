"""Services that lose their term: the iteration is cancelled or abandoned, another instance takes over."""

from __future__ import annotations

import asyncio
import threading
import time

import psycopg
import pytest

from rota import Rota
from rota.errors import LeadershipLost
from rota.model.service import ServiceContext
from support.service_helpers import (
    elect_other_instance,
    outcomes,
    record_iterations,
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


async def test_service_lost_between_iterations_keeps_its_interval(rota_app: Rota) -> None:
    heard = record_iterations(rota_app)
    rota_app.service("hourly", every=3600)(lambda: None)
    async with rota_app.services() as services:
        await until(lambda: heard)
        await terminate_leader_sessions(rota_app)
        await until(lambda: not services.list_running(), within=60)
        await until(services.list_running, within=60)
        await asyncio.sleep(0.2)
    assert len(heard) == 1


async def test_service_with_unnoticed_lost_term_begins_no_iteration(rota_app: Rota) -> None:
    """The instance has not noticed the loss yet: with this lease it checks every six seconds."""
    begun: list[int] = []

    @rota_app.service("filings", every=0.02, lease=30)
    async def filings(ctx: ServiceContext) -> None:
        begun.append(ctx.term)

    async with rota_app.services():
        await until(lambda: len(begun) > 2)
        await elect_other_instance(rota_app)
        count = len(begun)
        await asyncio.sleep(0.5)
        assert len(begun) <= count + 1  # one may have begun before the takeover
        assert set(begun) == {1}


async def test_service_term_lost_during_begin_starts_in_the_next_term(rota_app: Rota) -> None:
    begun: list[tuple[int, int]] = []

    @rota_app.service("filings", every=0.3)
    async def filings(ctx: ServiceContext) -> None:
        begun.append((ctx.iteration, ctx.term))

    async with rota_app.services() as services:
        await until(lambda: begun)
        dsn = (await rota_app.open()).database.dsn
        async with await psycopg.AsyncConnection.connect(dsn) as in_the_way:
            await in_the_way.execute("select from rota.services for update")
            await asyncio.sleep(0.5)  # the next iteration waits for the locked row
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
        dsn = (await rota_app.open()).database.dsn
        async with await psycopg.AsyncConnection.connect(dsn) as in_the_way:
            await in_the_way.execute("select from rota.services for update")
            await asyncio.sleep(0.3)
            count = len(begun)
            stopping = services.request_stop(5)
            await asyncio.sleep(0.05)
        await stopping
    assert len(begun) == count
    assert (await outcomes(rota_app))[-1] == "stopped"


async def test_service_with_stuck_iteration_is_taken_over_after_loss(
    rota_app: Rota, rota_dsn: str
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
            await asyncio.sleep(1.5)
            assert not services.list_running()  # it does not hold a service that it cannot run
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


async def test_service_blocked_event_loop_keeps_its_term(rota_app: Rota) -> None:
    heard = record_iterations(rota_app)

    @rota_app.service("blocks", every=60, lease=1)
    async def blocks(ctx: ServiceContext) -> None:
        time.sleep(2.5)  # noqa: ASYNC251 - as somebody's code may
        async with ctx.transaction() as connection:
            await connection.execute("select 1")

    async with rota_app.services():
        await until(lambda: heard)
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
