"""Alerts on locks and leaders: published as events when they are noticed, and stored as rows.

Writing a row may have to wait for the database, since most problems with locks arise while it is
unavailable. The fleet has one row for each kind and subject. The instance that raised an alert may be
dead, so any instance that finds it resolved clears it. AlertRaised is published where the alert was
noticed, AlertCleared there and where it was cleared.

A lock without alerts costs nothing: no statement is sent and the thread is not woken.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.coord.lease import InstanceIdentity, Lease, LeaseClock
from rota.model.alert_rules import FLAPPING, HELD_TOO_LONG, RENEWALS_FAIL, TOKEN_TWICE, AlertRules
from rota.model.events import AlertCleared, AlertRaised, Event
from rota.store import alerts
from rota.store.database import pipeline
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

RECHECK_SECONDS = 10.0
"""Seconds between checks for resolved alerts."""

RETRY_SECONDS = 0.5
MAX_RENEW_SECONDS = 5.0
"""Seconds between attempts to write after an error, doubled up to RECHECK_SECONDS; seconds a turn may take.
"""

AlertKey = tuple[str, str]


@dataclass(slots=True)
class RaisedAlert:
    kind: str
    subject: str
    message: str
    token: int | None
    is_published: bool
    """True if this instance published AlertRaised."""
    is_written: bool = False
    is_cleared: bool = False
    """True if the alert is resolved, but its row is not cleared yet."""

    @property
    def key(self) -> AlertKey:
        return self.kind, self.subject


class CoordinationAlerts:
    """Renewal task that raises and clears alerts. The `on_…` methods may be called from any thread."""

    timeout = MAX_RENEW_SECONDS

    def __init__(
        self,
        identity: InstanceIdentity,
        schema: str,
        publish: Callable[[Event], None],
        wake_thread: Callable[[], None],
        rules: AlertRules,
        clock: LeaseClock,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._identity = identity
        self._schema = schema
        self._publish = publish
        self._wake_thread = wake_thread
        self._leases: dict[int, Lease] = {}
        self._open: dict[AlertKey, RaisedAlert] = {}
        self._suppressed: set[tuple[str, int]] = set()
        self._stable_leaders: set[str] = set()
        self._due_at = math.inf
        self._checked_at = -math.inf
        self._pause = RETRY_SECONDS
        self._lock = threading.Lock()

    # Notifications from leases and elections

    def watch(self, lease: Lease) -> None:
        self._leases[lease.token] = lease
        if any(alert.subject == subject_of(lease) for alert in self._open_alerts()):
            self._due_at = self._clock.now()  # alerts on its previous holder are resolved

    def unwatch(self, lease: Lease) -> None:
        """Stop watching a lease that is being released or is lost."""
        self._suppressed -= {(HELD_TOO_LONG, lease.token), (RENEWALS_FAIL, lease.token)}
        if (
            self._leases.pop(lease.token, None) is not None
            and lease.trusted_until <= self._clock.now()
        ):
            unrenewed_seconds = self._clock.now() - lease.sent_at
            message = f"{_title(lease)} has run out: it could not be renewed for {unrenewed_seconds:.1f} s"
            self._raise(RENEWALS_FAIL, subject_of(lease), message, lease.token)

    def on_released(self, lease: Lease) -> None:
        if any(alert.token == lease.token for alert in self._open_alerts()):
            self._make_due()

    def on_renewed(self, lease: Lease) -> None:
        now = self._clock.now()
        with self._lock:
            alert = self._open.get((RENEWALS_FAIL, subject_of(lease)))
            if alert is not None and alert.token == lease.token and lease.is_held():
                alert.is_cleared = True
                self._due_at = now
        # An instance that holds a lock for long also clears alerts that other instances left behind.
        if now - lease.acquired_at > lease.ttl and now - self._checked_at >= RECHECK_SECONDS:
            self._due_at = min(self._due_at, now)

    def on_duplicate_token(self, lease: Lease) -> None:
        """Raise an alert: another instance holds the lock under the same token, which must never happen."""
        message = f"{_title(lease)} is also held by another instance, under the same token"
        self._raise(TOKEN_TWICE, subject_of(lease), message, lease.token)

    def on_elections(self, name: str, elections: int) -> None:
        """Record the number of elections in the last minute; 0 means that a term has lasted a minute."""
        if elections == 0:
            if name not in self._stable_leaders:
                self._stable_leaders.add(name)
                self._make_due()
            return
        self._stable_leaders.discard(name)
        if elections >= self._rules.limit(FLAPPING):
            message = f"leader {name!r} was elected {elections} times within a minute"
            # Every elected instance notices this, so only the one that writes the row publishes the event.
            self._raise(FLAPPING, name, message, publish_now=False)

    def _raise(
        self,
        kind: str,
        subject: str,
        message: str,
        token: int | None = None,
        publish_now: bool = True,
    ) -> None:
        if not self._rules.is_enabled(kind):
            return
        with self._lock:
            open_alert = self._open.get((kind, subject))
            is_published = publish_now if open_alert is None else open_alert.is_published
            alert = RaisedAlert(kind, subject, message, token, is_published)
            self._open[alert.key] = alert
        if open_alert is None and publish_now:
            self._publish_raised(alert)
        self._make_due()

    def _make_due(self) -> None:
        self._due_at = self._clock.now()
        self._wake_thread()

    # Methods of RenewalTask

    def due_at(self) -> float:
        return self._due_at

    def next_expiry(self) -> float:
        """Return when the next alert is due by the clock alone, as the database may be unavailable."""
        return min((at for _, _, at in self._upcoming()), default=math.inf)

    def expire(self) -> None:
        now = self._clock.now()
        for kind, lease, at in list(self._upcoming()):
            if at <= now:
                self._raise(kind, subject_of(lease), _message(kind, lease, now), lease.token)

    def connection_lost(self) -> None:
        """Do nothing: alerts are rows and do not depend on a connection."""

    async def renew(self, connection: PgConnection) -> None:
        now = self._clock.now()
        with self._lock:
            # Retry time, in case this write fails.
            self._due_at = retry_at = now + self._pause
            self._pause = min(self._pause * 2, RECHECK_SECONDS)
            open_alerts = sorted(self._open.values(), key=lambda alert: alert.key)
        unwritten = [alert for alert in open_alerts if not alert.is_written]
        cleared = [alert for alert in open_alerts if alert.is_cleared]
        opened, resolved, closed = await self._write(connection, open_alerts, unwritten, cleared)
        new_keys = {(row.kind, row.subject) for row in opened if row.is_new}
        ended = {(row.kind, row.subject): row.by_this_call for row in (*resolved, *closed)}
        for alert in unwritten:
            alert.is_written = True
            if alert.key in new_keys and not alert.is_published:
                alert.is_published = True
                self._publish_raised(alert)
        for key, by_this_call in ended.items():
            self._close(key, open_alerts, by_this_call)
        self._plan_next_check(now, retry_at)

    def _plan_next_check(self, now: float, retry_at: float) -> None:
        with self._lock:
            self._checked_at, self._pause = now, RETRY_SECONDS
            if self._due_at != retry_at:
                return  # another check was requested meanwhile
            if any(alert.is_cleared or not alert.is_written for alert in self._open.values()):
                self._due_at = now
            else:
                self._due_at = now + RECHECK_SECONDS if self._open else math.inf

    async def _write(
        self,
        connection: PgConnection,
        open_alerts: list[RaisedAlert],
        unwritten: list[RaisedAlert],
        cleared: list[RaisedAlert],
    ) -> tuple[list[alerts.OpenedAlert], list[alerts.ClosedAlert], list[alerts.ClosedAlert]]:
        opening = [(each.kind, each.subject, each.message, each.token) for each in unwritten]
        closing = [(each.kind, each.subject, each.token) for each in cleared]
        first = [[alerts.raise_alerts(opening, self._identity.host, self._identity.pid)]]
        last = [[alerts.clear_alerts(closing)]]
        segments: list[list[Query[Any]]] = [
            *(first if opening else []),
            [alerts.clear_resolved([alert.key for alert in open_alerts])],
            *(last if closing else []),
        ]
        answers = [rows for [rows] in await pipeline(connection, segments, self._schema)]
        opened = answers.pop(0) if opening else []
        return opened, answers[0], answers[1] if closing else []

    def _close(self, key: AlertKey, open_alerts: list[RaisedAlert], by_this_call: bool) -> None:
        with self._lock:
            alert = self._open.get(key)
            if alert is not None and not any(alert is each for each in open_alerts):
                return  # raised again meanwhile
            self._open.pop(key, None)
            if alert is not None and alert.token in self._leases and not alert.is_cleared:
                # Cleared by another instance that took the lock, or by an operator: do not raise it again
                # for this token.
                self._suppressed.add((alert.kind, alert.token))
        if by_this_call or (alert is not None and alert.is_published):
            kind, subject = key
            log.info("alert cleared: %s: %s", kind, subject)
            self._publish(AlertCleared(kind, subject))

    def _publish_raised(self, alert: RaisedAlert) -> None:
        log.warning("alert: %s: %s", alert.kind, alert.message)
        self._publish(AlertRaised(alert.kind, alert.subject, alert.message))

    def _upcoming(self) -> Iterator[tuple[str, Lease, float]]:
        """Yield kind, lease and time of each alert that will be raised unless the lease changes first."""
        for lease in self._watched_leases():
            if lease.max_held is not None and not self._is_reported(HELD_TOO_LONG, lease):
                yield HELD_TOO_LONG, lease, lease.acquired_at + lease.max_held
            if not self._is_reported(RENEWALS_FAIL, lease):
                yield RENEWALS_FAIL, lease, lease.overdue_at

    def _is_reported(self, kind: str, lease: Lease) -> bool:
        alert = self._open.get((kind, subject_of(lease)))
        if alert is not None and alert.token == lease.token and not alert.is_cleared:
            return True
        if not self._rules.is_enabled(kind):
            return True  # treated as reported, so that it is never raised
        return (kind, lease.token) in self._suppressed

    def _watched_leases(self) -> list[Lease]:
        return list(self._leases.values())

    def _open_alerts(self) -> list[RaisedAlert]:
        return list(self._open.values())


def subject_of(lease: Lease) -> str:
    """Return the name of the lock or permit, as shown to operators and stored in the database."""
    return f"{lease.name} permit {lease.permit}" if lease.permit else lease.name


def _title(lease: Lease) -> str:
    title = f"permit {lease.permit} of {lease.name!r}" if lease.permit else f"lock {lease.name!r}"
    return f"{title} (token {lease.token})"


def _message(kind: str, lease: Lease, now: float) -> str:
    if kind == HELD_TOO_LONG:
        return (
            f"{_title(lease)} is held for longer than the {lease.max_held:g} s that were declared"
        )
    remaining = max(lease.trusted_until - now, 0.0)
    unrenewed_seconds = now - lease.sent_at
    return (
        f"{_title(lease)} was not renewed for {unrenewed_seconds:.1f} s and runs out in "
        f"{remaining:.1f} s"
    )
