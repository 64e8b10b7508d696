"""Tells the world outside of alerts: each that is raised and each that is over, to every address in
`alert_webhook`, at least once.

What is still to be told is on the alerts' rows, so it outlives whoever raised it and whoever was about to
tell it. A courier takes some rows for a while, sends, and notes what has arrived; whoever dies in between
has it done again by another, under the same Idempotency-Key. What does not arrive is tried again, later
each time, for a day. To each address an alert's end is told after its beginning, never before.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from dataclasses import dataclass
from typing import Any

from rota.engine.webhook import Hook, send
from rota.errors import RetryLater, WebhookFailed
from rota.loop import Loop
from rota.model.hosts import Hosts
from rota.model.settings import Settings
from rota.store import alerts, ticks
from rota.store.alerts import Letter
from rota.store.database import Database

log = logging.getLogger("rota")

TIMEOUT = 10.0
"""Seconds that a receiver has for its answer."""

HOLD = 3 * TIMEOUT
"""Seconds after which what a courier has taken is another's: two requests one after the other, and some."""

AT_ONCE = 10
"""Alerts that are told side by side."""

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 900.0
"""Seconds before the next try."""

RAISED, CLEARED = "raised", "cleared"


@dataclass(frozen=True, slots=True)
class Receiver:
    url: str
    name: str
    """What it is called in the rows: its URL may be a secret."""

    @classmethod
    def all(cls, settings: Settings) -> list[Receiver]:
        urls = dict.fromkeys(settings.alert_webhook.split())
        return [cls(url, hashlib.sha256(url.encode()).hexdigest()[:12]) for url in urls]


class Courier(Loop):
    longest_rest_after_error = 10.0

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._secret = database.settings.webhook_secret
        self._hosts = Hosts.parse(database.settings.webhook_hosts)
        self._receivers = Receiver.all(database.settings)
        self._not_before: dict[str, float] = {}
        """Until when, by this process's clock, a receiver has asked not to be told anything."""

    async def tick(self) -> float | None:
        if not self._receivers:
            return None
        taking = [ticks.hurry(), alerts.take(AT_ONCE, HOLD)]
        [[_, letters]] = await self._database.exchange([taking])
        if not letters:
            return None  # until somebody has something to tell
        await asyncio.gather(*(self._deliver(each) for each in letters))
        return 0

    async def _deliver(self, letter: Letter) -> None:
        results = await asyncio.gather(*(self._tell(each, letter) for each in self._receivers))
        told = [each for arrived, _ in results for each in arrived]
        pauses = [pause for _, pause in results if pause is not None]
        await self._database.run(alerts.told(letter, told, min(pauses, default=None)))

    async def _tell(self, receiver: Receiver, letter: Letter) -> tuple[list[str], float | None]:
        """Answers what has arrived, and when to try the rest, if there is any."""
        arrived: list[str] = []
        wait = self._not_before.get(receiver.name, 0.0) - time.monotonic()
        for what in (RAISED, CLEARED) if letter.cleared is not None else (RAISED,):
            mark = f"{what} {receiver.name}"
            if mark in letter.told:
                continue
            if wait > 0:
                return arrived, wait
            try:
                await self._send(receiver, letter, what)
            except RetryLater as later:
                self._not_before[receiver.name] = time.monotonic() + later.after
                return arrived, later.after
            except WebhookFailed as error:
                pause = _pause(letter.tries)
                level = logging.WARNING if letter.tries <= 3 else logging.DEBUG
                log.log(
                    level,
                    "alert %s (%s) could not be told, trying again in %.0f s: %s",
                    *(letter.id, letter.kind, pause, error),
                )
                return arrived, pause
            arrived.append(mark)
        return arrived, None

    async def _send(self, receiver: Receiver, letter: Letter, what: str) -> None:
        await send(
            Hook(receiver.url, document(letter, what), timeout=TIMEOUT),
            self._hosts,
            key=f"alert-{letter.id}-{letter.raised.timestamp():.0f}-{what}",
            now=letter.now,
            secret=self._secret,
        )


def document(letter: Letter, what: str) -> dict[str, Any]:
    """What is sent. `text` is for receivers that show what they are sent, as Slack's are."""
    over = what == CLEARED
    by = f", closed by {letter.closed_by}" if over and letter.closed_by else ""
    return {
        "event": f"alert.{what}",
        "text": f"{'Over' if over else 'Alert'}: {letter.kind}: "
        + (f"{letter.subject}{by}" if over else letter.message),
        "alert": letter.id,
        "kind": letter.kind,
        "subject": letter.subject,
        "message": letter.message,
        "raised": letter.raised.isoformat(),
        "cleared": letter.cleared.isoformat() if over and letter.cleared else None,
        "closed_by": letter.closed_by if over else None,
        "host": letter.host,
        "pid": letter.pid,
    }


def _pause(tries: int) -> float:
    longest = min(FIRST_PAUSE * 2.0 ** min(tries - 1, 20), LONGEST_PAUSE)
    return longest * random.uniform(0.75, 1.0)
