"""Loop that acquires a lease held by another instance: it polls, and a release notifies it.

A waiting client sets a flag on the row; a release notifies only if the flag is set. The client also
polls, because a holder that dies sends no notification and a pooler delivers none.

Each attempt has its own nonce. An attempt without an answer may have acquired the lease. The next
attempt passes the nonces of the earlier ones, and a client that gives up has to release them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar
from uuid import UUID, uuid4

from rota.coord import lease_clock
from rota.coord.coordinator import Coordinator
from rota.errors import DatabaseUnavailable
from rota.store import pg_errors
from rota.store.database import run
from rota.store.query import Query, in_schema

FIRST_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 0.5
NOTIFIED_POLL_SECONDS = 1.0
"""Seconds between polls: the first pause, the longest, and the pause of a client that will be notified."""

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
        self._freed = asyncio.Event()
        self.unconfirmed: list[UUID] = []
        """Nonces under which the lease was acquired, or may have been without an answer."""
        self.has_waited = False
        """True if the lease could not be acquired at once."""

    async def acquire(self, wait: float | None) -> tuple[float, A]:
        """Try until the lease is acquired or `wait` seconds have passed.

        Return the last answer, and the time at which its statement was sent, by `lease_clock.now()`. If
        the answer is not `is_done`, the time is up.
        """
        unsubscribe: Callable[[], None] | None = None
        settings, get_listener = self._coordinator.database.settings, self._coordinator.get_listener
        deadline = None if wait is None else time.monotonic() + wait
        outage_deadline = time.monotonic() + settings.outage_timeout
        poll_seconds, lost_races, late_answers = FIRST_POLL_SECONDS, 0, 0
        try:
            while True:
                self._freed.clear()
                answer, failure = None, None
                try:
                    sent_at, answer = await self._attempt(unsubscribe is not None)
                    outage_deadline = time.monotonic() + settings.outage_timeout
                except AnswerTooLate:
                    if (late_answers := late_answers + 1) >= MAX_LATE_ANSWERS:
                        raise
                    continue
                except Exception as error:
                    if not pg_errors.is_transient(error) or time.monotonic() > outage_deadline:
                        raise
                    failure = error
                if answer is not None and answer.is_done:
                    return sent_at, answer
                lost_races = lost_races + 1 if answer is not None and answer.lost_race else 0
                if 0 < lost_races <= MAX_LOST_RACES:
                    continue
                self.has_waited = True
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    if failure is not None:
                        raise failure
                    assert answer is not None
                    return sent_at, answer
                if unsubscribe is None and settings.notify:
                    unsubscribe = get_listener().subscribe(self._channel, self._on_notify)
                    continue
                is_listening = unsubscribe is not None and get_listener().is_listening(
                    self._channel
                )
                poll_seconds = min(poll_seconds * 2, MAX_POLL_SECONDS)
                pause_seconds = _pause_seconds(answer, poll_seconds, is_listening=is_listening)
                if deadline is not None:
                    pause_seconds = min(pause_seconds, max(deadline - now, 0.0))
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_seconds):
                        await self._freed.wait()
        finally:
            if unsubscribe is not None:
                unsubscribe()

    async def _attempt(self, set_wait_flag: bool) -> tuple[float, A]:
        database, nonce = self._coordinator.database, uuid4()
        query = self._build_query(nonce, tuple(self.unconfirmed), set_wait_flag)
        async with database.connection() as connection:
            self.unconfirmed.append(nonce)
            sent_at = lease_clock.now()
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                    [answer] = await run(connection, query, database.schema)
            except TimeoutError:
                raise DatabaseUnavailable(
                    f"the database gave no answer in {ANSWER_TIMEOUT_SECONDS:g} s"
                ) from None
        if answer.token is None:
            self.unconfirmed.remove(nonce)
        elif lease_clock.now() >= sent_at + lease_clock.trusted_seconds(self._ttl):
            raise AnswerTooLate(
                f"the database takes longer to answer than a ttl of {self._ttl:g} s lasts"
            )
        return sent_at, answer

    def _on_notify(self, payload: str) -> None:
        if payload == self._payload or payload.startswith("!"):
            self._freed.set()


def _pause_seconds(
    answer: AcquireAnswer | None, poll_seconds: float, *, is_listening: bool
) -> float:
    """Return the seconds until the next attempt: shorter if the lease expires before."""
    will_be_notified = is_listening and answer is not None and answer.wait_flag_set
    pause = (NOTIFIED_POLL_SECONDS if will_be_notified else poll_seconds) * random.uniform(0.7, 1.0)
    if answer is not None and answer.expires_in is not None and answer.expires_in > 0:
        pause = min(pause, answer.expires_in + EXPIRY_SLACK_SECONDS)
    return pause
