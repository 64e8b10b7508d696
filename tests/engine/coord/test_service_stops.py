"""Stopping or handing over a service: the iteration may end, and no other instance begins before that."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from rota import Rota
from rota.coord import elector, service_runner
from rota.coord.services import ServiceGroup
from rota.model.service import ServiceContext
from support.leader_helpers import OWNED_LEASE, seek_election
from support.owned_clock import ClockedRota
from support.service_helpers import outcomes, record_iterations, registered, run_sql, until


async def test_service_forever_ends_on_stop_request(rota_app: Rota) -> None:
    running, said = asyncio.Event(), []

    @rota_app.service("tail", forever=True)
    async def tail(ctx: ServiceContext) -> None:
        running.set()
        while not ctx.stopping:
            await asyncio.sleep(0.01)
        said.append("done")

    async with rota_app.services():
        await asyncio.wait_for(running.wait(), 60)
    assert said == ["done"]
    assert await outcomes(rota_app) == ["stopped"]


async def test_service_forever_ignoring_stop_request_is_cancelled(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_runner, "FOREVER_STOP_SECONDS", 0.3)
    running = asyncio.Event()

    @rota_app.service("tail", forever=True)
    async def tail() -> None:
        running.set()
        await asyncio.sleep(3600)

    async with rota_app.services():
        await asyncio.wait_for(running.wait(), 60)
        began = time.monotonic()
    assert time.monotonic() - began >= 0.3
    assert await outcomes(rota_app) == ["stopped"]


async def test_service_stop_lets_running_iteration_finish(rota_app: Rota) -> None:
    running, stopping = asyncio.Event(), []

    @rota_app.service("filings", every=60)
    async def filings(ctx: ServiceContext) -> None:
        running.set()
        while not ctx.stopping:
            await asyncio.sleep(0.01)
        stopping.append(ctx.stopping)

    async with rota_app.services():
        await asyncio.wait_for(running.wait(), 60)
    assert stopping == [True]
    assert await outcomes(rota_app) == ["succeeded"]


@pytest.mark.parametrize("how", ["the grace is over", "hurried", "hurried before"])
async def test_service_cut_short_iteration_runs_again_elsewhere(
    rota_app: Rota, rota_dsn: str, how: str
) -> None:
    running = asyncio.Event()

    async def filings() -> None:
        running.set()
        await asyncio.sleep(3600)

    async with Rota(rota_dsn) as other:
        elsewhere = record_iterations(other)
        rota_app.service("filings", every=3600)(filings)
        other.service("filings", every=3600)(lambda: None)
        async with rota_app.services() as services:
            await asyncio.wait_for(running.wait(), 60)
            async with other.services():
                if how == "hurried before":
                    services.hurry()
                stopping = services.request_stop(1 if how == "the grace is over" else 3600)
                if how == "hurried":
                    for _ in range(10):  # by then the stop waits for the iteration
                        await asyncio.sleep(0)
                    services.hurry()
                await stopping
                await until(lambda: elsewhere, within=60)
    assert await outcomes(rota_app) == ["stopped", "succeeded"]


@pytest.mark.parametrize("kind", ["plain", "does not heed that it is cancelled"])
async def test_service_stuck_iteration_blocks_other_instances(
    rota_app: Rota, rota_dsn: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    enough, running = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def plain() -> None:
        loop.call_soon_threadsafe(running.set)
        enough.wait(3600)

    async def stubborn() -> None:
        running.set()
        while not enough.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async with ClockedRota(rota_dsn) as other:
        elsewhere = record_iterations(other)
        rota_app.service("filings", every=60)(plain if kind == "plain" else stubborn)
        other.service("filings", every=0.1, lease=OWNED_LEASE)(lambda: None)
        async with rota_app.services() as services:
            await asyncio.wait_for(running.wait(), 60)
            async with other.services() as standing_by:
                await services.stop(1)
                assert "'filings' does not stop; it runs on here" in caplog.text
                await seek_election(other, standing_by._runners["filings"]._leader)
                assert not elsewhere
                enough.set()
                await other.lease_clock.advance_until(lambda: elsewhere)


async def test_service_stopped_repeatedly_or_before_start_ends_cleanly(rota_app: Rota) -> None:
    heard = record_iterations(rota_app)
    rota_app.service("filings", every=60)(lambda: None)
    async with rota_app.services() as services:
        await asyncio.gather(services.stop(60), services.stop(60))
        await services.stop(60)
    assert not services.list_running()
    assert len(heard) <= 1
    assert await run_sql(rota_app, "select from rota.leaders where instance is not null") == []


async def test_service_standby_stops_at_once(rota_app: Rota, rota_dsn: str) -> None:
    async with Rota(rota_dsn) as other:
        for app in (rota_app, other):
            app.service("filings", every=60)(lambda: None)
        async with other.services() as services:
            await until(services.list_running)
            async with rota_app.services() as standing_by:
                await registered(rota_app, 2)
            assert not standing_by.list_running()
            assert services.list_running()


async def test_service_stop_leaves_no_tasks_or_threads(rota_app: Rota) -> None:
    """Neither tasks nor threads remain."""
    heard, before = record_iterations(rota_app), asyncio.all_tasks()
    rota_app.service("plain", every=0.01)(lambda: None)

    @rota_app.service("filings", every=0.01)
    async def filings() -> None: ...

    async with rota_app.services():
        await until(lambda: len(heard) > 30)
        assert len(asyncio.all_tasks()) - len(before) < 20
    await until(
        lambda: {each.get_name() for each in asyncio.all_tasks() - before} <= {"rota wakeups"}
    )
    await until(lambda: "rota service" not in {each.name for each in threading.enumerate()})


# Handover


def hand_over_service(services: ServiceGroup, name: str) -> None:
    services._runners[name].hand_over()


async def test_service_hand_over_waits_for_running_iteration(rota_app: Rota, rota_dsn: str) -> None:
    running, enough, inside, most, stopping = asyncio.Event(), asyncio.Event(), 0, 0, []

    async def filings(ctx: ServiceContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        running.set()
        await enough.wait()
        stopping.append(ctx.stopping)
        inside -= 1

    async with Rota(rota_dsn) as other:
        here, elsewhere = record_iterations(rota_app), record_iterations(other)
        for app in (rota_app, other):
            app.service("filings", every=0.4)(filings)
        async with rota_app.services() as services:
            await asyncio.wait_for(running.wait(), 60)
            async with other.services() as standing_by:
                hand_over_service(services, "filings")
                await registered(rota_app, 2)
                assert services.list_running() == ["filings"]
                enough.set()
                await until(lambda: elsewhere, within=60)
                assert standing_by.list_running() == ["filings"]
    assert stopping[:2] == [True, False]
    assert [each.outcome for each in here] == ["succeeded"]
    assert most == 1


async def test_service_won_again_after_hand_over_is_not_stopped(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_runner, "FOREVER_STOP_SECONDS", 1.0)
    monkeypatch.setattr(elector, "ABSTAIN_SECONDS", 0.3)
    begun, cancelled = [], []

    @rota_app.service("tail", forever=True)
    async def tail(ctx: ServiceContext) -> None:
        begun.append(ctx.term)
        try:
            while not ctx.stopping:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            cancelled.append(ctx.term)
            raise

    async with rota_app.services() as services:
        await until(lambda: begun)
        hand_over_service(services, "tail")
        over = asyncio.Event()  # set right after the time to stop, which counts from the hand-over
        asyncio.get_running_loop().call_later(1.0, over.set)
        await until(lambda: len(begun) == 2, within=60)
        await asyncio.wait_for(over.wait(), 60)
        assert len(begun) == 2
        assert services.list_running() == ["tail"]
    assert cancelled == []
