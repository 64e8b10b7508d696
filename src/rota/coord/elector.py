"""Renewal task that seeks election and confirms the terms it has won.

A term is held in one of two ways, and each excludes the other:

- On a direct connection, by a session lock: a session-level advisory lock. The server releases it when the
  process ends. The server also ends a session that has sent no statement for the shortest lease of
  its candidates.
- Through a pooler, which has no such sessions, by a lease: an expiry time in the row that is renewed.

Two instances do not lead at once: the server elects another instance at the earliest one lease after it
received the leader's last statement. The leader counts from an earlier moment: it trusts its term for six
tenths of a lease after it sent the last probe that was answered, by a clock that advances while the
machine is suspended. So a leader that is frozen or cut off has stopped
leading, without any message, before another instance begins.

If the server ends the session before that timeout (a restart, an operator), the leader notices it as soon
as the connection closes. Until then, at most for the trusted time, two instances may both believe that
they lead. Work that only one instance may do must assert its term (`rota.assert_term`).

A session lock without a term is released in the next call of `renew` at the latest, because it keeps all
other instances from being elected.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from rota.coord.alert_sources import CoordinationAlerts
from rota.coord.candidate import PROBE_SHARE, TRUSTED_SHARE, Candidate
from rota.coord.lease import InstanceIdentity, LeaseClock
from rota.coord.renewal_thread import earliest
from rota.store import leaders, listeners
from rota.store.database import pipeline
from rota.store.query import Query, in_schema

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

T = TypeVar("T")

ELECTION_POLL_SECONDS = 1.0
"""Seconds between attempts to be elected, before jitter."""

ELECTION_BATCH_SECONDS = 0.6
"""Candidates that are due within this many seconds seek election together with one that is due now."""

ABSTAIN_SECONDS = 3.0
"""Seconds for which a candidate that has resigned does not seek election, before jitter."""

MAX_RENEW_SECONDS = 5.0
"""Upper bound of the time limit of a turn."""

MIN_RENEW_SECONDS = 1.0
"""Lower bound of that limit while this instance leads nothing."""

RESIGN_RETRY_SECONDS = 0.2
"""Pause between attempts to send a resignation."""

STABLE_TERM_SECONDS = 60.0
"""Seconds after which a term counts as stable."""

NOT_CONFIRMED = "it could not be confirmed in time"
TERM_ENDED = "the database reports that it has ended"
CONNECTION_LOST = "the connection that held it was lost"


@dataclass(slots=True, eq=False)
class PendingResignation:
    """A term that has ended on this instance, but not yet in the database."""

    name: str
    term: int
    has_session_lock: bool
    expires_at: float
    """Time at which the term expires without the resignation."""
    on_resigned: Callable[[], None]
    due_at: float = 0.0


class Elector:
    def __init__(
        self,
        identity: InstanceIdentity,
        schema: str,
        alerts: CoordinationAlerts,
        clock: LeaseClock,
        *,
        notify: bool,
    ) -> None:
        self._clock = clock
        self._identity = identity
        self._schema = schema
        self._alerts = alerts
        self._notify = notify
        # Replaced as a whole, because one thread reads it while another changes it.
        self._candidates: tuple[Candidate, ...] = ()
        self._resignations: list[PendingResignation] = []
        self._session_locks: set[int] = set()
        """Session locks that the session holds or may hold."""
        self._idle_timeout: float | None = None
        """Seconds of silence after which the server ends the session."""
        self._pooler_logged = False

    # Called in the event loop of the candidate (`_end_term` also in the election thread)

    def add_candidate(self, candidate: Candidate) -> None:
        self._candidates = (*self._candidates, candidate)

    def resign(
        self,
        candidate: Candidate,
        on_resigned: Callable[[], None],
        *,
        term: int | None = None,
        reason: str = "",
    ) -> bool:
        """Stop leading at once.

        `on_resigned` is called, in any thread, when the database has recorded it or the lease has
        expired. Return False if the candidate did not lead, or not in `term`.
        """
        current_term = candidate.term
        if current_term is None or term not in (None, current_term):
            return False
        return self._end_term(
            candidate, current_term, reason, ABSTAIN_SECONDS * random.uniform(0.7, 1.3), on_resigned
        )

    def remove_candidate(
        self, candidate: Candidate, on_resigned: Callable[[], None], reason: str = ""
    ) -> bool:
        """Withdraw the candidate for good, and resign its term as `resign` does."""
        candidate.withdraw()
        # Removed after it resigned: the session lock of a candidate that is not listed is released.
        has_resigned = self.resign(candidate, on_resigned, reason=reason)
        self._candidates = tuple(each for each in self._candidates if each is not candidate)
        return has_resigned

    def close(
        self, reason: str, on_resigned: Callable[[], None], *, except_services: bool = False
    ) -> bool:
        """Withdraw all candidates; with `except_services`, all but those of services.

        Services hand over when their iteration ends. Return False if none of the withdrawn candidates led,
        so that there is nothing to send.
        """
        staying = [
            each for each in self._candidates if except_services and each.yield_delay is not None
        ]
        leaving = [each for each in self._candidates if each not in staying]
        for each in leaving:
            each.withdraw()
        leading = [each for each in leaving if each.term is not None]
        for each in leading[:-1]:
            self.resign(each, lambda: None, reason=reason)
        # Resignations are sent in order, so the callback of the last one is called last.
        has_resigned = bool(leading) and self.resign(leading[-1], on_resigned, reason=reason)
        self._candidates = tuple(staying)
        return has_resigned

    def _end_term(
        self,
        candidate: Candidate,
        term: int,
        reason: str,
        abstain_seconds: float = 0.0,
        on_resigned: Callable[[], None] = lambda: None,
    ) -> bool:
        has_session_lock = candidate.has_session_lock
        if not candidate.end_term(term, reason, abstain_seconds):
            return False
        expires_at = self._clock.now() + candidate.lease
        self._resignations.append(
            PendingResignation(candidate.name, term, has_session_lock, expires_at, on_resigned)
        )
        return True

    # Methods of RenewalTask

    @property
    def timeout(self) -> float:
        leases = [each.lease for each in self._candidates]
        leading = self._leading()
        if any(each.has_session_lock for each in leading):
            # A timeout closes the connection and loses the term, so allow all the time from the due probe
            # to the end of the trust.
            seconds = earliest(leases) * (TRUSTED_SHARE - PROBE_SHARE)
        elif leading:
            seconds = earliest(leases) / 4
        else:
            seconds = max(earliest(leases) / 4, MIN_RENEW_SECONDS)
        return min(MAX_RENEW_SECONDS, seconds)

    def due_at(self) -> float:
        resign_at = earliest(each.due_at for each in list(self._resignations))
        return min(resign_at, earliest(each.due_at for each in self._candidates))

    def next_expiry(self) -> float:
        return earliest(each.trusted_until for each in self._leading())

    def expire(self) -> None:
        now = self._clock.now()
        for each in self._leading():
            if each.trusted_until <= now:
                self._lose_term(each, each.term, NOT_CONFIRMED)

    def connection_lost(self) -> None:
        for each in self._leading():
            if (
                each.has_session_lock
                and each.term is not None
                and each.end_term(each.term, CONNECTION_LOST)
            ):
                log.warning("no longer leads %r: %s", each.name, CONNECTION_LOST)
        self._idle_timeout = None
        self._session_locks.clear()
        for resignation in list(self._resignations):
            if resignation.has_session_lock:
                self._finish_resignation(resignation)  # the server has released the session lock

    async def renew(self, connection: PgConnection) -> None:
        if not connection.pooled:
            await self._set_idle_timeout(connection)
        elif not self._pooler_logged:
            self._pooler_logged = True
            log.info(
                "connected through a pooler: a leader holds a lease, and its death is detected only when "
                "the lease expires; set ROTA_DIRECT_URL to bypass the pooler and detect it at once"
            )
        await self._confirm_terms(connection)
        await self._send_resignations(connection)
        await self._seek_election(connection)
        await self._send_resignations(connection)

    async def _set_idle_timeout(self, connection: PgConnection) -> None:
        idle_timeout = earliest(each.lease for each in self._candidates)
        if math.isinf(idle_timeout) or idle_timeout == self._idle_timeout:
            return
        for each in self._leading():
            if each.has_session_lock:
                each.shorten_trust(idle_timeout)
        await _fetch(connection, self._schema, leaders.set_idle_timeout(idle_timeout))
        self._idle_timeout = idle_timeout

    async def _confirm_terms(self, connection: PgConnection) -> None:
        now = self._clock.now()
        if not any(each.due_at <= now for each in self._leading()):
            return
        for has_session_lock in (True, False):
            held = {
                each.name: (each, each.term)
                for each in self._leading()
                if each.has_session_lock is has_session_lock
            }
            if not held:
                continue
            for each, _ in held.values():
                # Retry soon if this fails.
                each.due_at = now + each.lease * PROBE_SHARE / 2
            query = _confirm_query(
                self._identity.instance, list(held.values()), has_session_lock=has_session_lock
            )
            answers = await _fetch(connection, self._schema, query)
            for answer in answers:
                each, term = held[answer.name]
                if answer.is_current:
                    self._on_confirmed(each, term, now)
                elif answer.is_current is None:
                    log.debug(
                        "the row of leader %r is locked by another transaction; retrying", each.name
                    )
                else:
                    self._lose_term(each, term, TERM_ENDED)

    def _on_confirmed(self, candidate: Candidate, term: int | None, sent_at: float) -> None:
        lease = self._lease_seconds(candidate, has_session_lock=candidate.has_session_lock)
        if term is not None and candidate.confirm_term(term, sent_at, lease):
            if sent_at - candidate.elected_at > STABLE_TERM_SECONDS:
                self._alerts.on_elections(candidate.name, 0)
        else:
            self._lose_term(candidate, term, NOT_CONFIRMED)

    def _lease_seconds(self, candidate: Candidate, *, has_session_lock: bool) -> float:
        """Return the seconds for which the server elects no other instance."""
        if has_session_lock and self._idle_timeout is not None:
            return min(candidate.lease, self._idle_timeout)
        return candidate.lease

    async def _send_resignations(self, connection: PgConnection) -> None:
        """Send pending resignations and release session locks without a term.

        Rows are written first, then locks released, then waiting instances notified.
        """
        now = self._clock.now()
        for each in list(self._resignations):
            if each.expires_at <= now:
                self._finish_resignation(each)
        resignations = [each for each in list(self._resignations) if each.due_at <= now]
        unused_locks = self._session_locks - {
            each.session_lock for each in self._leading() if each.has_session_lock
        }
        if not resignations and not unused_locks:
            return
        for each in resignations:
            each.due_at = now + RESIGN_RETRY_SECONDS
        instance = self._identity.instance
        segments: list[list[Query[Any]]] = [
            [leaders.resign(instance, each.name, each.term)] for each in resignations
        ]
        if unused_locks:
            segments.append([leaders.unlock_session(sorted(unused_locks))])
        if resignations and self._notify:
            channel = in_schema(leaders.RESIGNED_CHANNEL, self._schema)
            segments.append([listeners.notify(channel, [each.name for each in resignations])])
        await pipeline(connection, segments, self._schema)
        self._session_locks -= unused_locks
        for each in resignations:
            self._finish_resignation(each)

    def _finish_resignation(self, resignation: PendingResignation) -> None:
        self._resignations.remove(resignation)
        resignation.on_resigned()

    async def _seek_election(self, connection: PgConnection) -> None:
        now = self._clock.now()
        led_names = {each.name for each in self._leading()}
        due: dict[str, Candidate] = {}
        candidates = [
            each for each in self._candidates if each.term is None and not each.is_abstaining()
        ]
        if any(each.due_at <= now for each in candidates):
            # One pause for all candidates: the smallest of many random pauses would be nearly the same on
            # every instance, so that all would seek election at the same moment.
            pause = ELECTION_POLL_SECONDS * random.uniform(0.7, 1.3)
            for each in candidates:
                if each.due_at <= now + ELECTION_BATCH_SECONDS:
                    each.due_at = now + pause
                    # Of several candidates for one name, only one seeks election at a time.
                    if each.name not in led_names:
                        due.setdefault(each.name, each)
        if due:
            due = await self._without_yielding(connection, due)
        if due:
            has_session_lock = not connection.pooled
            find_eligible = self._take_session_locks if has_session_lock else self._find_vacant
            await self._elect(
                connection,
                await find_eligible(connection, list(due.values())),
                has_session_lock=has_session_lock,
            )

    async def _take_session_locks(
        self, connection: PgConnection, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Take the free session locks, and return the candidates that have theirs.

        A lock that the session already holds is not taken again: the session would hold it twice.
        """
        missing = {each.session_lock for each in candidates} - self._session_locks
        self._session_locks |= missing
        if missing:
            taken = await _fetch(connection, self._schema, leaders.lock_session(sorted(missing)))
            self._session_locks -= missing - set(taken)
        return [each for each in candidates if each.session_lock in self._session_locks]

    async def _find_vacant(
        self, connection: PgConnection, candidates: list[Candidate]
    ) -> list[Candidate]:
        names, session_locks = (
            [each.name for each in candidates],
            [each.session_lock for each in candidates],
        )
        vacant = set(
            await _fetch(connection, self._schema, leaders.vacant_names(names, session_locks))
        )
        return [each for each in candidates if each.name in vacant]

    async def _without_yielding(
        self, connection: PgConnection, due: dict[str, Candidate]
    ) -> dict[str, Candidate]:
        """Return the candidates that seek election now.

        A candidate with a yield delay waits until the name was vacant for that long.
        """
        may_yield = [each for each in due.values() if each.yield_delay is not None]
        if not may_yield:
            return due
        now = self._clock.now()
        vacant = [each.name for each in await self._find_vacant(connection, may_yield)]
        for each in may_yield:
            if each.name not in vacant:
                each.vacant_since = None
                del due[each.name]
                continue
            if each.vacant_since is None:
                each.vacant_since = now
            delay = 0.0 if each.yield_delay is None else each.yield_delay(vacant)
            if now < each.vacant_since + delay:
                each.due_at = min(each.due_at, each.vacant_since + delay)
                del due[each.name]
        return due

    async def _elect(
        self, connection: PgConnection, candidates: list[Candidate], *, has_session_lock: bool
    ) -> None:
        if not candidates:
            return
        segments = []
        for each in candidates:
            owner = self._identity.as_params(each.label)
            lease = None if has_session_lock else each.lease
            segments.append([leaders.elect(each.name, each.session_lock, owner, lease)])
        sent_at = self._clock.now()
        answers = await pipeline(connection, segments, self._schema)
        for each, [rows] in zip(candidates, answers, strict=True):
            for result in rows:
                lease = self._lease_seconds(each, has_session_lock=has_session_lock)
                if each.begin_term(result.term, sent_at, lease, has_session_lock=has_session_lock):
                    log.info("leads %r in term %s", each.name, result.term)
                    self._alerts.on_elections(each.name, result.elections_last_minute)
                else:
                    expires_at = sent_at + each.lease
                    self._resignations.append(
                        PendingResignation(
                            each.name, result.term, has_session_lock, expires_at, lambda: None
                        )
                    )

    def _lose_term(self, candidate: Candidate, term: int | None, reason: str) -> None:
        if term is not None and self._end_term(candidate, term, reason):
            log.warning("no longer leads %r (term %s): %s", candidate.name, term, reason)

    def _leading(self) -> list[Candidate]:
        return [each for each in self._candidates if each.term is not None]


async def _fetch(connection: PgConnection, schema: str, query: Query[T]) -> list[T]:
    [[rows]] = await pipeline(connection, [[query]], schema)
    return rows


def _confirm_query(
    instance: UUID, held: list[tuple[Candidate, int | None]], *, has_session_lock: bool
) -> Query[leaders.LeadershipProbe]:
    names = [each.name for each, _ in held]
    terms = [term or 0 for _, term in held]
    if has_session_lock:
        return leaders.probe(instance, names, [each.session_lock for each, _ in held], terms)
    return leaders.renew(instance, names, terms, [each.lease for each, _ in held])
