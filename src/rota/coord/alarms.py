"""What somebody should look at, as it is noticed here: told at once as an event, and kept as a row.

A row may have to wait for the database: most of what goes wrong with a lock goes wrong while it is away.
It is there once over the fleet for what it is about, and closed by whoever sees that it is no longer so:
he who opened it may be dead. So AlertRaised is announced where it was noticed; AlertCleared there too, and
where it was found out.

A lock about which there is nothing to say costs nothing: no statement, and nobody is woken.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.coord import trust
from rota.coord.identity import Identity
from rota.coord.lease import Lease
from rota.model.events import AlertCleared, AlertRaised, Event
from rota.model.rules import FLAPPING, HELD_TOO_LONG, RENEWALS_FAIL, TOKEN_TWICE, Rules
from rota.store import alerts
from rota.store.database import exchange
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")

SETTLE_EVERY = 10.0
"""Seconds between looks at what is no longer so."""

AGAIN = 0.5
LONGEST_TURN = 5.0
"""Seconds."""

Key = tuple[str, str]


@dataclass(slots=True)
class Alert:
    kind: str
    subject: str
    message: str
    token: int | None
    told: bool
    """It was announced here."""
    written: bool = False
    over: bool = False
    """It is no longer so, and the row does not say so yet."""

    @property
    def key(self) -> Key:
        return self.kind, self.subject


class Alarms:
    """A part of the keeper; it is told things from any thread."""

    patience = LONGEST_TURN

    def __init__(
        self,
        identity: Identity,
        schema: str,
        announce: Callable[[Event], None],
        nudge: Callable[[], None],
        rules: Rules,
    ) -> None:
        self._rules = rules
        self._identity = identity
        self._schema = schema
        self._announce = announce
        self._nudge = nudge
        self._leases: dict[int, Lease] = {}
        self._open: dict[Key, Alert] = {}
        self._closed: set[tuple[str, int]] = set()
        self._steady: set[str] = set()
        self._due = math.inf
        self._settled = -math.inf
        self._pause = AGAIN
        self._lock = threading.Lock()

    # What it is told

    def watch(self, lease: Lease) -> None:
        self._leases[lease.token] = lease
        if any(alert.subject == subject_of(lease) for alert in self._known()):
            self._due = trust.now()  # what was said of its last holder is over

    def forget(self, lease: Lease) -> None:
        """It is given back now, or lost."""
        self._closed -= {(HELD_TOO_LONG, lease.token), (RENEWALS_FAIL, lease.token)}
        if self._leases.pop(lease.token, None) is not None and lease.until <= trust.now():
            silent = trust.now() - lease.sent
            message = f"{_what(lease)} has run out: it could not be renewed for {silent:.1f} s"
            self._raise(RENEWALS_FAIL, subject_of(lease), message, lease.token)

    def released(self, lease: Lease) -> None:
        if any(alert.token == lease.token for alert in self._known()):
            self._look_soon()

    def renewed(self, lease: Lease) -> None:
        now = trust.now()
        with self._lock:
            alert = self._open.get((RENEWALS_FAIL, subject_of(lease)))
            if alert is not None and alert.token == lease.token and lease.held():
                alert.over = True
                self._due = now
        # Who holds a lock for long looks after what others left.
        if now - lease.since > lease.ttl and now - self._settled >= SETTLE_EVERY:
            self._due = min(self._due, now)

    def doubled(self, lease: Lease) -> None:
        """Somebody else has it under the same token. That cannot be."""
        message = f"{_what(lease)} is held by somebody else as well, under the same token"
        self._raise(TOKEN_TWICE, subject_of(lease), message, lease.token)

    def flapping(self, name: str, elections: int) -> None:
        """So many elections were held in the last minute; 0: a term has lasted one."""
        if elections == 0:
            if name not in self._steady:
                self._steady.add(name)
                self._look_soon()
            return
        self._steady.discard(name)
        if elections >= self._rules.limit(FLAPPING):
            message = f"leader {name!r} was elected {elections} times within a minute"
            # Everyone who is elected notices, so it is told by whoever gets to write it down.
            self._raise(FLAPPING, name, message, at_once=False)

    def _raise(
        self, kind: str, subject: str, message: str, token: int | None = None, at_once: bool = True
    ) -> None:
        if not self._rules.tells(kind):
            return
        with self._lock:
            known = self._open.get((kind, subject))
            told = at_once if known is None else known.told
            alert = Alert(kind, subject, message, token, told)
            self._open[alert.key] = alert
        if known is None and at_once:
            self._tell_raised(alert)
        self._look_soon()

    def _look_soon(self) -> None:
        self._due = trust.now()
        self._nudge()

    # As a part of the keeper

    def due(self) -> float:
        return self._due

    def ends(self) -> float:
        """When the next thing is to be told, by the clock alone: the database may be away."""
        return min((at for _, _, at in self._to_come()), default=math.inf)

    def expire(self) -> None:
        now = trust.now()
        for kind, lease, at in list(self._to_come()):
            if at <= now:
                self._raise(kind, subject_of(lease), _said(kind, lease, now), lease.token)

    def cut(self) -> None:
        """Alerts are rows: they do not go with a connection."""

    async def turn(self, connection: Session) -> None:
        now = trust.now()
        with self._lock:
            # Asked again later, if this comes to nothing.
            self._due = later = now + self._pause
            self._pause = min(self._pause * 2, SETTLE_EVERY)
            known = sorted(self._open.values(), key=lambda alert: alert.key)
        unwritten = [alert for alert in known if not alert.written]
        over = [alert for alert in known if alert.over]
        opened, settled, closed = await self._write(connection, known, unwritten, over)
        fresh = {(row.kind, row.subject) for row in opened if row.fresh}
        gone = {(row.kind, row.subject): row.here for row in (*settled, *closed)}
        for alert in unwritten:
            alert.written = True
            if alert.key in fresh and not alert.told:
                alert.told = True
                self._tell_raised(alert)
        for key, here in gone.items():
            self._close(key, known, here)
        with self._lock:
            self._settled, self._pause = now, AGAIN
            if self._due != later:
                return  # somebody has asked for another look meanwhile
            if any(alert.over or not alert.written for alert in self._open.values()):
                self._due = now
            else:
                self._due = now + SETTLE_EVERY if self._open else math.inf

    async def _write(
        self, connection: Session, known: list[Alert], unwritten: list[Alert], over: list[Alert]
    ) -> tuple[list[alerts.Opened], list[alerts.Closed], list[alerts.Closed]]:
        opening = [(each.kind, each.subject, each.message, each.token) for each in unwritten]
        closing = [(each.kind, each.subject, each.token) for each in over]
        first = [[alerts.open_(opening, self._identity.host, self._identity.pid)]]
        last = [[alerts.close(closing)]]
        segments: list[list[Query[Any]]] = [
            *(first if opening else []),
            [alerts.settle([alert.key for alert in known])],
            *(last if closing else []),
        ]
        answers = [rows for [rows] in await exchange(connection, segments, self._schema)]
        opened = answers.pop(0) if opening else []
        return opened, answers[0], answers[1] if closing else []

    def _close(self, key: Key, known: list[Alert], here: bool) -> None:
        with self._lock:
            alert = self._open.get(key)
            if alert is not None and not any(alert is each for each in known):
                return  # it is so again
            self._open.pop(key, None)
            if alert is not None and alert.token in self._leases and not alert.over:
                # Others know better: it was taken from us, or somebody does not want to hear it again.
                self._closed.add((alert.kind, alert.token))
        if here or (alert is not None and alert.told):
            kind, subject = key
            log.info("alert is over: %s: %s", kind, subject)
            self._announce(AlertCleared(kind, subject))

    def _tell_raised(self, alert: Alert) -> None:
        log.warning("alert: %s: %s", alert.kind, alert.message)
        self._announce(AlertRaised(alert.kind, alert.subject, alert.message))

    def _to_come(self) -> Iterator[tuple[str, Lease, float]]:
        """What will be worth telling of which lock, and when, unless that changes."""
        for lease in self._watched():
            if lease.longest is not None and not self._is_told(HELD_TOO_LONG, lease):
                yield HELD_TOO_LONG, lease, lease.since + lease.longest
            if not self._is_told(RENEWALS_FAIL, lease):
                yield RENEWALS_FAIL, lease, lease.doubtful

    def _is_told(self, kind: str, lease: Lease) -> bool:
        alert = self._open.get((kind, subject_of(lease)))
        if alert is not None and alert.token == lease.token and not alert.over:
            return True
        if not self._rules.tells(kind):
            return True  # nobody wants to be
        return (kind, lease.token) in self._closed

    def _watched(self) -> list[Lease]:
        return list(self._leases.values())

    def _known(self) -> list[Alert]:
        return list(self._open.values())


def subject_of(lease: Lease) -> str:
    """As people, and the database, call what is held."""
    return f"{lease.name} permit {lease.slot}" if lease.slot else lease.name


def _what(lease: Lease) -> str:
    what = f"permit {lease.slot} of {lease.name!r}" if lease.slot else f"lock {lease.name!r}"
    return f"{what} (token {lease.token})"


def _said(kind: str, lease: Lease, now: float) -> str:
    if kind == HELD_TOO_LONG:
        return f"{_what(lease)} is held for longer than the {lease.longest:g} s that were declared"
    left = max(lease.until - now, 0.0)
    silent = now - lease.sent
    return f"{_what(lease)} was not renewed for {silent:.1f} s and runs out in {left:.1f} s"
