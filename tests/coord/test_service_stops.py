"""Stopping or handing over a service: the iteration may end, and no other instance begins before that."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from coord.serving import ask, outcomes, ran, until
from rota import Rota
from rota.coord import elector, service_runner
from rota.coord.services import ServiceGroup
from rota.model.service import ServiceContext


async def test_one_that_goes_on_for_ever_is_told_to_stop(rota_app: Rota) -> None:
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


async def test_one_that_goes_on_for_ever_and_does_not_listen_is_cancelled(
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
    assert 0.3 <= time.monotonic() - began < 2
    assert await outcomes(rota_app) == ["stopped"]


async def test_an_iteration_under_way_may_end(rota_app: Rota) -> None:
    running, stopping = asyncio.Event(), []

    @rota_app.service("filings", every=60)
    async def filings(ctx: ServiceContext) -> None:
        running.set()
        await asyncio.sleep(0.5)
        stopping.append(ctx.stopping)

    async with rota_app.services():
        await asyncio.wait_for(running.wait(), 60)
    assert stopping == [True]
    assert await outcomes(rota_app) == ["succeeded"]


@pytest.mark.parametrize("how", ["the grace is over", "hurried", "hurried before"])
async def test_one_that_is_cut_short_is_made_up_for_elsewhere(
    rota_app: Rota, rota_dsn: str, how: str
) -> None:
    running = asyncio.Event()

    async def filings() -> None:
        running.set()
        await asyncio.sleep(60)

    async with Rota(rota_dsn) as other:
        elsewhere = ran(other)
        rota_app.service("filings", every=3600)(filings)
        other.service("filings", every=3600)(lambda: None)
        async with rota_app.services() as services:
            await asyncio.wait_for(running.wait(), 60)
            async with other.services():
                began = time.monotonic()
                if how == "hurried before":
                    services.hurry()
                stopping = services.request_stop(1 if how == "the grace is over" else 60)
                if how == "hurried":
                    await asyncio.sleep(0.2)
                    services.hurry()
                await stopping
                assert time.monotonic() - began < 2
                await until(lambda: elsewhere, within=60)
    assert await outcomes(rota_app) == ["stopped", "succeeded"]


@pytest.mark.parametrize("kind", ["plain", "does not heed that it is cancelled"])
async def test_what_does_not_stop_is_waited_for_by_the_others(
    rota_app: Rota, rota_dsn: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    enough, running = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def plain() -> None:
        loop.call_soon_threadsafe(running.set)
        enough.wait(60)

    async def stubborn() -> None:
        running.set()
        while not enough.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async with Rota(rota_dsn) as other:
        elsewhere = ran(other)
        rota_app.service("filings", every=60)(plain if kind == "plain" else stubborn)
        other.service("filings", every=0.1)(lambda: None)
        async with rota_app.services() as services:
            await asyncio.wait_for(running.wait(), 60)
            async with other.services():
                began = time.monotonic()
                await services.stop(1)
                assert time.monotonic() - began < 3
                assert "'filings' does not stop; it runs on here" in caplog.text
                await asyncio.sleep(1.5)
                assert not elsewhere
                enough.set()
                await until(lambda: elsewhere, within=60)


async def test_stopped_twice_and_before_it_has_begun(rota_app: Rota) -> None:
    heard = ran(rota_app)
    rota_app.service("filings", every=60)(lambda: None)
    async with rota_app.services() as services:
        await asyncio.gather(services.stop(5), services.stop(5))
        await services.stop(5)
    assert not services.list_running()
    assert len(heard) <= 1
    assert await ask(rota_app, "select from rota.leaders where instance is not null") == []


async def test_stopped_while_another_runs_it(rota_app: Rota, rota_dsn: str) -> None:
    async with Rota(rota_dsn) as other:
        for app in (rota_app, other):
            app.service("filings", every=60)(lambda: None)
        async with other.services() as services:
            await until(services.list_running)
            began = time.monotonic()
            async with rota_app.services() as standing_by:
                await asyncio.sleep(0.1)
            assert time.monotonic() - began < 1
            assert not standing_by.list_running()
            assert services.list_running()


async def test_nobody_is_left_when_they_have_stopped(rota_app: Rota) -> None:
    """Neither tasks nor threads remain."""
    heard, before = ran(rota_app), asyncio.all_tasks()
    rota_app.service("plain", every=0.01)(lambda: None)

    @rota_app.service("filings", every=0.01)
    async def filings() -> None: ...

    async with rota_app.services():
        await until(lambda: len(heard) > 30)
        assert len(asyncio.all_tasks()) - len(before) < 20
    await asyncio.sleep(0.05)
    left = {each.get_name() for each in asyncio.all_tasks() - before}
    assert left <= {"rota wakeups"}
    assert not [each for each in threading.enumerate() if each.name == "rota service"]


# Handover


def pass_on(services: ServiceGroup, name: str) -> None:
    services._runners[name].hand_over()


async def test_passed_on_when_the_iteration_under_way_has_ended(
    rota_app: Rota, rota_dsn: str
) -> None:
    running, inside, most, stopping = asyncio.Event(), 0, 0, []

    async def filings(ctx: ServiceContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        running.set()
        await asyncio.sleep(0.3)
        stopping.append(ctx.stopping)
        inside -= 1

    async with Rota(rota_dsn) as other:
        here, elsewhere = ran(rota_app), ran(other)
        for app in (rota_app, other):
            app.service("filings", every=0.4)(filings)
        async with rota_app.services() as services:
            await asyncio.wait_for(running.wait(), 60)
            async with other.services() as standing_by:
                pass_on(services, "filings")
                assert services.list_running() == ["filings"]
                await until(lambda: elsewhere, within=60)
                assert standing_by.list_running() == ["filings"]
    assert stopping[:2] == [True, False]
    assert [each.outcome for each in here] == ["succeeded"]
    assert most == 1


async def test_passed_on_and_won_again_it_is_not_stopped_for_what_was_said_before(
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
        pass_on(services, "tail")
        await until(lambda: len(begun) == 2, within=60)
        await asyncio.sleep(1.2)
        assert len(begun) == 2
        assert services.list_running() == ["tail"]
    assert cancelled == []
