"""One time of standing for election, as the event loop sees it: terms that begin and end, and who is told.

Callbacks are called here, one after the other, never in the keeper's thread, which has a clock to keep.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rota.coord.candidate import Candidate, Reluctance
from rota.coord.company import Company
from rota.model import events
from rota.store import leaders, waiters
from rota.store.on import run_on
from rota.store.query import in_schema

log = logging.getLogger("rota")

RESIGN_WITHIN = 2.0
"""Seconds in which the others are to be told; then they find out by themselves."""


class Term:
    """One time of leading. `number` is larger than that of every term before it."""

    def __init__(self, candidate: Candidate, number: int, schema: str) -> None:
        self.name = candidate.name
        self.number = number
        self.why = ""
        """Why it is over; empty while it is not, and if it was resigned."""
        self.lost = asyncio.Event()
        """Set when it is over."""
        self._candidate = candidate
        self._schema = schema

    @property
    def held(self) -> bool:
        """Whether it can be relied on at this moment; true from any thread, and after any pause."""
        return self._candidate.leads(self.number)

    async def assert_held(self, connection: Any) -> None:
        """Refuse the rest of the transaction on this connection of yours, with TermLost, if the term is
        over; else nobody else leads until the transaction ends."""
        answer = self.assertion(connection)
        if isinstance(answer, Awaitable):
            await answer

    def assertion(self, connection: Any) -> Any:
        """The same for a connection of any kind; answers what is to be awaited, if anything is."""
        return run_on(connection, leaders.assertion(self.name, self.number), self._schema)

    def __repr__(self) -> str:
        return f"<Term {self.number} of {self.name!r}{'' if self.held else ', over'}>"


Callback = Callable[[Term], Awaitable[None] | None]


class Candidacy:
    def __init__(
        self,
        company: Company,
        name: str,
        lease: float,
        label: str,
        callbacks: dict[bool, Callback | None],
        reluctance: Reluctance | None,
    ) -> None:
        self.company = company
        self._schema = company.database.schema
        self._callbacks = callbacks
        self._calls: asyncio.Queue[tuple[bool, Term]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self.term: Term | None = None
        """The last one, until this loop has heard that it is over."""
        self.candidate = Candidate(
            name,
            leaders.seat_of(name, self._schema),
            lease,
            label,
            lambda number: company.tell(lambda: self._elected(number)),
            lambda number, why: company.tell(lambda: self._deposed(number, why)),
            reluctance,
        )
        self._caller = asyncio.create_task(self._call(), name=f"rota leader {name}")
        company.campaigns.stand(self.candidate)
        company.throne.nudge()
        self._unsubscribe: Callable[[], None] = lambda: None
        if company.database.settings.notify:
            channel = in_schema(leaders.RESIGNED, self._schema)
            self._unsubscribe = company.listen().subscribe(channel, self._hear)

    async def elected(self) -> Term:
        while (term := self.term) is None or not term.held:
            self._changed.clear()
            await self._changed.wait()
        return term

    async def resign(self, term: int | None = None) -> None:
        """What is begun here goes on, whoever stops waiting for it."""
        said = asyncio.Event()
        campaigns = self.company.campaigns
        if campaigns.resign(self.candidate, lambda: self.company.tell(said.set), term=term):
            await self._until_said(said)

    async def end(self) -> None:
        self._unsubscribe()
        said = asyncio.Event()
        campaigns = self.company.campaigns
        left = campaigns.withdraw(self.candidate, lambda: self.company.tell(said.set))
        try:
            if left:
                await self._until_said(said)
            else:
                await asyncio.sleep(0)  # what was told to this loop before now is heard
            await self._calls.join()
        finally:
            self._caller.cancel()

    async def _until_said(self, said: asyncio.Event) -> None:
        self.company.throne.nudge()
        try:
            async with asyncio.timeout(RESIGN_WITHIN):
                await said.wait()
        except TimeoutError:
            name = self.candidate.name
            log.warning("leader %r has resigned, but could not say so", name)

    # Being told

    def _hear(self, name: str) -> None:
        """Somebody has resigned, or may have while nobody heard."""
        if name in (self.candidate.name, waiters.MISSED):
            self.candidate.hurry()
            self.company.throne.nudge()

    def _elected(self, number: int) -> None:
        self.term = Term(self.candidate, number, self._schema)
        self.company.announce(events.LeaderElected(self.term.name, number))
        self._changed.set()
        self._calls.put_nowait((True, self.term))

    def _deposed(self, number: int, why: str) -> None:
        term, self.term = self.term, None
        assert term is not None, "a term has ended that had not begun"
        assert term.number == number
        term.why = why
        term.lost.set()
        self.company.announce(events.LeaderDeposed(term.name, number, why))
        self._changed.set()
        self._calls.put_nowait((False, term))

    async def _call(self) -> None:
        while True:
            elected, term = await self._calls.get()
            call = self._callbacks[elected]
            try:
                answer = None if call is None else call(term)
                if inspect.isawaitable(answer):
                    await answer
            except asyncio.CancelledError:
                if self._caller.cancelling():
                    raise
                log.warning("on_%s of %r was cancelled", _said(elected), term.name)
            except Exception:
                log.exception("on_%s of %r failed", _said(elected), term.name)
            finally:
                self._calls.task_done()


def _said(elected: bool) -> str:
    return "elected" if elected else "lost"
