"""The part of a keeper that stands for election, and looks after the terms it has won.

A term is held in one of two ways, and both keep each other away:

- on a connection of our own, by a seat: an advisory lock of the session. The server lets go of it the
  moment the process is gone, and ends the session itself once it has heard nothing for as long as the lease
  says: the shortest one of all that are held, or stood for, there.
- through a pooler, where there is no such session, by a lease: a time in the row, moved on while it is
  ours.

Why no two lead at once: the server gives a term to somebody else no sooner than a lease after it heard
from us last, which is after we sent it. We trust a term for six tenths of a lease from when we sent the
last probe that was answered, by a clock that goes on while the machine sleeps. Whoever is frozen or cut
off has therefore stopped to lead, without being told, before anybody else begins.

A server that ends the session sooner than that (it was restarted, an operator ended it) is noticed as soon
as the connection closes. Until then, for no longer than the trust, two may believe to lead: what must be
done by one alone names its term (`rota.assert_term`).

What the session may have, and nobody leads under, is given up at the next turn: a seat that is kept for
nothing keeps all others away.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rota.coord import lease_clock
from rota.coord.alert_sources import CoordinationAlerts
from rota.coord.candidate import PROBE_SHARE, TRUSTED_SHARE, Candidate
from rota.coord.identity import InstanceIdentity
from rota.coord.renewal_thread import earliest
from rota.store import leaders, listeners
from rota.store.database import pipeline
from rota.store.query import Query, in_schema

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

T = TypeVar("T")

ELECTION_POLL_SECONDS = 1.0
"""Seconds between attempts to be elected, more or less."""

ELECTION_BATCH_SECONDS = 0.6
"""Seconds: those who would stand so soon stand along with one whose turn it is."""

ABSTAIN_SECONDS = 3.0
"""Seconds for which who has resigned leaves it to the others."""

MAX_RENEW_SECONDS = 5.0
MIN_RENEW_SECONDS = 1.0
RESIGN_RETRY_SECONDS = 0.2
"""Seconds: what a turn may take; what it may take at least, where nothing is at stake; between attempts to
say that one has left."""

STABLE_TERM_SECONDS = 60.0
"""Seconds after which a term is said to last."""

NOT_CONFIRMED = "it could not be confirmed in time"
TERM_ENDED = "the database says that it is over"
CONNECTION_LOST = "the connection that held it was lost"


@dataclass(slots=True, eq=False)
class PendingResignation:
    """A term that is over here, and the others do not know it yet."""

    name: str
    term: int
    has_session_lock: bool
    expires_at: float
    """By then they will have found out."""
    on_resigned: Callable[[], None]
    due_at: float = 0.0


class Elector:
    def __init__(
        self, identity: InstanceIdentity, schema: str, alerts: CoordinationAlerts, *, notify: bool
    ) -> None:
        self._identity = identity
        self._schema = schema
        self._alerts = alerts
        self._notify = notify
        # Put in place as a whole, for it is read in one thread and changed in another.
        self._candidates: tuple[Candidate, ...] = ()
        self._resignations: list[PendingResignation] = []
        self._session_locks: set[int] = set()
        """What the session has, or may have."""
        self._idle_timeout: float | None = None
        """Seconds of silence after which the server ends the session."""
        self._pooler_logged = False

    # In the loop of whoever wants to lead

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
        """Lead no more from this moment; `said` is called when the others know, in any thread. False: it
        did not lead, or not in this term."""
        current_term = candidate.term
        if current_term is None or term not in (None, current_term):
            return False
        return self._end_term(
            candidate, current_term, reason, ABSTAIN_SECONDS * random.uniform(0.7, 1.3), on_resigned
        )

    def remove_candidate(
        self, candidate: Candidate, on_resigned: Callable[[], None], reason: str = ""
    ) -> bool:
        """The same for good: it does not stand any more."""
        candidate.withdraw()
        # It is there until it leads no more: the seat of one that is not there is given up.
        has_resigned = self.resign(candidate, on_resigned, reason=reason)
        self._candidates = tuple(each for each in self._candidates if each is not candidate)
        return has_resigned

    def close(
        self, reason: str, on_resigned: Callable[[], None], *, except_services: bool = False
    ) -> bool:
        """Nobody stands any more; with `but_services`, nobody but those who run services, which pass on
        what they do when it is done. False: nobody led, so there is nothing to be said."""
        staying = [
            each for each in self._candidates if except_services and each.yield_delay is not None
        ]
        leaving = [each for each in self._candidates if each not in staying]
        for each in leaving:
            each.withdraw()
        leading = [each for each in leaving if each.term is not None]
        for each in leading[:-1]:
            self.resign(each, lambda: None, reason=reason)
        # Who left last is heard last.
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
        expires_at = lease_clock.now() + candidate.lease
        self._resignations.append(
            PendingResignation(candidate.name, term, has_session_lock, expires_at, on_resigned)
        )
        return True

    # As a part of the keeper

    @property
    def timeout(self) -> float:
        leases = [each.lease for each in self._candidates]
        leading = self._leading()
        if any(each.has_session_lock for each in leading):
            # Hanging up is losing: there is no sooner reason for it than that it is lost.
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
        now = lease_clock.now()
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
                self._finish_resignation(resignation)  # the seat is free without a word

    async def renew(self, connection: PgConnection) -> None:
        if connection.pooled:
            self._log_pooler_once()
        else:
            await self._set_idle_timeout(connection)
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
        await self._fetch(connection, leaders.set_idle_timeout(idle_timeout))
        self._idle_timeout = idle_timeout

    async def _confirm_terms(self, connection: PgConnection) -> None:
        now = lease_clock.now()
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
                # Asked again soon if this comes to nothing.
                each.due_at = now + each.lease * PROBE_SHARE / 2
            answers = await self._fetch(
                connection,
                self._confirm_query(list(held.values()), has_session_lock=has_session_lock),
            )
            for answer in answers:
                each, term = held[answer.name]
                if answer.is_current:
                    self._on_confirmed(each, term, now)
                elif answer.is_current is None:
                    log.debug("the row of leader %r is locked by somebody", each.name)
                else:
                    self._lose_term(each, term, TERM_ENDED)

    def _confirm_query(
        self, held: list[tuple[Candidate, int | None]], *, has_session_lock: bool
    ) -> Query[leaders.LeadershipProbe]:
        instance = self._identity.instance
        names = [each.name for each, _ in held]
        terms = [term or 0 for _, term in held]
        if has_session_lock:
            return leaders.probe(instance, names, [each.session_lock for each, _ in held], terms)
        return leaders.renew(instance, names, terms, [each.lease for each, _ in held])

    def _on_confirmed(self, candidate: Candidate, term: int | None, sent_at: float) -> None:
        lease = self._lease_seconds(candidate, has_session_lock=candidate.has_session_lock)
        if term is not None and candidate.confirm_term(term, sent_at, lease):
            if sent_at - candidate.elected_at > STABLE_TERM_SECONDS:
                self._alerts.on_elections(candidate.name, 0)
        else:
            self._lose_term(candidate, term, NOT_CONFIRMED)

    def _lease_seconds(self, candidate: Candidate, *, has_session_lock: bool) -> float:
        """Seconds for which the server gives the name to nobody else."""
        if has_session_lock and self._idle_timeout is not None:
            return min(candidate.lease, self._idle_timeout)
        return candidate.lease

    async def _send_resignations(self, connection: PgConnection) -> None:
        """Give up what is not led under, first in the table, then in the session, then aloud."""
        now = lease_clock.now()
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
        now = lease_clock.now()
        led_names = {each.name for each in self._leading()}
        due: dict[str, Candidate] = {}
        candidates = [
            each for each in self._candidates if each.term is None and not each.is_abstaining()
        ]
        if any(each.due_at <= now for each in candidates):
            # One for all: the soonest of many would always be the same.
            pause = ELECTION_POLL_SECONDS * random.uniform(0.7, 1.3)
            for each in candidates:
                if each.due_at <= now + ELECTION_BATCH_SECONDS:
                    each.due_at = now + pause
                    if each.name not in led_names:  # of several here, one at a time
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
        """Take the seats that are free. A session that has one would get it again, and have it twice."""
        missing = {each.session_lock for each in candidates} - self._session_locks
        self._session_locks |= missing
        if missing:
            taken = await self._fetch(connection, leaders.lock_session(sorted(missing)))
            self._session_locks -= missing - set(taken)
        return [each for each in candidates if each.session_lock in self._session_locks]

    async def _find_vacant(
        self, connection: PgConnection, candidates: list[Candidate]
    ) -> list[Candidate]:
        names, session_locks = (
            [each.name for each in candidates],
            [each.session_lock for each in candidates],
        )
        vacant = set(await self._fetch(connection, leaders.vacant_names(names, session_locks)))
        return [each for each in candidates if each.name in vacant]

    async def _without_yielding(
        self, connection: PgConnection, due: dict[str, Candidate]
    ) -> dict[str, Candidate]:
        """Those who stand now. Who would rather not waits until it has seen for itself that nobody else
        does."""
        may_yield = [each for each in due.values() if each.yield_delay is not None]
        if not may_yield:
            return due
        now = lease_clock.now()
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
        sent_at = lease_clock.now()
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

    async def _fetch(self, connection: PgConnection, query: Query[T]) -> list[T]:
        [[rows]] = await pipeline(connection, [[query]], self._schema)
        return rows

    def _lose_term(self, candidate: Candidate, term: int | None, reason: str) -> None:
        if term is not None and self._end_term(candidate, term, reason):
            log.warning("no longer leads %r (term %s): %s", candidate.name, term, reason)

    def _leading(self) -> list[Candidate]:
        return [each for each in self._candidates if each.term is not None]

    def _log_pooler_once(self) -> None:
        if not self._pooler_logged:
            self._pooler_logged = True
            log.info(
                "a pooler is in between, so who leads holds a lease, and one that dies is missed when "
                "it has run out; set ROTA_DIRECT_URL to a way past the pooler to have it missed at once"
            )
