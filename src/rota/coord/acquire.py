"""Loop that acquires a lease held by another instance: it polls, and a release notifies it.

A waiting client sets a flag on the row; a release notifies only if the flag is set. The client also
polls, because a holder that dies sends no notification and a pooler delivers none.

Each attempt has its own nonce. An attempt without an answer may have acquired the lease. The next
attempt passes the nonces of the earlier ones, and a client that gives up has to release them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID, uuid4

from rota.coord.coordinator import Coordinator
from rota.coord.lease import trusted_seconds
from rota.errors import DatabaseUnavailable
from rota.poll import PollPauses
from rota.store import pg_errors
from rota.store.database import run
from rota.store.query import Query, in_schema

MAX_POLL_SECONDS = 0.5
NOTIFIED_POLL_SECONDS = 1.0
"""Seconds between polls: the longest pause, and the pause of a client that will be notified."""

EXPIRY_SLACK_SECONDS = 0.01
"""Seconds after the expiry of a lease at which the loop polls for it."""

MAX_LOST_RACES = 100
"""Consecutive lost races that are retried at once. After more, the contention lasts and the loop pauses."""

ANSWER_TIMEOUT_SECONDS = 5.0
"""Seconds that the database has to answer."""

MAX_LATE_ANSWERS = 3
"""Answers that may arrive after their lease is no longer trusted, before the loop gives up. One that was
late because the process was suspended is retried.
"""


class AnswerTooLate(DatabaseUnavailable):
    """The lease was acquired, but may have expired before the answer arrived."""


class AcquireAnswer(Protocol):
    @property
    def token(self) -> int | None:
        """Fencing token if this attempt acquired the lease, else None."""
        ...

    @property
    def is_done(self) -> bool:
        """True if there is nothing more to wait for."""
        ...

    @property
    def lost_race(self) -> bool:
        """True if another instance was slightly faster, so that a retry at once is worthwhile."""
        ...

    @property
    def wait_flag_set(self) -> bool:
        """True if the wait flag is set on every row, so that each holder notifies on release."""
        ...

    @property
    def expires_in(self) -> float | None:
        """Seconds until the first of the current leases expires."""
        ...


A = TypeVar("A", bound=AcquireAnswer)

QueryFactory = Callable[[UUID, Sequence[UUID], bool], Query[A]]
"""Builds the statement of one attempt from its nonce, the earlier nonces, and whether to set the wait flag.
"""


class AcquireLoop(Generic[A]):
    """Attempts to acquire one lease.

    A release notifies with `payload` on `channel`. An acquired lease lasts `ttl` seconds.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        channel: str,
        payload: str,
        ttl: float,
        build_query: QueryFactory[A],
    ) -> None:
        self._coordinator = coordinator
        self._channel = in_schema(channel, coordinator.database.schema)
        self._payload = payload
        self._ttl = ttl
        self._build_query = build_query
        self._clock = coordinator.clock
        self._settings = coordinator.database.settings
        self._outage_deadline = self._clock.now() + self._settings.outage_timeout
        self._late_answers = self._lost_races = 0
        self._unsubscribe: Callable[[], None] | None = None
        self.unconfirmed: list[UUID] = []
        """Nonces under which the lease was acquired, or may have been without an answer."""
        self.has_waited = False
        """True if the lease could not be acquired at once."""

    async def acquire(self, wait: float | None) -> tuple[float, A]:
        """Try until the lease is acquired or `wait` seconds have passed.

        Return the last answer, and the time at which its statement was sent, by the lease clock. If the
        answer is not `is_done`, the time is up.
        """
        pauses = PollPauses(
            self._clock,
            wait,
            max_seconds=MAX_POLL_SECONDS,
            notified_seconds=NOTIFIED_POLL_SECONDS,
            min_share=0.7,
        )
        try:
            while True:
                pauses.notified = False
                outcome, answer = await self._attempt_or_error(), None
                if isinstance(outcome, AnswerTooLate):
                    continue
                if not isinstance(outcome, Exception):
                    answer = outcome[1]
                    if answer.is_done:
                        return outcome
                if self._may_retry_at_once(answer):
                    continue
                self.has_waited = True
                if pauses.is_over:
                    if isinstance(outcome, Exception):
                        raise outcome
                    return outcome
                if not self._subscribe(pauses):
                    await self._pause(pauses, answer)
        finally:
            if self._unsubscribe is not None:
                self._unsubscribe()

    async def _attempt_or_error(self) -> tuple[float, A] | Exception:
        """Make an attempt. Return an error that a later attempt may not meet, and raise any other."""
        try:
            outcome = await self._attempt(self._unsubscribe is not None)
        except AnswerTooLate as error:
            self._late_answers += 1
            if self._late_answers >= MAX_LATE_ANSWERS:
                raise
            return error
        except Exception as error:
            if not pg_errors.may_pass(error) or self._clock.now() > self._outage_deadline:
                raise
            return error
        self._outage_deadline = self._clock.now() + self._settings.outage_timeout
        return outcome

    def _may_retry_at_once(self, answer: A | None) -> bool:
        self._lost_races = self._lost_races + 1 if answer is not None and answer.lost_race else 0
        return 0 < self._lost_races <= MAX_LOST_RACES

    def _subscribe(self, pauses: PollPauses) -> bool:
        """Subscribe to releases. Return False if that is done already, or there are no notifications."""
        if self._unsubscribe is not None or not self._settings.notify:
            return False

        def on_notify(payload: str) -> None:
            if payload == self._payload or payload.startswith("!"):
                pauses.notify()

        listener = self._coordinator.get_listener()
        self._unsubscribe = listener.subscribe(self._channel, on_notify)
        return True

    async def _pause(self, pauses: PollPauses, answer: A | None) -> None:
        """Wait for the next attempt. It is earlier if a lease expires before."""
        if answer is None:
            await pauses.pause(will_be_notified=False)
            return
        will_be_notified = (
            answer.wait_flag_set
            and self._unsubscribe is not None
            and self._coordinator.get_listener().is_listening(self._channel)
        )
        expires_in = answer.expires_in
        at_most = expires_in + EXPIRY_SLACK_SECONDS if expires_in and expires_in > 0 else math.inf
        await pauses.pause(will_be_notified=will_be_notified, at_most=at_most)

    async def _attempt(self, set_wait_flag: bool) -> tuple[float, A]:
        database, nonce = self._coordinator.database, uuid4()
        query = self._build_query(nonce, tuple(self.unconfirmed), set_wait_flag)
        async with database.connection() as connection:
            self.unconfirmed.append(nonce)
            sent_at = self._clock.now()
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                    [answer] = await run(connection, query, database.schema)
            except TimeoutError:
                raise DatabaseUnavailable(
                    f"the database gave no answer in {ANSWER_TIMEOUT_SECONDS:g} s"
                ) from None
        if answer.token is None:
            self.unconfirmed.remove(nonce)
        elif self._clock.now() >= sent_at + trusted_seconds(self._ttl):
            raise AnswerTooLate(
                f"the database takes longer to answer than a ttl of {self._ttl:g} s lasts"
            )
        return sent_at, answer
