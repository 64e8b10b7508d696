"""Readiness of an instance: many frequent requests cause few database probes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest

from rota import Rota
from rota.app import database_probe
from rota.store.migrate import check_on
from rota.testing import Proxy
from support.newer_migration import NEWER_MIGRATION


async def reason_codes(app: Rota) -> list[str]:
    return [each.code for each in await app.readiness.reasons()]


@pytest.fixture
async def proxied_app(rota_dsn: str) -> AsyncIterator[tuple[Rota, Proxy]]:
    """App that reaches its database through a proxy. A statement may take an hour."""
    with Proxy(rota_dsn) as proxy:
        async with Rota(proxy.dsn, statement_timeout=3600) as app:
            yield app, proxy


async def wait_for_reasons(app: Rota, wanted: list[str], within: float = 60) -> None:
    """Request readiness until the reasons are `wanted`."""
    async with asyncio.timeout(within):
        while await reason_codes(app) != wanted:
            await asyncio.sleep(0.05)


async def test_readiness_concurrent_requests_share_one_probe(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(database_probe, "PROBE_TIMEOUT_SECONDS", 60.0)

    async def checking(connection: psycopg.AsyncConnection[object], schema: str) -> None:
        looks.append(time.monotonic())
        await asyncio.sleep(0.1)
        await check_on(connection, schema)

    await reason_codes(rota_app)  # open the connection
    monkeypatch.setattr(database_probe, "check_on", checking)
    while len(looks) < 2:
        answers = await asyncio.gather(*(reason_codes(rota_app) for _ in range(50)))
        assert answers == [[]] * 50
        await asyncio.sleep(0.01)
    assert looks[1] - looks[0] >= 0.95


async def test_readiness_cancelled_request_does_not_end_the_shared_probe(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, probing = asyncio.Event(), asyncio.Event()

    async def checking(connection: psycopg.AsyncConnection[object], schema: str) -> None:
        probing.set()
        await go.wait()

    monkeypatch.setattr(database_probe, "check_on", checking)
    impatient, patient = (asyncio.create_task(reason_codes(rota_app)) for _ in range(2))
    await asyncio.wait_for(probing.wait(), 60)
    impatient.cancel()
    await asyncio.sleep(0)
    go.set()
    assert await patient == []


async def test_readiness_database_refusing_connections_is_a_reason(
    proxied_app: tuple[Rota, Proxy],
) -> None:
    app, proxy = proxied_app
    assert await reason_codes(app) == []
    proxy.refuse()
    proxy.reset()
    await wait_for_reasons(app, ["database"])
    [reason] = await app.readiness.reasons()
    assert reason.message.startswith("the database has been unreachable for ")

    proxy.heal()
    await wait_for_reasons(app, [])


async def test_readiness_reason_hides_address_and_user_of_database() -> None:
    async with Rota("postgresql://billing@127.0.0.1:1/ledger") as app:
        [reason] = await app.readiness.reasons()
    assert reason.code == "database"
    for word in ("billing", "127.0.0.1", "ledger", "port"):
        assert word not in reason.message


async def test_readiness_silent_database_is_a_reason_after_two_probes(
    proxied_app: tuple[Rota, Proxy],
) -> None:
    app, proxy = proxied_app
    assert await reason_codes(app) == []
    began = time.monotonic()
    proxy.hold()

    await wait_for_reasons(app, ["database"])

    # The first unanswered probe is no reason. The timeout of a second ends each probe.
    assert time.monotonic() - began > 2
    proxy.heal()
    await wait_for_reasons(app, [])


async def test_readiness_exhausted_pool_is_no_reason(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request makes a probe."""
    monkeypatch.setattr(database_probe, "PROBE_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(database_probe, "PROBE_TIMEOUT_SECONDS", 30.0)
    async with Rota(rota_dsn, connections=1) as app:
        database = (await app.open()).database
        async with database.connection():
            for _ in range(3):
                assert await reason_codes(app) == []


async def test_readiness_old_schema_is_a_reason_and_newer_one_is_not(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy migrates first: instances with the old code must keep serving."""
    monkeypatch.setattr(
        database_probe, "PROBE_TIMEOUT_SECONDS", 30.0
    )  # an unanswered probe gives no reason
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute(NEWER_MIGRATION, [9999, True])
        assert await reason_codes(rota_app) == []
        connection.execute(
            "delete from rota.migrations where version in"
            " (9999, (select max(version) from rota.migrations where version < 9999))"
        )
    await wait_for_reasons(rota_app, ["schema"])


async def test_readiness_starting_and_draining_need_no_database() -> None:
    app = Rota("postgresql://127.0.0.1:1/nowhere")
    app.readiness.mark_starting()
    assert await reason_codes(app) == ["starting"]
    app.readiness.drain()
    assert await reason_codes(app) == ["starting", "draining"]
    app.readiness.mark_stopped()
    assert await reason_codes(app) == ["draining"]


async def test_readiness_late_drain_callback_is_called_at_once() -> None:
    told: list[str] = []
    readiness = Rota("postgresql://127.0.0.1:1/nowhere").readiness
    forget = readiness.on_drain(lambda: told.append("gone"))
    forget()
    readiness.hurry()
    readiness.hurry()
    readiness.drain()
    readiness.on_drain(lambda: told.append("drain"), lambda: told.append("hurry"))
    assert told == ["drain", "hurry"]


async def test_database_probe_cancelled_late_uses_its_own_connection(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling a query on a dead connection takes time; other probes begin meanwhile."""
    monkeypatch.setattr(database_probe, "PROBE_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(database_probe, "PROBE_INTERVAL_SECONDS", 0.0)
    sessions: list[object] = []
    late, let_go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def checking(session: psycopg.AsyncConnection[object], schema: str) -> None:
        sessions.append(session)
        if len(sessions) == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                late.set()
                await let_go.wait()
                asyncio.get_running_loop().call_later(0.05, ended.set)
                raise
        elif len(sessions) == 2:
            # The first probe ends during this one.
            let_go.set()
            await ended.wait()
        await check_on(session, schema)

    monkeypatch.setattr(database_probe, "check_on", checking)
    look = database_probe.DatabaseProbe(rota_app.open)
    assert await look.latest() is None  # one unanswered probe is no reason yet
    await late.wait()
    monkeypatch.setattr(database_probe, "PROBE_TIMEOUT_SECONDS", 10.0)
    assert await look.latest() is None
    assert sessions[1] is not sessions[0]
    # The connection of the second probe is kept and reused.
    assert await look.latest() is None
    assert sessions[2] is sessions[1]
    await look.close()
    assert all(session.closed for session in sessions)  # type: ignore[attr-defined]


async def test_database_probe_closed_during_probe_closes_its_connection(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()
    sessions: list[psycopg.AsyncConnection[object]] = []

    async def checking(session: psycopg.AsyncConnection[object], schema: str) -> None:
        sessions.append(session)
        begun.set()
        await let_go.wait()

    monkeypatch.setattr(database_probe, "check_on", checking)
    look = database_probe.DatabaseProbe(rota_app.open)
    asked = asyncio.create_task(look.latest())
    await begun.wait()
    await look.close()
    let_go.set()
    assert await asked is None
    assert sessions[0].closed
