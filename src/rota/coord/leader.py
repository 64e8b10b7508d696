"""Leading under a name: standing for election, being told, and doing what only the leader does.

`is_leader()` asks the clock and is right at once, in any thread. `on_elected` and `on_lost` are called in
the event loop, one after the other. `term()` waits to be elected and cancels its block when the term is
lost.

Leadership saves work; it does not make anything right. Two may believe to lead for a moment (campaigns.py
says when): what only one may do goes into a transaction that begins with `await
term.assert_held(connection)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rota.coord.body import Body
from rota.coord.candidacy import Callback, Candidacy, Term
from rota.coord.candidate import Reluctance
from rota.coord.company import Company
from rota.errors import TermLost

__all__ = ["Callback", "Leader", "Term"]


class Leader:
    """`async with leader:` stands for election as long as the block lasts; so does `leader.term()`."""

    def __init__(
        self,
        company: Callable[[], Awaitable[Company]],
        name: str,
        *,
        lease: float,
        label: str,
        on_elected: Callback | None = None,
        on_lost: Callback | None = None,
        reluctance: Reluctance | None = None,
    ) -> None:
        self.name = name
        self._reluctance = reluctance
        self._open = company
        self._lease = lease
        self._label = label
        self._callbacks = {True: on_elected, False: on_lost}
        self._candidacy: Candidacy | None = None
        self._blocks = 0
        """That stand for election."""
        self._led: list[Term] = []
        """One for each block that leads."""

    def is_leader(self) -> bool:
        """Whether this instance leads at this moment; from any thread."""
        candidacy = self._candidacy
        return candidacy is not None and candidacy.candidate.leads()

    @property
    def current(self) -> Term | None:
        """The term in which this instance leads."""
        candidacy = self._candidacy
        term = None if candidacy is None else candidacy.term
        return term if term is not None and term.held else None

    def on_elected(self, call: Callback) -> Callback:
        """`@leader.on_elected`: called with the term when one begins."""
        self._callbacks[True] = call
        return call

    def on_lost(self, call: Callback) -> Callback:
        """`@leader.on_lost`: called with the term when it is over, resigned or lost."""
        self._callbacks[False] = call
        return call

    # Standing

    async def __aenter__(self) -> Leader:
        await self._stand()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._step_back()

    async def _stand(self) -> None:
        company = await self._open()
        if self._candidacy is not None and self._candidacy.company is not company:
            if not self._candidacy.company.ended:
                raise RuntimeError(
                    f"leader {self.name!r} stands in another event loop already: make one for each"
                )
            self._candidacy, self._blocks = None, 0  # it went without a word
        self._blocks += 1
        if self._candidacy is None:
            self._candidacy = Candidacy(
                company, self.name, self._lease, self._label, self._callbacks, self._reluctance
            )

    async def _step_back(self) -> None:
        self._blocks -= 1
        if not self._blocks and self._candidacy is not None:
            candidacy, self._candidacy = self._candidacy, None
            await candidacy.end()

    async def resign(self) -> None:
        """Lead no more, and leave it to the others for a while. Does nothing if this instance does not
        lead."""
        if self._candidacy is not None:
            await self._candidacy.resign()

    # Leading

    async def elected(self) -> Term:
        """Wait until this instance leads; it has to stand for that."""
        if self._candidacy is None:
            raise RuntimeError(
                f"nobody stands for leader {self.name!r} here: do this within `async with leader`"
            )
        return await self._candidacy.elected()

    @asynccontextmanager
    async def term(self) -> AsyncIterator[Term]:
        """Wait to be elected, and lead as long as the block lasts; then resign. If the term is lost the
        block is cancelled, and TermLost raised."""
        await self._stand()
        try:
            term = await self.elected()
            self._led.append(term)
            body = Body()
            watch = asyncio.create_task(_cancel_when_lost(term, body))
            try:
                yield term
            except BaseException as error:
                if body.ended(error):
                    raise _lost(term) from None
                raise
            else:
                body.ended(None)
                if not term.held:
                    raise _lost(term)
            finally:
                watch.cancel()
                self._led.remove(term)
                if term not in self._led and self._candidacy is not None:
                    await self._candidacy.resign(term.number)
        finally:
            await self._step_back()


async def _cancel_when_lost(term: Term, body: Body) -> None:
    await term.lost.wait()
    body.cancel()


def _lost(term: Term) -> TermLost:
    why = term.why or "it was resigned, or could not be confirmed in time"
    return TermLost(f"term {term.number} of leader {term.name!r} was lost: {why}")
