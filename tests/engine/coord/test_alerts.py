"""Alerts: raised when the condition begins, open once for the whole fleet, and cleared when it ends."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from rota import Rota
from rota.app.locks import Lock
from rota.coord.alert_sources import CoordinationAlerts
from rota.errors import LockLost
from rota.model.alert_rules import FLAPPING, HELD_TOO_LONG, RENEWALS_FAIL, TOKEN_TWICE
from rota.model.events import AlertCleared, AlertRaised, Event, LockForfeited
from rota.store import alerts
from rota.store.database import pipeline
from rota.testing import Harness, Proxy
from support.lock_faults import wait_for_renewals
from support.owned_clock import ClockedRota

TTL = 30.0


@pytest_asyncio.fixture
async def sql(rota_dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(rota_dsn, autocommit=True) as connection:
        yield connection


Sql = psycopg.AsyncConnection[Any]


async def rows(sql: Sql) -> list[tuple[str, str, bool]]:
    """Return kind, subject and open state of every alert ever raised, in order."""
    cursor = await sql.execute("select kind, subject, cleared is null from rota.alerts order by id")
    return await cursor.fetchall()


async def until(sql: Sql, expected: list[tuple[str, str, bool]], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while (found := await rows(sql)) != expected:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.01)


async def written(sql: Sql, alarms: CoordinationAlerts) -> None:
    """Wait until this instance has written the alerts that it raised before, and cleared resolved ones.

    Two alerts of a leader of another name are raised for it, one after the other, and then deleted.
    """
    for number in (50, 51):
        alarms.on_elections(f"another {number}", number)
        async with asyncio.timeout(60):
            while not [each for each in await rows(sql) if each[1] == f"another {number}"]:
                await asyncio.sleep(0.01)
    await sql.execute("delete from rota.alerts where subject like 'another %'")


async def renew(app: ClockedRota, lock: Lock) -> None:
    """Let the next renewal be due, and wait until its answer has reached the holder."""
    app.lease_clock.advance(TTL / 3)
    async with asyncio.timeout(60):
        while lock._require_lease().sent_at < app.lease_clock.now():
            await asyncio.sleep(0.01)


# A lock held too long


async def test_lock_held_too_long_raises_alert_until_release(
    clocked_app: ClockedRota, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rota")
    clock = clocked_app.lease_clock
    async with Harness(clocked_app) as harness:
        async with clocked_app.lock("invoices", ttl=30, max_held=0.3) as lock:
            alarms = (await clocked_app.coordinator()).alerts
            assert alarms.next_expiry() == clock.now() + 0.3
            clock.advance(0.3)  # a renewal is due in ten seconds
            raised = await harness.wait_for_event(AlertRaised, timeout=60)
            await until(sql, [(HELD_TOO_LONG, "invoices", True)])

        await harness.wait_for_event(
            AlertCleared, kind=HELD_TOO_LONG, subject="invoices", timeout=60
        )

    assert (raised.kind, raised.subject) == (HELD_TOO_LONG, "invoices")
    assert raised.message == (
        f"lock 'invoices' (token {lock.token}) is held for longer than the 0.3 s that were declared"
    )
    assert await rows(sql) == [(HELD_TOO_LONG, "invoices", False)]
    told = [record for record in caplog.records if "alert" in record.message]
    assert [(each.levelname, HELD_TOO_LONG in each.message) for each in told] == [
        ("WARNING", True),
        ("INFO", True),
    ]


async def test_lock_held_too_long_during_outage_raises_alert_once(rota_dsn: str, sql: Sql) -> None:
    with Proxy(rota_dsn) as proxy:
        app = ClockedRota(proxy.dsn)
        async with Harness(app) as harness:
            lock = await app.lock("invoices", ttl=TTL, max_held=0.5).acquire()
            proxy.drop()
            app.lease_clock.advance(0.5)
            await harness.wait_for_event(AlertRaised, kind=HELD_TOO_LONG, timeout=60)
            assert await rows(sql) == []
            proxy.heal()
            proxy.reset()
            await until(sql, [(HELD_TOO_LONG, "invoices", True)])
            assert lock.held
    assert len([each for each in harness.events if isinstance(each, AlertRaised)]) == 1


async def test_lock_without_problem_causes_no_alert_work(
    clocked_app: ClockedRota, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    company = (await clocked_app.open()).coordinator
    asked: list[str] = []
    monkeypatch.setattr(company.alerts, "_wake_thread", lambda: asked.append("nudge"))
    turn = company.alerts.renew

    async def turned(connection: Any) -> None:
        asked.append("turn")
        await turn(connection)

    monkeypatch.setattr(company.alerts, "renew", turned)
    async with clocked_app.lock("invoices", ttl=TTL) as lock:
        for _ in range(2):
            await renew(clocked_app, lock)

    assert asked == []
    assert company.alerts.next_expiry() == company.alerts.due_at() == float("inf")


# Failing renewals


async def test_lock_failing_renewals_raise_alert_until_next_renewal(
    rota_dsn: str, sql: Sql
) -> None:
    with Proxy(rota_dsn) as proxy:
        app = ClockedRota(proxy.dsn)
        async with Harness(app) as harness:
            async with harness.app.lock("invoices", ttl=TTL) as lock:
                for time_of_it in (1, 2):
                    proxy.refuse()
                    proxy.reset()
                    app.lease_clock.advance(2 * TTL / 3)
                    await wait_for_events(harness, AlertRaised, time_of_it)
                    assert lock.held
                    proxy.heal()
                    await wait_for_events(harness, AlertCleared, time_of_it)
                    assert lock.held
            raised = await harness.wait_for_event(AlertRaised, kind=RENEWALS_FAIL)

    assert raised.message == (
        f"lock 'invoices' (token {lock.token}) was not renewed for 20.0 s and runs out in 9.0 s"
    )
    assert await rows(sql) == [(RENEWALS_FAIL, "invoices", False)] * 2


async def wait_for_events(harness: Harness, kind: type[Event], times: int) -> None:
    async with asyncio.timeout(60):
        while sum(isinstance(each, kind) for each in harness.events) < times:
            await asyncio.sleep(0.01)


async def test_lock_expired_alert_stays_open_until_next_acquisition(
    rota_dsn: str, sql: Sql
) -> None:
    with Proxy(rota_dsn) as proxy:
        app = ClockedRota(proxy.dsn)
        async with Harness(app) as harness:
            lock = await app.lock("invoices", ttl=TTL).acquire()
            proxy.refuse()
            proxy.reset()
            app.lease_clock.advance(TTL)
            await asyncio.wait_for(lock.lost.wait(), 60)
            kinds = [type(each) for each in harness.events]
            proxy.heal()
            await until(sql, [(RENEWALS_FAIL, "invoices", True)])
            cursor = await sql.execute("select message, token from rota.alerts")
            [(message, token)] = await cursor.fetchall()
            await app.advance(TTL)  # the lock is free in the database, too
            assert await rows(sql) == [(RENEWALS_FAIL, "invoices", True)]

            async with app.lock("invoices"):
                await harness.wait_for_event(AlertCleared, kind=RENEWALS_FAIL, timeout=60)

    assert f"(token {token}) has run out: it could not be renewed for 30.0 s" in message
    assert kinds.index(AlertRaised) < kinds.index(LockForfeited)
    assert await rows(sql) == [(RENEWALS_FAIL, "invoices", False)]


async def test_lock_released_after_expiry_raises_alert(
    clocked_app: ClockedRota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen holder may reach its release before the renewal thread runs."""
    company = (await clocked_app.open()).coordinator
    monkeypatch.setattr(company.renewal_thread, "wake_threadsafe", lambda: None)
    async with Harness(clocked_app) as harness:
        lock = await clocked_app.lock("invoices", ttl=TTL).acquire()
        clocked_app.lease_clock.advance(TTL)

        with pytest.raises(LockLost):
            await lock.release()

        await harness.wait_for_event(AlertRaised, kind=RENEWALS_FAIL, timeout=60)


# Impossible states


async def test_lock_token_held_twice_raises_alert(clocked_app: ClockedRota, sql: Sql) -> None:
    async with Harness(clocked_app) as harness:
        lock = await clocked_app.lock("invoices", ttl=TTL).acquire()
        await sql.execute("update rota.locks set instance = gen_random_uuid()")
        clocked_app.lease_clock.advance(TTL / 3)
        raised = await harness.wait_for_event(AlertRaised, timeout=60)
        await asyncio.wait_for(lock.lost.wait(), 60)
        await until(sql, [(TOKEN_TWICE, "invoices", True)])

        await clocked_app.advance(TTL)
        async with clocked_app.lock("invoices", ttl=TTL):
            await harness.wait_for_event(AlertCleared, kind=TOKEN_TWICE, timeout=60)

    assert raised.kind == TOKEN_TWICE
    assert (
        f"(token {lock.token}) is also held by another instance, under the same token"
        in raised.message
    )


async def test_lock_released_by_operator_raises_no_alert(
    clocked_app: ClockedRota, sql: Sql
) -> None:
    async with Harness(clocked_app) as harness:
        lock = await clocked_app.lock("invoices", ttl=TTL).acquire()
        await sql.execute("select rota.release_lock('invoices', 0, 'me')")
        clocked_app.lease_clock.advance(TTL / 3)
        await asyncio.wait_for(lock.lost.wait(), 60)

    assert not [each for each in harness.events if isinstance(each, AlertRaised)]


# Flapping leaders


async def test_leader_flapping_raises_one_alert_for_all_instances(rota_dsn: str, sql: Sql) -> None:
    await sql.execute(
        "insert into rota.leaders (name, term, elections) values ('mayor', 6, array[now()])"
    )
    async with Harness(Rota(rota_dsn)) as one, Harness(Rota(rota_dsn)) as other:
        both = [(await each.app.open()).coordinator.alerts for each in (one, other)]
        both[0].on_elections("mayor", 4)
        await written(sql, both[0])
        assert await rows(sql) == []
        for number, alarms in enumerate(both):
            alarms.on_elections("mayor", 5 + number)
            await wait_for_message(
                sql, f"leader 'mayor' was elected {5 + number} times within a minute"
            )
        both[1].on_elections("mayor", 0)
        await written(sql, both[1])
        assert await rows(sql) == [(FLAPPING, "mayor", True)], "the last election was just now"
        told = [each for each in (*one.events, *other.events) if isinstance(each, AlertRaised)]

        await sql.execute("update rota.leaders set elections = array[now() - interval '61 s']")
        both[1].on_elections("mayor", 1)
        both[1].on_elections("mayor", 0)
        await other.wait_for_event(AlertCleared, kind=FLAPPING, subject="mayor", timeout=60)

    raised = [(each.kind, each.subject) for each in told if "another" not in each.subject]
    assert raised == [(FLAPPING, "mayor")]
    assert await rows(sql) == [(FLAPPING, "mayor", False)]


async def wait_for_message(sql: Sql, message: str) -> None:
    async with asyncio.timeout(60):
        while True:
            cursor = await sql.execute("select message from rota.alerts")
            if await cursor.fetchall() == [(message,)]:
                return
            await asyncio.sleep(0.01)


# Clearing alerts

HELD = "gen_random_uuid()"


@pytest.mark.parametrize(
    ("kind", "instance", "token", "expires", "is_open"),
    [
        (HELD_TOO_LONG, HELD, 7, "10 s", True),
        (HELD_TOO_LONG, HELD, 7, "-1 s", False),
        (HELD_TOO_LONG, HELD, 8, "10 s", False),
        (HELD_TOO_LONG, "null", 7, "10 s", False),
        (RENEWALS_FAIL, HELD, 7, "10 s", True),
        (RENEWALS_FAIL, HELD, 7, "-59 min", True),
        (RENEWALS_FAIL, HELD, 7, "-61 min", False),
        (RENEWALS_FAIL, HELD, 8, "10 s", False),
        (RENEWALS_FAIL, "null", 7, "10 s", False),
        (TOKEN_TWICE, HELD, 7, "-59 min", True),
        (TOKEN_TWICE, HELD, 8, "10 s", False),
        ("of another kind", "null", 8, "-1 d", True),
    ],
)
async def test_clear_resolved_closes_alerts_of_changed_locks(
    rota_app: Rota, sql: Sql, kind: str, instance: str, token: int, expires: str, is_open: bool
) -> None:
    subjects = ("invoices", "mail permit 2")
    for name, slot in (("invoices", 0), ("mail", 2)):
        await sql.execute(
            "insert into rota.locks (name, slot, token, instance, acquired, expires)"
            f" values (%s, %s, %s, {instance}, now(), now() + %s::interval)".encode(),
            (name, slot, token, expires),
        )
    for subject in subjects:
        await sql.execute(
            "insert into rota.alerts (kind, subject, message, token, host, pid)"
            " values (%s, %s, 'it is so', 7, 'web-1', 1)",
            (kind, subject),
        )

    closed = await (await rota_app.open()).database.run(alerts.clear_resolved())

    assert await rows(sql) == [(kind, subject, is_open) for subject in subjects]
    assert [(each.kind, each.subject) for each in closed] == (
        [] if is_open else [(kind, subject) for subject in subjects]
    )


async def test_lock_holder_closes_alerts_of_dead_instances(
    clocked_app: ClockedRota, sql: Sql
) -> None:
    await sql.execute(
        "insert into rota.alerts (kind, subject, message, token, host, pid)"
        " values (%s, 'orders', 'it was so', 7, 'web-1', 1)",
        (RENEWALS_FAIL,),
    )
    async with Harness(clocked_app) as harness, clocked_app.lock("invoices", ttl=TTL) as lock:
        for _ in range(5):  # it checks when it has held the lock for longer than the ttl
            await renew(clocked_app, lock)
        await harness.wait_for_event(AlertCleared, subject="orders", timeout=60)

    assert await rows(sql) == [(RENEWALS_FAIL, "orders", False)]


async def test_alert_closed_elsewhere_publishes_cleared_and_stays_closed(
    rota_harness: Harness, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.coord.alert_sources.RECHECK_SECONDS", 0.2)
    async with rota_harness.app.lock("invoices", ttl=30, max_held=0.1):
        await until(sql, [(HELD_TOO_LONG, "invoices", True)])
        await sql.execute("update rota.alerts set cleared = now()")
        await rota_harness.wait_for_event(AlertCleared, subject="invoices", timeout=60)
        await written(sql, (await rota_harness.app.open()).coordinator.alerts)

    assert await rows(sql) == [(HELD_TOO_LONG, "invoices", False)], "once is enough"


async def test_alert_of_lock_released_by_operator_is_not_raised_again(
    rota_harness: Harness, sql: Sql
) -> None:
    lock = await rota_harness.app.lock("invoices", ttl=30, max_held=0.1).acquire()
    await until(sql, [(HELD_TOO_LONG, "invoices", True)])
    await sql.execute("select rota.release_lock('invoices', 0, 'me')")

    alarms = (await rota_harness.app.open()).coordinator.alerts
    alarms.on_released(lock._require_lease())
    await rota_harness.wait_for_event(AlertCleared, timeout=60)
    await written(sql, alarms)

    assert await rows(sql) == [(HELD_TOO_LONG, "invoices", False)]
    assert lock.held, "it is ten seconds until it is renewed"


async def test_alert_row_locked_does_not_stop_lock_renewal(
    clocked_app: ClockedRota, sql: Sql
) -> None:
    alarms = (await clocked_app.open()).coordinator.alerts
    async with clocked_app.lock("invoices", ttl=8, max_held=0.1) as lock:
        await clocked_app.advance(0.1)  # the database's clock stands still, too
        await until(sql, [(HELD_TOO_LONG, "invoices", True)])
        async with sql.transaction():
            await sql.execute("select from rota.alerts for update")
            alarms._raise(HELD_TOO_LONG, "invoices", "and longer", lock.token)
            for renewal in range(1, 5):
                clocked_app.lease_clock.advance(8 / 3)
                await wait_for_renewals(sql, renewal, "invoices")
            assert lock.held


async def test_clear_alerts_skips_locked_rows(rota_app: Rota, sql: Sql) -> None:
    database = (await rota_app.open()).database
    await sql.execute(
        "insert into rota.alerts (kind, subject, message, token, host, pid)"
        " values (%s, 'orders', 'it was so', 7, 'web-1', 1)",
        (RENEWALS_FAIL,),
    )
    async with sql.transaction():
        await sql.execute("select from rota.alerts for update")
        async with asyncio.timeout(60):
            assert await database.run(alerts.clear_resolved()) == []
            assert await database.run(alerts.clear_alerts([(RENEWALS_FAIL, "orders", 7)])) == []
    assert len(await database.run(alerts.clear_alerts([(RENEWALS_FAIL, "orders", 8)]))) == 0
    assert len(await database.run(alerts.clear_alerts([(RENEWALS_FAIL, "orders", 7)]))) == 1


async def test_lock_release_during_alert_write_clears_the_alert(
    rota_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, go_on = threading.Event(), threading.Event()

    async def slowly(*asked: Any) -> Any:
        answers = await pipeline(*asked)
        written.set()
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        return answers

    monkeypatch.setattr("rota.coord.alert_sources.pipeline", slowly)
    async with rota_harness.app.lock("invoices", ttl=30, max_held=0.1):
        assert await asyncio.to_thread(written.wait, 60)
    go_on.set()

    await rota_harness.wait_for_event(AlertCleared, kind=HELD_TOO_LONG, timeout=60)
