"""Delivery of alerts to webhooks: each raise and each clear, to every receiver."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rota import Rota
from rota.engine.alerting import delivery, webhook
from rota.engine.alerting.delivery import AlertDelivery
from rota.model import alert_rules
from rota.model.events import AlertRaised
from rota.model.settings import Settings
from rota.store import alerts
from rota.store.database import Database
from rota.testing import Harness
from schedules.receiver import Receiver, no_one_listens, receiving

from .fleet import Fleet
from .looking import QUICK, Sql, until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def settings(*ports: int, path: str = "/hush", **more: Any) -> dict[str, Any]:
    """Return settings with receivers on this machine, which are allowed explicitly."""
    return {
        "alert_webhook": " ".join(f"http://localhost:{port}{path}" for port in ports),
        "webhook_hosts": ", ".join(f"localhost:{port}" for port in ports),
        **more,
    }


class Office:
    """Alert delivery that runs when the test calls it."""

    def __init__(self, dsn: str, *ports: int, **more: Any) -> None:
        self.database = Database(dsn, Settings(**settings(*ports, **more)))
        self.courier = AlertDelivery(self.database)

    async def go(self) -> None:
        """Deliver everything that is due."""
        while await self.courier.tick() == 0:
            pass

    async def close(self) -> None:
        await self.database.close()


@pytest.fixture
async def office(rota_dsn: str, receiver: Receiver) -> AsyncIterator[Office]:
    office = Office(rota_dsn, receiver.port)
    yield office
    await office.close()


async def raise_one(office: Office, subject: str = "mail") -> None:
    await office.database.run(
        alerts.raise_alerts([("of a kind", subject, "it is so", None)], "web-1", 7)
    )


async def due(db: Sql) -> list[Any]:
    """Return the seconds until the next delivery of each alert; None if nothing is left to deliver."""
    cursor = await db.execute(
        "select extract(epoch from deliver_at - now())::float8 from rota.alerts order by id"
    )
    return [row[0] for row in await cursor.fetchall()]


async def now_due(db: Sql) -> None:
    """Make all scheduled retries due now."""
    await db.execute("update rota.alerts set deliver_at = now() where deliver_at is not null")


def events(receiver: Receiver) -> list[str]:
    return [json.loads(each.body)["event"] for each in receiver.requests]


# Content


async def test_that_it_is_so_and_that_it_is_over_is_told_once_each(
    db: Sql, office: Office, receiver: Receiver
) -> None:
    await raise_one(office)
    await office.go()
    await office.go()
    await office.database.run(alerts.clear_alerts([("of a kind", "mail", None)]))
    await office.go()
    await office.go()

    first, last = (json.loads(each.body) for each in receiver.requests)
    assert (first["event"], last["event"]) == ("alert.raised", "alert.cleared")
    assert first["text"] == "Alert: of a kind: it is so"
    assert last["text"] == "Over: of a kind: mail"
    for name, value in {"kind": "of a kind", "subject": "mail", "host": "web-1", "pid": 7}.items():
        assert first[name] == last[name] == value
    assert first["alert"] == last["alert"] == 1
    assert first["cleared"] is None
    assert last["cleared"] > last["raised"] == first["raised"]
    keys = [each.headers["Idempotency-Key"] for each in receiver.requests]
    assert len(set(keys)) == 2
    assert all(key.startswith("alert-1-") for key in keys)
    assert await due(db) == [None]


async def test_who_knows_the_secret_can_tell_that_it_is_ours(
    rota_dsn: str, receiver: Receiver
) -> None:
    office = Office(rota_dsn, receiver.port, webhook_secret="sesame")
    await raise_one(office)
    await office.go()
    [request] = receiver.requests
    parts = dict(part.split("=") for part in request.headers["Rota-Signature"].split(","))
    signed = parts["t"].encode() + b"." + request.body
    assert parts["v1"] == hmac.new(b"sesame", signed, hashlib.sha256).hexdigest()
    await office.close()


async def test_alerts_of_locks_are_told_by_a_worker_too(
    rota_dsn: str, receiver: Receiver, db: Sql, quick: None
) -> None:
    app = Rota(rota_dsn, **settings(receiver.port), **QUICK)

    @app.task
    async def work() -> None: ...

    async with Harness(app) as harness, app.worker():
        async with Rota(rota_dsn) as other, other.lock("invoices", max_held=0.1):
            await until(db, [(alert_rules.HELD_TOO_LONG, "invoices", True)])
            await told(receiver, 1)
        await told(receiver, 2)
        assert events(receiver) == ["alert.raised", "alert.cleared"]
        assert not [each for each in harness.events if isinstance(each, AlertRaised)]


async def told(receiver: Receiver, count: int) -> None:
    async with asyncio.timeout(60):
        while len(receiver.requests) < count:
            await asyncio.sleep(0.01)


async def test_one_that_came_and_went_before_anybody_could_tell_is_told_in_order(
    office: Office, receiver: Receiver
) -> None:
    await raise_one(office)
    await office.database.run(alerts.dismiss("of a kind", None, "me@here"))
    await office.go()
    assert events(receiver) == ["alert.raised", "alert.cleared"]
    assert json.loads(receiver.requests[1].body)["closed_by"] == "me@here"


async def test_what_has_been_over_for_a_day_is_told_to_nobody(
    db: Sql, office: Office, receiver: Receiver
) -> None:
    await raise_one(office)
    await db.execute("update rota.alerts set cleared = now() - interval '25 h'")
    await office.go()
    assert receiver.requests == []
    assert await due(db) == [None]


async def test_where_no_address_is_set_nothing_is_taken(rota_dsn: str, db: Sql) -> None:
    office = Office(rota_dsn)
    await raise_one(office)
    assert await office.courier.tick() is None
    [left] = await due(db)
    assert left <= 0
    await office.close()


# Failed deliveries


async def test_after_a_failure_it_is_told_again_later_each_time_under_the_same_key(
    db: Sql, office: Office, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500, 500, 500]
    await raise_one(office)
    pauses = []
    for _ in range(3):
        await office.go()
        pauses += await due(db)
        await now_due(db)
    await office.go()

    assert len(receiver.requests) == 4
    assert len({each.headers["Idempotency-Key"] for each in receiver.requests}) == 1
    assert 3.5 < pauses[0] < 5.1 < pauses[1] + 3 < pauses[1] + pauses[0] < 20
    assert pauses[0] < pauses[1] < pauses[2]
    assert await due(db) == [None]
    warned = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert "could not be delivered" in warned[0]
    assert "localhost answered 500" in warned[0]
    assert "hush" not in "".join(warned), "an address may be a secret"


async def test_who_asks_for_time_gets_it(db: Sql, office: Office, receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [503], {"Retry-After": "120"}
    await raise_one(office)
    await office.go()
    [left] = await due(db)
    assert 115 < left <= 120


async def test_who_asks_for_time_gets_it_though_another_is_tried_again_sooner(
    rota_dsn: str, db: Sql, receiver: Receiver
) -> None:
    receiver.statuses, receiver.headers = [503], {"Retry-After": "120"}
    office = Office(rota_dsn, no_one_listens(), receiver.port)
    await raise_one(office)
    await office.go()
    [left] = await due(db)
    assert left < 30, "the other is tried again soon"
    await now_due(db)
    await office.go()
    assert len(receiver.requests) == 1
    await office.close()


async def test_a_redirect_is_not_followed(db: Sql, office: Office, receiver: Receiver) -> None:
    with receiving() as other:
        receiver.statuses, receiver.headers = [302], {"Location": f"http://localhost:{other.port}/"}
        await raise_one(office)
        await office.go()
        assert other.requests == []
    [left] = await due(db)
    assert left > 0, "somebody may put it right"


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.0.0.7", "169.254.169.254", "::ffff:10.0.0.7", "100.64.0.1"]
)
async def test_a_name_that_leads_within_is_told_nothing(
    rota_dsn: str, db: Sql, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    tried: list[Any] = []
    monkeypatch.setattr("socket.create_connection", lambda *where: tried.append(where))
    monkeypatch.setattr(
        delivery,
        "send",
        lambda *what, **how: webhook.send(*what, **how, resolve=lambda host, port: [address]),
    )
    database = Database(
        rota_dsn,
        Settings(alert_webhook="https://hooks.example.com/", webhook_hosts="hooks.example.com"),
    )
    await database.run(alerts.raise_alerts([("of a kind", "mail", "it is so", None)], "web-1", 7))
    await AlertDelivery(database).tick()
    assert tried == []
    cursor = await db.execute("select delivered_to, deliver_at > now() from rota.alerts")
    assert await cursor.fetchall() == [([], True)]
    await database.close()


async def test_of_two_that_are_to_know_one_does_not_keep_it_from_the_other(
    rota_dsn: str, db: Sql, receiver: Receiver
) -> None:
    office = Office(rota_dsn, no_one_listens(), receiver.port)
    await raise_one(office)
    await office.go()
    await now_due(db)
    await office.go()
    assert events(receiver) == ["alert.raised"], "and it is not told twice for the other's sake"
    [left] = await due(db)
    assert left > 0
    await office.close()


async def test_what_ends_while_its_beginning_is_told_is_told_too(
    db: Sql, office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*what: Any, **how: Any) -> int:
        status = await webhook.send(*what, **how)
        await office.database.run(alerts.clear_alerts([("of a kind", "mail", None)]))
        return status

    monkeypatch.setattr(delivery, "send", send)
    await raise_one(office)
    await office.go()
    assert events(receiver) == ["alert.raised", "alert.cleared"]
    assert await due(db) == [None]


async def test_what_one_is_taking_is_not_anothers(
    rota_dsn: str, direct_dsn: str, db: Sql, office: Office
) -> None:
    await raise_one(office)
    async with await type(db).connect(direct_dsn) as other:
        await other.execute("select from rota.alerts for update")
        async with asyncio.timeout(60):
            assert await office.database.run(alerts.claim_deliveries(10, 30.0)) == []
    assert len(await office.database.run(alerts.claim_deliveries(10, 30.0))) == 1
    assert await office.database.run(alerts.claim_deliveries(10, 30.0)) == []


async def test_two_couriers_do_not_tell_the_same(
    rota_dsn: str, office: Office, receiver: Receiver
) -> None:
    other = Office(rota_dsn, receiver.port)
    for number in range(30):
        await raise_one(office, f"box {number}")
    await asyncio.gather(office.go(), other.go(), office.go())
    subjects = [json.loads(each.body)["subject"] for each in receiver.requests]
    assert sorted(subjects) == sorted(f"box {number}" for number in range(30))
    await other.close()


async def test_a_worker_that_stops_does_not_wait_for_a_slow_receiver(
    rota_dsn: str, receiver: Receiver, quick: None
) -> None:
    receiver.hold = threading.Event()
    app = Rota(rota_dsn, **settings(receiver.port), **QUICK)

    @app.task
    async def work() -> None: ...

    async with app:
        database = (await app.open()).database
        await database.run(
            alerts.raise_alerts([("of a kind", "mail", "it is so", None)], "web-1", 7)
        )
        async with app.worker():
            await told(receiver, 1)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 3


# Death of the sender


async def test_it_is_told_after_who_was_about_to_was_killed(
    db: Sql, receiver: Receiver, fleet: Fleet
) -> None:
    """The first worker is killed while it waits for an answer. The second delivers the alert with the same
    key.
    """
    receiver.hold = threading.Event()
    how = {f"ROTA_{name.upper()}": text for name, text in settings(receiver.port).items()}
    fleet.start(1, ROTA_ALERTS="worker-dead=off", **how)
    await db.execute(
        "insert into rota.alerts (kind, subject, message, host, pid)"
        " values ('of a kind', 'mail', 'it is so', 'web-1', 7)"
    )
    await told(receiver, 1)
    fleet.processes[0].send_signal(signal.SIGKILL)
    await asyncio.to_thread(receiver.left.wait, 10)
    receiver.hold.set()
    receiver.hold = None
    fleet.start(1, ROTA_ALERTS="worker-dead=off", **how)
    await told(receiver, 2)
    async with asyncio.timeout(60):
        while await due(db) != [None]:
            await asyncio.sleep(0.02)

    one, other = receiver.requests
    assert one.body == other.body
    assert one.headers["Idempotency-Key"] == other.headers["Idempotency-Key"]
