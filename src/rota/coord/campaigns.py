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

from rota.coord import trust
from rota.coord.alarms import Alarms
from rota.coord.candidate import PROBE, TRUST, Candidate
from rota.coord.identity import Identity
from rota.coord.keeper import soonest
from rota.store import leaders, waiters
from rota.store.database import exchange
from rota.store.query import Query, in_schema

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")

T = TypeVar("T")

CAMPAIGN = 1.0
"""Seconds between attempts to be elected, more or less."""

EARLY = 0.6
"""Seconds: those who would stand so soon stand along with one whose turn it is."""

ABSTAIN = 3.0
"""Seconds for which who has resigned leaves it to the others."""

LONGEST_TURN = 5.0
LEAST_PATIENCE = 1.0
AGAIN = 0.2
"""Seconds: what a turn may take; what it may take at least, where nothing is at stake; between attempts to
say that one has left."""

STEADY = 60.0
"""Seconds after which a term is said to last."""

RAN_OUT = "it could not be confirmed in time"
NOT_OURS = "the database says that it is over"
CUT = "the connection that held it was lost"


@dataclass(slots=True, eq=False)
class Departure:
    """A term that is over here, and the others do not know it yet."""

    name: str
    term: int
    seated: bool
    until: float
    """By then they will have found out."""
    said: Callable[[], None]
    due: float = 0.0


class Campaigns:
    def __init__(self, identity: Identity, schema: str, alarms: Alarms, *, notify: bool) -> None:
        self._identity = identity
        self._schema = schema
        self._alarms = alarms
        self._notify = notify
        # Put in place as a whole, for it is read in one thread and changed in another.
        self._candidates: tuple[Candidate, ...] = ()
        self._leaving: list[Departure] = []
        self._seats: set[int] = set()
        """What the session has, or may have."""
        self._limit: float | None = None
        """Seconds of silence after which the server ends the session."""
        self._told_of_a_pooler = False

    # In the loop of whoever wants to lead

    def stand(self, candidate: Candidate) -> None:
        self._candidates = (*self._candidates, candidate)

    def resign(
        self,
        candidate: Candidate,
        said: Callable[[], None],
        *,
        term: int | None = None,
        why: str = "",
    ) -> bool:
        """Lead no more from this moment; `said` is called when the others know, in any thread. False: it
        did not lead, or not in this term."""
        held = candidate.term
        if held is None or term not in (None, held):
            return False
        return self._leave(candidate, held, why, ABSTAIN * random.uniform(0.7, 1.3), said)

    def withdraw(self, candidate: Candidate, said: Callable[[], None], why: str = "") -> bool:
        """The same for good: it does not stand any more."""
        candidate.withdraw()
        # It is there until it leads no more: the seat of one that is not there is given up.
        left = self.resign(candidate, said, why=why)
        self._candidates = tuple(each for each in self._candidates if each is not candidate)
        return left

    def close(self, why: str, said: Callable[[], None], *, but_services: bool = False) -> bool:
        """Nobody stands any more; with `but_services`, nobody but those who run services, which pass on
        what they do when it is done. False: nobody led, so there is nothing to be said."""
        stay = [each for each in self._candidates if but_services and each.reluctance is not None]
        leave = [each for each in self._candidates if each not in stay]
        for each in leave:
            each.withdraw()
        led = [each for each in leave if each.term is not None]
        for each in led[:-1]:
            self.resign(each, lambda: None, why=why)
        # Who left last is heard last.
        left = bool(led) and self.resign(led[-1], said, why=why)
        self._candidates = tuple(stay)
        return left

    def _leave(
        self,
        candidate: Candidate,
        term: int,
        why: str,
        abstain: float = 0.0,
        said: Callable[[], None] = lambda: None,
    ) -> bool:
        seated = candidate.seated
        if not candidate.lose(term, why, abstain):
            return False
        until = trust.now() + candidate.lease
        self._leaving.append(Departure(candidate.name, term, seated, until, said))
        return True

    # As a part of the keeper

    @property
    def patience(self) -> float:
        leases = [each.lease for each in self._candidates]
        leading = self._leading()
        if any(each.seated for each in leading):
            # Hanging up is losing: there is no sooner reason for it than that it is lost.
            share = soonest(leases) * (TRUST - PROBE)
        elif leading:
            share = soonest(leases) / 4
        else:
            share = max(soonest(leases) / 4, LEAST_PATIENCE)
        return min(LONGEST_TURN, share)

    def due(self) -> float:
        leaving = soonest(each.due for each in list(self._leaving))
        return min(leaving, soonest(each.due for each in self._candidates))

    def ends(self) -> float:
        return soonest(each.until for each in self._leading())

    def expire(self) -> None:
        now = trust.now()
        for each in self._leading():
            if each.until <= now:
                self._give_up(each, each.term, RAN_OUT)

    def cut(self) -> None:
        for each in self._leading():
            if each.seated and each.term is not None and each.lose(each.term, CUT):
                log.warning("no longer leads %r: %s", each.name, CUT)
        self._limit = None
        self._seats.clear()
        for departure in list(self._leaving):
            if departure.seated:
                self._settle(departure)  # the seat is free without a word

    async def turn(self, connection: Session) -> None:
        if connection.pooled:
            self._say_that_there_is_a_pooler()
        else:
            await self._have_it_limited(connection)
        await self._confirm(connection)
        await self._say_who_leaves(connection)
        await self._campaign(connection)
        await self._say_who_leaves(connection)

    async def _have_it_limited(self, connection: Session) -> None:
        limit = soonest(each.lease for each in self._candidates)
        if math.isinf(limit) or limit == self._limit:
            return
        for each in self._leading():
            if each.seated:
                each.shorten(limit)
        await self._ask(connection, leaders.limit(limit))
        self._limit = limit

    async def _confirm(self, connection: Session) -> None:
        now = trust.now()
        if not any(each.due <= now for each in self._leading()):
            return
        for seated in (True, False):
            held = {
                each.name: (each, each.term) for each in self._leading() if each.seated is seated
            }
            if not held:
                continue
            for each, _ in held.values():
                # Asked again soon if this comes to nothing.
                each.due = now + each.lease * PROBE / 2
            answers = await self._ask(connection, self._still(list(held.values()), seated=seated))
            for answer in answers:
                each, term = held[answer.name]
                if answer.stands:
                    self._stands(each, term, now)
                elif answer.stands is None:
                    log.debug("the row of leader %r is locked by somebody", each.name)
                else:
                    self._give_up(each, term, NOT_OURS)

    def _still(
        self, held: list[tuple[Candidate, int | None]], *, seated: bool
    ) -> Query[leaders.Standing]:
        instance = self._identity.instance
        names = [each.name for each, _ in held]
        terms = [term or 0 for _, term in held]
        if seated:
            return leaders.probe(instance, names, [each.seat for each, _ in held], terms)
        return leaders.renew(instance, names, terms, [each.lease for each, _ in held])

    def _stands(self, candidate: Candidate, term: int | None, sent: float) -> None:
        lease = self._lease_of(candidate, seated=candidate.seated)
        if term is not None and candidate.confirmed(term, sent, lease):
            if sent - candidate.since > STEADY:
                self._alarms.flapping(candidate.name, 0)
        else:
            self._give_up(candidate, term, RAN_OUT)

    def _lease_of(self, candidate: Candidate, *, seated: bool) -> float:
        """Seconds for which the server gives the name to nobody else."""
        if seated and self._limit is not None:
            return min(candidate.lease, self._limit)
        return candidate.lease

    async def _say_who_leaves(self, connection: Session) -> None:
        """Give up what is not led under, first in the table, then in the session, then aloud."""
        now = trust.now()
        for each in list(self._leaving):
            if each.until <= now:
                self._settle(each)
        leaving = [each for each in list(self._leaving) if each.due <= now]
        empty = self._seats - {each.seat for each in self._leading() if each.seated}
        if not leaving and not empty:
            return
        for each in leaving:
            each.due = now + AGAIN
        instance = self._identity.instance
        segments: list[list[Query[Any]]] = [
            [leaders.resign(instance, each.name, each.term)] for each in leaving
        ]
        if empty:
            segments.append([leaders.rise(sorted(empty))])
        if leaving and self._notify:
            channel = in_schema(leaders.RESIGNED, self._schema)
            segments.append([waiters.notify(channel, [each.name for each in leaving])])
        await exchange(connection, segments, self._schema)
        self._seats -= empty
        for each in leaving:
            self._settle(each)

    def _settle(self, departure: Departure) -> None:
        self._leaving.remove(departure)
        departure.said()

    async def _campaign(self, connection: Session) -> None:
        now = trust.now()
        taken = {each.name for each in self._leading()}
        due: dict[str, Candidate] = {}
        standing = [each for each in self._candidates if each.term is None and not each.abstains()]
        if any(each.due <= now for each in standing):
            # One for all: the soonest of many would always be the same.
            rest = CAMPAIGN * random.uniform(0.7, 1.3)
            for each in standing:
                if each.due <= now + EARLY:
                    each.due = now + rest
                    if each.name not in taken:  # of several here, one at a time
                        due.setdefault(each.name, each)
        if due:
            due = await self._without_the_reluctant(connection, due)
        if due:
            seated = not connection.pooled
            able = self._sit if seated else self._see_who_may
            await self._elect(connection, await able(connection, list(due.values())), seated=seated)

    async def _sit(self, connection: Session, candidates: list[Candidate]) -> list[Candidate]:
        """Take the seats that are free. A session that has one would get it again, and have it twice."""
        wanted = {each.seat for each in candidates} - self._seats
        self._seats |= wanted
        if wanted:
            got = await self._ask(connection, leaders.sit(sorted(wanted)))
            self._seats -= wanted - set(got)
        return [each for each in candidates if each.seat in self._seats]

    async def _see_who_may(
        self, connection: Session, candidates: list[Candidate]
    ) -> list[Candidate]:
        names, seats = [each.name for each in candidates], [each.seat for each in candidates]
        vacant = set(await self._ask(connection, leaders.vacant(names, seats)))
        return [each for each in candidates if each.name in vacant]

    async def _without_the_reluctant(
        self, connection: Session, due: dict[str, Candidate]
    ) -> dict[str, Candidate]:
        """Those who stand now. Who would rather not waits until it has seen for itself that nobody else
        does."""
        asked = [each for each in due.values() if each.reluctance is not None]
        if not asked:
            return due
        now = trust.now()
        vacant = [each.name for each in await self._see_who_may(connection, asked)]
        for each in asked:
            if each.name not in vacant:
                each.vacant_since = None
                del due[each.name]
                continue
            if each.vacant_since is None:
                each.vacant_since = now
            rest = 0.0 if each.reluctance is None else each.reluctance(vacant)
            if now < each.vacant_since + rest:
                each.due = min(each.due, each.vacant_since + rest)
                del due[each.name]
        return due

    async def _elect(
        self, connection: Session, candidates: list[Candidate], *, seated: bool
    ) -> None:
        if not candidates:
            return
        segments = []
        for each in candidates:
            who = self._identity.under(each.label)
            lease = None if seated else each.lease
            segments.append([leaders.elect(each.name, each.seat, who, lease)])
        sent = trust.now()
        answers = await exchange(connection, segments, self._schema)
        for each, [rows] in zip(candidates, answers, strict=True):
            for won in rows:
                lease = self._lease_of(each, seated=seated)
                if each.won(won.term, sent, lease, seated=seated):
                    log.info("leads %r in term %s", each.name, won.term)
                    self._alarms.flapping(each.name, won.elections)
                else:
                    until = sent + each.lease
                    self._leaving.append(
                        Departure(each.name, won.term, seated, until, lambda: None)
                    )

    async def _ask(self, connection: Session, query: Query[T]) -> list[T]:
        [[rows]] = await exchange(connection, [[query]], self._schema)
        return rows

    def _give_up(self, candidate: Candidate, term: int | None, why: str) -> None:
        if term is not None and self._leave(candidate, term, why):
            log.warning("no longer leads %r (term %s): %s", candidate.name, term, why)

    def _leading(self) -> list[Candidate]:
        return [each for each in self._candidates if each.term is not None]

    def _say_that_there_is_a_pooler(self) -> None:
        if not self._told_of_a_pooler:
            self._told_of_a_pooler = True
            log.info(
                "a pooler is in between, so who leads holds a lease, and one that dies is missed when "
                "it has run out; set ROTA_DIRECT_URL to a way past the pooler to have it missed at once"
            )
