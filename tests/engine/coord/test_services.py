"""Services: one instance runs each, and the other instances stand by."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota import Rota
from rota.errors import DefinitionError, RotaError
from rota.model.events import ServicesStarted
from rota.model.service import ServiceContext
from support.service_helpers import outcomes, record_iterations, record_pauses, run_sql, until


async def test_service_runs_on_one_instance_and_is_taken_over(
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
        mine, others = record_iterations(rota_app), record_iterations(other)
        for app in (rota_app, other):
            app.service("filings", every=0.05)(filings)
        async with rota_app.services() as services:
            await until(lambda: services.list_running() == ["filings"])
            async with other.services() as standing_by:
                await until(lambda: len(mine) > 5)
                assert not others
                assert standing_by.list_running() == []
                await services.stop(60)
                await until(lambda: others)
    assert most == 1
    assert set(await outcomes(rota_app)) <= {"succeeded", "stopped"}


async def test_service_interval_counts_from_start_to_start(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    pauses = record_pauses(monkeypatch)

    @rota_app.service("steady", every=0.2)
    async def steady() -> None:
        times.append(time.monotonic())
        await asyncio.sleep(0.1)

    async with rota_app.services():
        await until(lambda: len(times) == 6)
    assert times[5] - times[0] > 0.95
    # The pause is what the interval leaves after an iteration of 0.1 seconds.
    assert max(pauses[:6]) < 0.101


async def test_service_slow_iterations_do_not_overlap(rota_app: Rota) -> None:
    heard, inside, most = record_iterations(rota_app), 0, 0

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


async def test_service_interval_counts_across_instances(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = record_iterations(rota_app)
    rota_app.service("hourly", every=3600)(lambda: None)
    async with rota_app.services():
        await until(lambda: heard)
    async with Rota(rota_dsn) as other:
        again = record_iterations(other)
        other.service("hourly", every=3600)(lambda: None)
        pauses = record_pauses(monkeypatch)
        async with other.services() as services:
            await until(lambda: pauses)
            assert services.list_running() == ["hourly"]
            assert 3000 < pauses[0] <= 3600
            assert again == []


async def test_service_clock_set_back_keeps_the_interval(rota_app: Rota) -> None:
    heard = record_iterations(rota_app)
    rota_app.service("often", every=0.2)(lambda: None)
    async with rota_app.services():
        await until(lambda: heard)
    await run_sql(rota_app, "update rota.services set started = started + interval '1 hour'")
    async with rota_app.services():
        await until(lambda: len(heard) > 1, within=60)


@pytest.mark.parametrize("kind", ["async", "plain", "async, and does not look it"])
async def test_service_context_has_term_and_writes_in_transaction(
    rota_app: Rota, kind: str
) -> None:
    await run_sql(rota_app, "create table seen (iteration int, term int)")
    known: list[tuple[str, int, int, bool, bool]] = []
    heard = record_iterations(rota_app)

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
    assert (await run_sql(rota_app, "select * from seen"))[:2] == [(1, 1), (2, 1)]
    assert set((await outcomes(rota_app))[:-1]) == {"succeeded"}  # the last one may not have begun


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_service_transaction_may_idle_for_the_lease(rota_app: Rota, kind: str) -> None:
    """A transaction blocks the election, so one of a frozen process must not outlive the lease."""
    show = "show idle_in_transaction_session_timeout"
    shown: list[Any] = []

    async def filings(ctx: ServiceContext) -> None:
        async with ctx.transaction() as connection:
            shown.append(await (await connection.execute(show)).fetchone())

    def plain(ctx: ServiceContext) -> None:
        with ctx.sync.transaction() as connection:
            shown.append(connection.execute(show).fetchone())

    fn: Callable[[ServiceContext], object] = filings if kind == "async" else plain
    rota_app.service("filings", every=60, lease=7.5)(fn)
    async with rota_app.services():
        await until(lambda: shown)
    assert shown == [("7500ms",)]


async def test_service_iterations_are_stored_with_their_instance(rota_app: Rota) -> None:
    heard = record_iterations(rota_app)
    rota_app.service("filings", every=60)(lambda: None)
    async with rota_app.services():
        await until(lambda: heard)
        identity = (await rota_app.coordinator()).identity
        rows = await run_sql(
            rota_app,
            "select number, term, instance, host, pid, outcome, error, ended >= started"
            " from rota.iterations",
        )
    who = (identity.instance, identity.host, identity.pid)
    assert rows == [(1, 1, *who, "succeeded", None, True)]


async def test_service_keeps_the_last_thousand_iterations(rota_app: Rota) -> None:
    heard = record_iterations(rota_app)
    rota_app.service("often", every=0.005)(lambda: None)
    async with rota_app.services():
        await until(lambda: len(heard) > 2)
        await run_sql(
            rota_app,
            "update rota.services set iteration = iteration + 1500;"
            " insert into rota.iterations"
            " select 'often', n, 1, gen_random_uuid(), '', 1, now(), now(), 'succeeded'"
            " from rota.services, generate_series(iteration - 1200, iteration) n on conflict do nothing",
        )
        await until(lambda: heard[-1].iteration > 1500)
    [(kept, last)] = await run_sql(rota_app, "select count(*), max(number) from rota.iterations")
    assert 990 <= kept <= 1001
    assert last > 1500


async def test_service_instance_row_exists_while_standing_by(rota_app: Rota) -> None:
    heard: list[object] = []
    rota_app.subscribe(heard.append)
    rota_app.service("filings", every=60)(lambda: None)
    async with rota_app.services() as services:
        await until(lambda: services.list_running())
        async with asyncio.timeout(60):
            while await run_sql(rota_app, "select services, running from rota.instances") != [
                (["filings"], ["filings"])
            ]:
                await asyncio.sleep(0.01)
    assert ServicesStarted(("filings",)) in heard
    assert await run_sql(rota_app, "select * from rota.instances") == []
    assert await run_sql(rota_app, "select instance from rota.leaders") == [(None,)]


# Misuse


def test_service_without_valid_interval_raises_definition_error(rota_dsn: str) -> None:
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


async def test_service_invalid_function_is_refused_before_any_runs(rota_app: Rota) -> None:
    with pytest.raises(DefinitionError, match="has no service"):
        async with rota_app.services():
            pass

    @rota_app.service("two", every=1)  # type: ignore[type-var]
    async def two(ctx: ServiceContext, path: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"takes ctx, path: a service is given its context"):
        async with rota_app.services():
            pass
    assert await run_sql(rota_app, "select * from rota.instances") == []


async def test_services_started_twice_in_one_app_are_refused(rota_app: Rota) -> None:
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
