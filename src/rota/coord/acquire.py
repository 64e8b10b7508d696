"""Waits for what others have: looks for it, and is told when they let go of it.

Whoever waits says so on the row, so that nobody is told of what nobody waits for. He also looks by himself,
since who dies tells nobody, and through a pooler there is nothing to hear.

Each time it is asked under a nonce of its own. One that was sent and never answered may have got it:
whoever asks again names it, and whoever gives up has to let go of it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
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
"""Seconds between looks: at first, later, and for who will be told."""

EXPIRY_SLACK_SECONDS = 0.01
"""Seconds after something ran out at which it is looked for."""

MAX_LOST_RACES = 100
"""So many in a row are lost by bad luck. After that somebody is in the way for longer."""

ANSWER_TIMEOUT_SECONDS = 5.0
"""Seconds that the database has to answer."""

MAX_LATE_ANSWERS = 3
"""So many answers may come too late to be relied on: whoever was asleep meanwhile asks again."""


class AnswerTooLate(DatabaseUnavailable):
    """It was taken, and may have run out before we knew."""


class AcquireAnswer(Protocol):
    @property
    def token(self) -> int | None:
        """It is ours, under this."""
        ...

    @property
    def is_done(self) -> bool:
        """There is nothing to wait for."""
        ...

    @property
    def lost_race(self) -> bool:
        """Somebody else was a moment faster, and it is worth asking again at once."""
        ...

    @property
    def wait_flag_set(self) -> bool:
        """Whether all who have it know that somebody waits."""
        ...

    @property
    def expires_in(self) -> float | None:
        """Seconds until the first of them runs out."""
        ...


A = TypeVar("A", bound=AcquireAnswer)

QueryFactory = Callable[[UUID, Sequence[UUID], bool], Query[A]]
"""How it is asked for: under a nonce, after earlier ones, and whether to say that somebody waits."""


class AcquireLoop(Generic[A]):
    """Who lets go says `word` on `channel`. What is taken is held for `ttl` seconds."""

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
        """Under these it may have been taken without our knowing."""
        self.has_waited = False
        """Whether it was not to be had at once."""

    async def acquire(self, wait: float | None) -> tuple[float, A]:
        """Ask until it is there, or for so many seconds. Answers the last answer, and when that was asked
        for, by `trust.now()`. Unless it has `got` it, time is up."""
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
                will_be_notified = is_listening and answer is not None and answer.wait_flag_set
                pause_seconds = (
                    NOTIFIED_POLL_SECONDS if will_be_notified else poll_seconds
                ) * random.uniform(0.7, 1.0)
                if answer is not None and answer.expires_in is not None and answer.expires_in > 0:
                    pause_seconds = min(pause_seconds, answer.expires_in + EXPIRY_SLACK_SECONDS)
                if deadline is not None:
                    pause_seconds = min(pause_seconds, max(deadline - now, 0.0))
                try:
                    async with asyncio.timeout(pause_seconds):
                        await self._freed.wait()
                except TimeoutError:
                    continue
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
