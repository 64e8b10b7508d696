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

from rota.coord import trust
from rota.coord.company import Company
from rota.errors import DatabaseUnavailable
from rota.store import failures
from rota.store.database import run
from rota.store.query import Query, in_schema

FIRST_LOOK = 0.02
LAST_LOOK = 0.5
HEARD_LOOK = 1.0
"""Seconds between looks: at first, later, and for who will be told."""

SLACK = 0.01
"""Seconds after something ran out at which it is looked for."""

RACES = 100
"""So many in a row are lost by bad luck. After that somebody is in the way for longer."""

ANSWER_WITHIN = 5.0
"""Seconds that the database has to answer."""

LATE = 3
"""So many answers may come too late to be relied on: whoever was asleep meanwhile asks again."""


class TooLate(DatabaseUnavailable):
    """It was taken, and may have run out before we knew."""


class Answer(Protocol):
    @property
    def token(self) -> int | None:
        """It is ours, under this."""
        ...

    @property
    def got(self) -> bool:
        """There is nothing to wait for."""
        ...

    @property
    def raced(self) -> bool:
        """Somebody else was a moment faster, and it is worth asking again at once."""
        ...

    @property
    def asked(self) -> bool:
        """Whether all who have it know that somebody waits."""
        ...

    @property
    def left(self) -> float | None:
        """Seconds until the first of them runs out."""
        ...


A = TypeVar("A", bound=Answer)

Asking = Callable[[UUID, Sequence[UUID], bool], Query[A]]
"""How it is asked for: under a nonce, after earlier ones, and whether to say that somebody waits."""


class Look(Generic[A]):
    """Who lets go says `word` on `channel`. What is taken is held for `ttl` seconds."""

    def __init__(
        self, company: Company, channel: str, word: str, ttl: float, asking: Asking[A]
    ) -> None:
        self._company = company
        self._channel = in_schema(channel, company.database.schema)
        self._word = word
        self._ttl = ttl
        self._asking = asking
        self._freed = asyncio.Event()
        self.unsure: list[UUID] = []
        """Under these it may have been taken without our knowing."""
        self.waited = False
        """Whether it was not to be had at once."""

    async def until(self, wait: float | None) -> tuple[float, A]:
        """Ask until it is there, or for so many seconds. Answers the last answer, and when that was asked
        for, by `trust.now()`. Unless it has `got` it, time is up."""
        unsubscribe: Callable[[], None] | None = None
        settings, ears = self._company.database.settings, self._company.listen
        deadline = None if wait is None else time.monotonic() + wait
        patience = time.monotonic() + settings.patience
        pause, races, late = FIRST_LOOK, 0, 0
        try:
            while True:
                self._freed.clear()
                answer, failure = None, None
                try:
                    sent, answer = await self._ask(unsubscribe is not None)
                    patience = time.monotonic() + settings.patience
                except TooLate:
                    if (late := late + 1) >= LATE:
                        raise
                    continue
                except Exception as error:
                    if not failures.is_passing(error) or time.monotonic() > patience:
                        raise
                    failure = error
                if answer is not None and answer.got:
                    return sent, answer
                races = races + 1 if answer is not None and answer.raced else 0
                if 0 < races <= RACES:
                    continue
                self.waited = True
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    if failure is not None:
                        raise failure
                    assert answer is not None
                    return sent, answer
                if unsubscribe is None and settings.notify:
                    unsubscribe = ears().subscribe(self._channel, self._hear)
                    continue
                heard = unsubscribe is not None and ears().hears(self._channel)
                pause = min(pause * 2, LAST_LOOK)
                told = heard and answer is not None and answer.asked
                rest = (HEARD_LOOK if told else pause) * random.uniform(0.7, 1.0)
                if answer is not None and answer.left is not None and answer.left > 0:
                    rest = min(rest, answer.left + SLACK)
                if deadline is not None:
                    rest = min(rest, max(deadline - now, 0.0))
                try:
                    async with asyncio.timeout(rest):
                        await self._freed.wait()
                except TimeoutError:
                    continue
        finally:
            if unsubscribe is not None:
                unsubscribe()

    async def _ask(self, waits: bool) -> tuple[float, A]:
        database, nonce = self._company.database, uuid4()
        query = self._asking(nonce, tuple(self.unsure), waits)
        async with database.connection() as connection:
            self.unsure.append(nonce)
            sent = trust.now()
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    [answer] = await run(connection, query, database.schema)
            except TimeoutError:
                raise DatabaseUnavailable(
                    f"the database gave no answer in {ANSWER_WITHIN:g} s"
                ) from None
        if answer.token is None:
            self.unsure.remove(nonce)
        elif trust.now() >= sent + trust.relied_on(self._ttl):
            raise TooLate(
                f"the database takes longer to answer than a ttl of {self._ttl:g} s lasts"
            )
        return sent, answer

    def _hear(self, word: str) -> None:
        if word == self._word or word.startswith("!"):
            self._freed.set()
