"""When to look for jobs, how many to ask for, and what the answer says about the next look.

Jobs that were lost with a worker are taken into claims of their own, as many as can start; one that has to
run alone, by itself, and while it does nothing else is taken.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from rota.engine.desk import Desk
from rota.model.floors import Floors, Look
from rota.model.pace import Pace
from rota.model.settings import Settings
from rota.model.task import Definition
from rota.store import jobs, timers, workers
from rota.store.arrays import of_texts
from rota.store.jobs import Claimed
from rota.store.query import Query

PUT_AWAY_AFTER = 1.0
"""Seconds a job may wait here for a place before it is given back."""

WAKE_AT_ONCE = 1000
"""Sleeping jobs woken in one statement."""


@dataclass(slots=True)
class Claim:
    """A claim about to be made, or under way."""

    look: Look
    limit: int
    timers: bool
    patient: bool
    suspects: int
    """So many may come."""
    news: int
    losses: int
    """How often there had been news when it was planned."""
    nonce: UUID = field(default_factory=uuid4)
    other: UUID = field(default_factory=uuid4)
    """The nonce of the suspects' claims."""


class Intake:
    def __init__(
        self,
        settings: Settings,
        worker: int,
        desk: Desk,
        tasks: Mapping[str, Definition],
        queues: Sequence[str],
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._desk = desk
        patient = [name for name, task in tasks.items() if task.policy.patient]
        # As literals, since they go with every claim; many are not sent but listed, once.
        few = len(tasks) <= workers.FEW
        self._tasks = of_texts(tasks if few else ())
        self._patient = of_texts(patient if few else ())
        self._some_impatient = len(patient) < len(tasks)
        self._none_patient = not patient
        self._queues = list(queues)
        self._floors = Floors(queues)
        self._pace = Pace(desk.capacity, settings.prefetch)
        self.on_schedule: Callable[[float | None], None] = lambda due: None
        self._open = True
        self._more = True  # whether a look from the floors on may find something
        self._suspects = True  # whether there may be a suspect
        self._news = 0
        self._losses = 0
        self._poll_at = 0.0
        self._timers_at = 0.0

    # What others say

    def look_again(self) -> None:
        """There is news: also below the floors."""
        self._news += 1
        self._more = True
        self._floors.suspect()

    def look_for_suspects(self) -> None:
        """There is news of jobs that were lost with a worker."""
        self._losses += 1
        self._suspects = True

    def more(self) -> None:
        """There is something new above the floors."""
        self._more = True

    def close(self) -> None:
        """Take nothing more."""
        self._open = False

    def due_in(self, seconds: float) -> None:
        """Something will be due in so many seconds."""
        self._timers_at = min(self._timers_at, time.monotonic() + seconds)

    # Asking

    def plan(self, now: float) -> Claim | None:
        """The next claim, if one is worth it. There is one under way at a time."""
        if not self._open or self._desk.reserved:
            return None
        timers_due = now >= self._timers_at
        full_at = self._floors.full_at
        # Below the floors there may be more even when above them there is nothing left.
        full_due = full_at is not None and now >= full_at
        poll_due = now >= self._poll_at
        places = self._desk.capacity - self._desk.running - self._desk.backlog
        suspects = (self._suspects or poll_due) and places > 0
        if self._suspects and suspects:
            # By themselves: if one has to run alone, nothing else should have come with it.
            return self._claim(self._floors.look(now), 0, timers_due or poll_due, False, places)
        if not (self._more or full_due or timers_due or poll_due or suspects):
            return None
        ahead = self._pace.ahead
        if self._desk.backlog > ahead // 2:
            return None
        patient = False
        if self._some_impatient and ahead:
            # A job that is not simply tried again is claimed when it can start, not before: of one that
            # waits here when the worker dies nobody could say whether it had begun.
            if places > 0:
                ahead = 0
            else:
                patient = True
        limit = min(places + ahead, self._settings.batch)
        if limit < 1 or (patient and self._none_patient):
            return None
        # A poll looks at the timers too: an idle worker asks once, not twice.
        return self._claim(
            self._floors.look(now),
            limit,
            timers_due or poll_due,
            patient,
            places if suspects else 0,
        )

    def _claim(self, look: Look, limit: int, timers: bool, patient: bool, suspects: int) -> Claim:
        return Claim(look, limit, timers, patient, suspects, self._news, self._losses)

    def transaction(self, claim: Claim) -> list[Query[Any]]:
        """The statements that make a claim."""
        look = claim.look
        # Timers first, in the claim's transaction: what has just become due is claimed with it.
        wake: list[Query[Any]] = [timers.wake(WAKE_AT_ONCE)] if claim.timers else []
        if claim.timers:
            self._timers_at = time.monotonic() + 2 * self._settings.poll
        statements = wake
        if claim.suspects:
            statements.append(
                jobs.claim_suspects(
                    self._worker,
                    claim.other,
                    self._tasks,
                    self._queues,
                    claim.suspects,
                    grave=True,
                )
            )
        if claim.limit:
            statements.append(
                jobs.claim(
                    self._worker,
                    claim.nonce,
                    self._patient if claim.patient else self._tasks,
                    look.queues,
                    look.lanes,
                    look.floors,
                    claim.limit,
                    patient=claim.patient,
                )
            )
        return statements

    # Answers

    def read(self, claim: Claim, answers: list[list[Any]], took: float) -> list[Claimed]:
        """The jobs a claim brought."""
        now = time.monotonic()
        alone: list[Claimed] = answers[1 if claim.timers else 0] if claim.suspects else []
        if claim.suspects:
            # What was said while it was on its way may be newer than what it saw.
            self._suspects = bool(alone) or self._losses != claim.losses
        if not claim.limit:
            return alone
        found: list[Claimed] = answers[-1]
        self._pace.answered(self._desk.idle, took, full=len(found) == claim.limit)
        self._more = self._floors.learn(claim.look, found, claim.limit, took, now)
        if self._news != claim.news:
            self._more = True
            self._floors.suspect()
        self._poll_at = now + self._settings.poll * random.uniform(0.8, 1.2)
        return [*alone, *found]

    def woken(self, claim: Claim, answers: list[list[Any]]) -> list[str]:
        """The queues that a claim has woken sleeping jobs of."""
        if not claim.timers:
            return []
        [woken] = answers[0]
        # What others lay to sleep meanwhile is seen by the polls, which come about as often.
        rest = 2 * self._settings.poll if woken.next is None else woken.next
        rest = min(rest, 2 * self._settings.poll)
        self._timers_at = time.monotonic() + (0 if woken.count == WAKE_AT_ONCE else rest)
        self.on_schedule(woken.schedule)
        if woken.count:
            self._more = True
        queues: list[str] = woken.queues
        return queues

    def tidy(self) -> None:
        """Give up what has waited here for too long."""
        if self._desk.backlog:
            self._pace.waited(self._desk.waited)
            self._desk.put_away(PUT_AWAY_AFTER)

    def rest(self, now: float) -> float | None:
        """Seconds until there is something to do; None: not before somebody says so."""
        if not self._open:
            return None
        until = [self._poll_at, self._timers_at]
        if self._floors.full_at is not None:
            until.append(self._floors.full_at)
        if self._desk.backlog:
            until.append(now + PUT_AWAY_AFTER / 4)
        room = self._desk.running + self._desk.backlog < self._desk.capacity
        if not room:
            # Nothing to do until a job ends, which wakes us; the backlog is looked after meanwhile.
            return PUT_AWAY_AFTER / 4 if self._desk.backlog else None
        return max(min(until) - now, 0.001)
