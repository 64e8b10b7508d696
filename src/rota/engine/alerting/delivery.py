"""Delivery of alerts by webhook, at least once to every URL in `alert_webhook`.

An alert is sent when it is raised and when it is cleared. Pending deliveries are stored on the alerts'
rows, so they survive the instance that raised the alert and the one that was delivering it. A delivery
loop claims some rows for a while, sends, and records the deliveries that succeeded. If its process dies
in between, another one sends again under the same Idempotency-Key. Failed deliveries are retried for a
day, with growing delays. Each receiver gets the end of an alert after its beginning, never before.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from dataclasses import dataclass
from typing import Any

from rota.engine.alerting.webhook import WebhookRequest, send
from rota.errors import RetryLater, WebhookFailed
from rota.loop import Loop
from rota.model.settings import Settings
from rota.model.webhook_hosts import WebhookHosts
from rota.store import alerts, ticks
from rota.store.alerts import AlertToDeliver
from rota.store.database import Database

log = logging.getLogger("rota")

TIMEOUT_SECONDS = 10.0
"""Seconds that a receiver has to answer."""

LEASE_SECONDS = 3 * TIMEOUT_SECONDS
"""Seconds after which another process may claim the rows: two requests in sequence, and a margin."""

MAX_CONCURRENT_ALERTS = 10
"""Alerts that are delivered concurrently."""

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 5.0, 900.0
"""Seconds before the next attempt: the first delay and the longest."""

RAISED, CLEARED = "raised", "cleared"


@dataclass(frozen=True, slots=True)
class AlertReceiver:
    url: str
    name: str
    """Name of the receiver in the rows: a hash, because its URL may be a secret."""

    @classmethod
    def from_settings(cls, settings: Settings) -> list[AlertReceiver]:
        urls = dict.fromkeys(settings.alert_webhook.split())
        return [cls(url, hashlib.sha256(url.encode()).hexdigest()[:12]) for url in urls]


class AlertDelivery(Loop):
    name = "alert delivery"
    max_error_delay_seconds = 10.0

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._secret = database.settings.webhook_secret
        self._hosts = WebhookHosts.parse(database.settings.webhook_hosts)
        self._receivers = AlertReceiver.from_settings(database.settings)
        self._paused_until: dict[str, float] = {}
        """Time, by this process's monotonic clock, until which a receiver wants no requests."""

    async def tick(self) -> float | None:
        if not self._receivers:
            return None
        claim = alerts.claim_deliveries(MAX_CONCURRENT_ALERTS, LEASE_SECONDS)
        [[_, to_deliver]] = await self._database.pipeline([[ticks.set_short_timeouts(), claim]])
        if not to_deliver:
            return None  # woken when a delivery is pending
        await asyncio.gather(*(self._deliver(each) for each in to_deliver))
        return 0

    async def _deliver(self, alert: AlertToDeliver) -> None:
        results = await asyncio.gather(*(self._deliver_to(each, alert) for each in self._receivers))
        delivered = [each for sent, _ in results for each in sent]
        pauses = [pause for _, pause in results if pause is not None]
        await self._database.run(alerts.mark_delivered(alert, delivered, min(pauses, default=None)))

    async def _deliver_to(
        self, receiver: AlertReceiver, alert: AlertToDeliver
    ) -> tuple[list[str], float | None]:
        """Send the pending events of an alert to one receiver.

        Return the deliveries that succeeded, and the seconds until the next attempt if one is needed.
        """
        delivered: list[str] = []
        pause_seconds = self._paused_until.get(receiver.name, 0.0) - time.monotonic()
        for event in (RAISED, CLEARED) if alert.cleared is not None else (RAISED,):
            delivery_id = f"{event} {receiver.name}"
            if delivery_id in alert.delivered:
                continue
            if pause_seconds > 0:
                return delivered, pause_seconds
            try:
                await self._send(receiver, alert, event)
            except RetryLater as later:
                self._paused_until[receiver.name] = time.monotonic() + later.after
                return delivered, later.after
            except WebhookFailed as error:
                retry_seconds = _retry_delay(alert.attempts)
                level = logging.WARNING if alert.attempts <= 3 else logging.DEBUG
                log.log(
                    level,
                    "alert %s (%s) could not be delivered; retrying in %.0f s: %s",
                    *(alert.id, alert.kind, retry_seconds, error),
                )
                return delivered, retry_seconds
            delivered.append(delivery_id)
        return delivered, None

    async def _send(self, receiver: AlertReceiver, alert: AlertToDeliver, event: str) -> None:
        await send(
            WebhookRequest(receiver.url, document(alert, event), timeout=TIMEOUT_SECONDS),
            self._hosts,
            key=f"alert-{alert.id}-{alert.raised.timestamp():.0f}-{event}",
            now=alert.now,
            secret=self._secret,
        )


def document(alert: AlertToDeliver, event: str) -> dict[str, Any]:
    """Return the body that is sent. Receivers such as Slack display its `text`."""
    is_cleared = event == CLEARED
    by = f", closed by {alert.closed_by}" if is_cleared and alert.closed_by else ""
    return {
        "event": f"alert.{event}",
        "text": f"{'Over' if is_cleared else 'Alert'}: {alert.kind}: "
        + (f"{alert.subject}{by}" if is_cleared else alert.message),
        "alert": alert.id,
        "kind": alert.kind,
        "subject": alert.subject,
        "message": alert.message,
        "raised": alert.raised.isoformat(),
        "cleared": alert.cleared.isoformat() if is_cleared and alert.cleared else None,
        "closed_by": alert.closed_by if is_cleared else None,
        "host": alert.host,
        "pid": alert.pid,
    }


def _retry_delay(tries: int) -> float:
    max_delay = min(FIRST_RETRY_SECONDS * 2.0 ** min(tries - 1, 20), MAX_RETRY_SECONDS)
    return max_delay * random.uniform(0.75, 1.0)
