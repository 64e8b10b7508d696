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
from support.alert_fleet import Fleet
from support.alert_helpers import QUICK, Sql, until
from support.scale import scale
from support.webhook_receiver import Receiver, receiving, unused_port


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


class ManualDelivery:
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
async def manual_delivery(rota_dsn: str, receiver: Receiver) -> AsyncIterator[ManualDelivery]:
    office = ManualDelivery(rota_dsn, receiver.port)
    yield office
    await office.close()


async def raise_alert(office: ManualDelivery, subject: str = "mail") -> None:
    await office.database.run(
        alerts.raise_alerts([("of a kind", subject, "it is so", None)], "web-1", 7)
    )


async def retry_delays(db: Sql) -> list[Any]:
    """Return the seconds until the next delivery of each alert; None if nothing is left to deliver."""
    cursor = await db.execute(
        "select extract(epoch from deliver_at - now())::float8 from rota.alerts order by id"
    )
    return [row[0] for row in await cursor.fetchall()]


async def make_due(db: Sql) -> None:
    """Make all scheduled retries due now."""
    await db.execute("update rota.alerts set deliver_at = now() where deliver_at is not null")


def events(receiver: Receiver) -> list[str]:
    return [json.loads(each.body)["event"] for each in receiver.requests]


# Content


async def test_delivery_raise_and_clear_are_each_sent_once(
    db: Sql, manual_delivery: ManualDelivery, receiver: Receiver
) -> None:
    await raise_alert(manual_delivery)
    await manual_delivery.go()
    await manual_delivery.go()
    await manual_delivery.database.run(alerts.clear_alerts([("of a kind", "mail", None)]))
    await manual_delivery.go()
    await manual_delivery.go()

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
    assert await retry_delays(db) == [None]


async def test_delivery_with_secret_signs_the_request(rota_dsn: str, receiver: Receiver) -> None:
    office = ManualDelivery(rota_dsn, receiver.port, webhook_secret="sesame")
    await raise_alert(office)
    await office.go()
    [request] = receiver.requests
    parts = dict(part.split("=") for part in request.headers["Rota-Signature"].split(","))
    signed = parts["t"].encode() + b"." + request.body
    assert parts["v1"] == hmac.new(b"sesame", signed, hashlib.sha256).hexdigest()
    await office.close()


async def test_delivery_lock_alert_of_other_instance_is_sent_by_worker(
    rota_dsn: str, receiver: Receiver, db: Sql, short_rounds: None
) -> None:
    app = Rota(rota_dsn, **settings(receiver.port), **QUICK)

    @app.task
    async def work() -> None: ...

    async with Harness(app) as harness, app.worker():
        async with Rota(rota_dsn) as other, other.lock("invoices", max_held=0.1):
            await until(db, [(alert_rules.HELD_TOO_LONG, "invoices", True)])
            await wait_for_requests(receiver, 1)
        await wait_for_requests(receiver, 2)
        assert events(receiver) == ["alert.raised", "alert.cleared"]
        assert not [each for each in harness.events if isinstance(each, AlertRaised)]


async def wait_for_requests(receiver: Receiver, count: int) -> None:
    async with asyncio.timeout(60):
        while len(receiver.requests) < count:
            await asyncio.sleep(0.01)


async def test_delivery_alert_closed_before_sending_sends_both_in_order(
    manual_delivery: ManualDelivery, receiver: Receiver
) -> None:
    await raise_alert(manual_delivery)
    await manual_delivery.database.run(alerts.dismiss("of a kind", None, "me@here"))
    await manual_delivery.go()
    assert events(receiver) == ["alert.raised", "alert.cleared"]
    assert json.loads(receiver.requests[1].body)["closed_by"] == "me@here"


async def test_delivery_alert_cleared_a_day_ago_is_not_sent(
    db: Sql, manual_delivery: ManualDelivery, receiver: Receiver
) -> None:
    await raise_alert(manual_delivery)
    await db.execute("update rota.alerts set cleared = now() - interval '25 h'")
    await manual_delivery.go()
    assert receiver.requests == []
    assert await retry_delays(db) == [None]


async def test_delivery_without_webhook_claims_nothing(rota_dsn: str, db: Sql) -> None:
    office = ManualDelivery(rota_dsn)
    await raise_alert(office)
    assert await office.courier.tick() is None
    [left] = await retry_delays(db)
    assert left <= 0
    await office.close()


# Failed deliveries


async def test_delivery_failed_send_is_retried_with_backoff_and_same_key(
    db: Sql, manual_delivery: ManualDelivery, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500, 500, 500]
    await raise_alert(manual_delivery)
    pauses = []
    for _ in range(3):
        await manual_delivery.go()
        pauses += await retry_delays(db)
        await make_due(db)
    await manual_delivery.go()

    assert len(receiver.requests) == 4
    assert len({each.headers["Idempotency-Key"] for each in receiver.requests}) == 1
    assert 3.5 < pauses[0] < 5.1 < pauses[1] + 3 < pauses[1] + pauses[0] < 20
    assert pauses[0] < pauses[1] < pauses[2]
    assert await retry_delays(db) == [None]
    warned = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert "could not be delivered" in warned[0]
    assert "localhost answered 500" in warned[0]
    assert "hush" not in "".join(warned), "an address may be a secret"


async def test_delivery_retry_after_header_delays_the_retry(
    db: Sql, manual_delivery: ManualDelivery, receiver: Receiver
) -> None:
    receiver.statuses, receiver.headers = [503], {"Retry-After": "120"}
    await raise_alert(manual_delivery)
    await manual_delivery.go()
    [left] = await retry_delays(db)
    assert 115 < left <= 120


async def test_delivery_retry_after_is_kept_when_other_receiver_retries(
    rota_dsn: str, db: Sql, receiver: Receiver
) -> None:
    receiver.statuses, receiver.headers = [503], {"Retry-After": "120"}
    office = ManualDelivery(rota_dsn, unused_port(), receiver.port)
    await raise_alert(office)
    await office.go()
    [left] = await retry_delays(db)
    assert left < 30, "the other is tried again soon"
    await make_due(db)
    await office.go()
    assert len(receiver.requests) == 1
    await office.close()


async def test_delivery_redirect_is_not_followed(
    db: Sql, manual_delivery: ManualDelivery, receiver: Receiver
) -> None:
    with receiving() as other:
        receiver.statuses, receiver.headers = [302], {"Location": f"http://localhost:{other.port}/"}
        await raise_alert(manual_delivery)
        await manual_delivery.go()
        assert other.requests == []
    [left] = await retry_delays(db)
    assert left > 0, "somebody may put it right"


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.0.0.7", "169.254.169.254", "::ffff:10.0.0.7", "100.64.0.1"]
)
async def test_delivery_host_resolving_to_private_address_is_not_contacted(
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


async def test_delivery_failing_receiver_does_not_block_the_other(
    rota_dsn: str, db: Sql, receiver: Receiver
) -> None:
    office = ManualDelivery(rota_dsn, unused_port(), receiver.port)
    await raise_alert(office)
    await office.go()
    await make_due(db)
    await office.go()
    assert events(receiver) == ["alert.raised"], "and it is not told twice for the other's sake"
    [left] = await retry_delays(db)
    assert left > 0
    await office.close()


async def test_delivery_alert_cleared_during_send_sends_both_events(
    db: Sql, manual_delivery: ManualDelivery, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*what: Any, **how: Any) -> int:
        status = await webhook.send(*what, **how)
        await manual_delivery.database.run(alerts.clear_alerts([("of a kind", "mail", None)]))
        return status

    monkeypatch.setattr(delivery, "send", send)
    await raise_alert(manual_delivery)
    await manual_delivery.go()
    assert events(receiver) == ["alert.raised", "alert.cleared"]
    assert await retry_delays(db) == [None]


async def test_delivery_alert_locked_or_claimed_is_not_claimed_again(
    rota_dsn: str, direct_dsn: str, db: Sql, manual_delivery: ManualDelivery
) -> None:
    await raise_alert(manual_delivery)
    async with await type(db).connect(direct_dsn) as other:
        await other.execute("select from rota.alerts for update")
        async with asyncio.timeout(60):
            assert await manual_delivery.database.run(alerts.claim_deliveries(10, 30.0)) == []
    assert len(await manual_delivery.database.run(alerts.claim_deliveries(10, 30.0))) == 1
    assert await manual_delivery.database.run(alerts.claim_deliveries(10, 30.0)) == []


async def test_delivery_concurrent_senders_send_each_alert_once(
    rota_dsn: str, manual_delivery: ManualDelivery, receiver: Receiver
) -> None:
    other = ManualDelivery(rota_dsn, receiver.port)
    for number in range(30):
        await raise_alert(manual_delivery, f"box {number}")
    await asyncio.gather(manual_delivery.go(), other.go(), manual_delivery.go())
    subjects = [json.loads(each.body)["subject"] for each in receiver.requests]
    assert sorted(subjects) == sorted(f"box {number}" for number in range(30))
    await other.close()


async def test_delivery_slow_receiver_does_not_delay_worker_stop(
    rota_dsn: str, receiver: Receiver, short_rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rota.engine.alerting.delivery.TIMEOUT_SECONDS", webhook.MAX_TIMEOUT_SECONDS
    )
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
            await wait_for_requests(receiver, 1)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < scale(webhook.MAX_TIMEOUT_SECONDS, 3)


# Death of the sender


async def test_delivery_after_killed_sender_is_repeated_with_same_key(
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
    await wait_for_requests(receiver, 1)
    fleet.processes[0].send_signal(signal.SIGKILL)
    await asyncio.to_thread(receiver.left.wait, 60)
    receiver.hold.set()
    receiver.hold = None
    fleet.start(1, ROTA_ALERTS="worker-dead=off", **how)
    await wait_for_requests(receiver, 2)
    async with asyncio.timeout(60):
        while await retry_delays(db) != [None]:
            await asyncio.sleep(0.02)

    one, other = receiver.requests
    assert one.body == other.body
    assert one.headers["Idempotency-Key"] == other.headers["Idempotency-Key"]
