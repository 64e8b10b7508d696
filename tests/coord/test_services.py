"""Services: one instance runs each, and the other instances stand by."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from coord.serving import ask, outcomes, ran, until
from rota import Rota
from rota.errors import DefinitionError, RotaError
from rota.model.events import ServicesStarted
from rota.model.service import ServiceContext


async def test_it_runs_on_one_instance_and_another_takes_over(
    rota_app: Rota, rota_dsn: str
) -> None:
    inside = 0
    most = 0

    async def filings(ctx: ServiceContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        assert ctx.held
        await asyncio.sleep(0.02)
        inside -= 1

    async with Rota(rota_dsn) as other:
        mine, others = ran(rota_app), ran(other)
        for app in (rota_app, other):
            app.service("filings", every=0.05)(filings)
        async with rota_app.services() as services:
            await until(lambda: services.list_running() == ["filings"])
            async with other.services() as standing_by:
                await until(lambda: len(mine) > 5)
                assert not others
                assert standing_by.list_running() == []
                began = time.monotonic()
                await services.stop(5)
                await until(lambda: others)
                assert time.monotonic() - began < 1.5
    assert most == 1
    assert set(await outcomes(rota_app)) <= {"succeeded", "stopped"}


async def test_it_begins_again_so_many_seconds_from_start_to_start(rota_app: Rota) -> None:
    times: list[float] = []

    @rota_app.service("steady", every=0.2)
    async def steady() -> None:
        times.append(time.monotonic())
        await asyncio.sleep(0.1)

    async with rota_app.services():
        await until(lambda: len(times) == 6)
    assert times[5] - times[0] > 0.95
    assert min(later - earlier for earlier, later in pairwise(times)) < 0.25


async def test_one_that_takes_longer_than_its_time_is_not_begun_twice(rota_app: Rota) -> None:
    heard, inside, most = ran(rota_app), 0, 0

    @rota_app.service("slow", every=0.01)
    def slow() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.05)
        inside -= 1

    async with rota_app.services():
        await until(lambda: len(heard) == 10)
    assert most == 1


async def test_what_is_due_is_counted_from_the_last_start_whoever_ran_it(
    rota_app: Rota, rota_dsn: str
) -> None:
    heard = ran(rota_app)
    rota_app.service("hourly", every=3600)(lambda: None)
    async with rota_app.services():
        await until(lambda: heard)
    async with Rota(rota_dsn) as other:
        again = ran(other)
        other.service("hourly", every=3600)(lambda: None)
        async with other.services() as services:
            await until(lambda: services.list_running() == ["hourly"])
            await asyncio.sleep(0.3)
            assert again == []


async def test_a_clock_put_back_keeps_nobody_waiting_longer_than_usual(rota_app: Rota) -> None:
    heard = ran(rota_app)
    rota_app.service("often", every=0.2)(lambda: None)
    async with rota_app.services():
        await until(lambda: heard)
    await ask(rota_app, "update rota.services set started = started + interval '1 hour'")
    async with rota_app.services():
        await until(lambda: len(heard) > 1, within=60)


@pytest.mark.parametrize("kind", ["async", "plain", "async, and does not look it"])
async def test_its_code_knows_what_it_is_and_writes_while_it_is(rota_app: Rota, kind: str) -> None:
    await ask(rota_app, "create table seen (iteration int, term int)")
    known: list[tuple[str, int, int, bool, bool]] = []
    heard = ran(rota_app)

    async def filings(ctx: ServiceContext) -> None:
        known.append((ctx.name, ctx.iteration, ctx.term, ctx.held, ctx.stopping))
        async with ctx.transaction() as connection:
            await connection.execute("insert into seen values (%s, %s)", (ctx.iteration, ctx.term))

    def plain(ctx: ServiceContext) -> None:
        assert threading.current_thread() is not threading.main_thread()
        known.append((ctx.name, ctx.iteration, ctx.term, ctx.held, ctx.stopping))
        with ctx.sync.transaction() as connection:
            ctx.sync.assert_held(connection)
            connection.execute("insert into seen values (%s, %s)", (ctx.iteration, ctx.term))

    @functools.wraps(filings)
    def disguised(ctx: ServiceContext) -> Awaitable[None]:
        return filings(ctx)

    fns: dict[str, Callable[[ServiceContext], object]] = {"async": filings, "plain": plain}
    rota_app.service("filings", every=0.01)(fns.get(kind, disguised))
    async with rota_app.services():
        await until(lambda: len(heard) >= 3)
    assert known[:3] == [("filings", number, 1, True, False) for number in (1, 2, 3)]
    assert (await ask(rota_app, "select * from seen"))[:2] == [(1, 1), (2, 1)]
    assert set((await outcomes(rota_app))[:-1]) == {"succeeded"}  # the last one may not have begun


async def test_iterations_are_written_down_with_who_ran_them(rota_app: Rota) -> None:
    heard = ran(rota_app)
    rota_app.service("filings", every=60)(lambda: None)
    async with rota_app.services():
        await until(lambda: heard)
        identity = (await rota_app.coordinator()).identity
        rows = await ask(
            rota_app,
            "select number, term, instance, host, pid, outcome, error, ended >= started"
            " from rota.iterations",
        )
    who = (identity.instance, identity.host, identity.pid)
    assert rows == [(1, 1, *who, "succeeded", None, True)]


async def test_of_all_iterations_the_last_thousand_are_kept(rota_app: Rota) -> None:
    heard = ran(rota_app)
    rota_app.service("often", every=0.005)(lambda: None)
    async with rota_app.services():
        await until(lambda: len(heard) > 2)
        await ask(
            rota_app,
            "update rota.services set iteration = iteration + 1500;"
            " insert into rota.iterations"
            " select 'often', n, 1, gen_random_uuid(), '', 1, now(), now(), 'succeeded'"
            " from rota.services, generate_series(iteration - 1200, iteration) n on conflict do nothing",
        )
        await until(lambda: heard[-1].iteration > 1500)
        await asyncio.sleep(0.1)
    [(kept, last)] = await ask(rota_app, "select count(*), max(number) from rota.iterations")
    assert 990 <= kept <= 1001
    assert last > 1500


async def test_who_stands_by_says_so_and_is_gone_when_it_does_no_more(rota_app: Rota) -> None:
    heard: list[object] = []
    rota_app.subscribe(heard.append)
    rota_app.service("filings", every=60)(lambda: None)
    async with rota_app.services() as services:
        await until(lambda: services.list_running())
        async with asyncio.timeout(60):
            while await ask(rota_app, "select services, running from rota.instances") != [
                (["filings"], ["filings"])
            ]:
                await asyncio.sleep(0.01)
    assert ServicesStarted(("filings",)) in heard
    assert await ask(rota_app, "select * from rota.instances") == []
    assert await ask(rota_app, "select instance from rota.leaders") == [(None,)]


# Misuse


def test_a_service_says_how_often(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    with pytest.raises(DefinitionError, match="pass how often"):
        app.service("filings")
    with pytest.raises(DefinitionError, match="pass how often"):
        app.service("filings", every=5, forever=True)
    with pytest.raises(DefinitionError, match="above 0"):
        app.service("filings", every=0)
    app.service("filings", every=5)(lambda: None)
    with pytest.raises(DefinitionError, match="a service called 'filings' already"):
        app.service("filings", every=5)(lambda: None)


async def test_what_is_wrong_with_one_is_found_before_any_runs(rota_app: Rota) -> None:
    with pytest.raises(DefinitionError, match="has no service"):
        async with rota_app.services():
            pass

    @rota_app.service("two", every=1)  # type: ignore[type-var]
    async def two(ctx: ServiceContext, path: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"takes ctx, path: a service is given its context"):
        async with rota_app.services():
            pass
    assert await ask(rota_app, "select * from rota.instances") == []


async def test_they_are_stood_by_for_once_in_a_program(rota_app: Rota) -> None:
    rota_app.service("filings", every=60)(lambda: None)
    rota_app.task(name="nothing")(lambda: None)
    async with rota_app.services():
        with pytest.raises(RotaError, match=r"app\.worker\(services=False\)"):
            async with rota_app.worker():
                pass
        async with rota_app.worker(services=False):
            pass
    async with rota_app.worker():
        pass
