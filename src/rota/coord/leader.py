"""Leader election for one name: candidacy, callbacks, and work that only the leader does.

`is_leader()` checks the clock and is right at once, in any thread. `on_elected` and `on_lost` are called
in the event loop, one after the other. `term()` waits to be elected and cancels its block when the term
is lost.

Leadership saves work; it does not guarantee exclusion. Two instances may believe for a moment that they
lead (`elector.py` describes when). Work that only one may do belongs in a transaction that begins with
`await term.assert_held(connection)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rota.coord.candidate import Callback, CandidateSession, Term, YieldDelay
from rota.coord.coordinator import Coordinator
from rota.coord.lock import CancelScope
from rota.errors import LeadershipLost

__all__ = ["Callback", "Leader", "Term"]


class Leader:
    """Candidate for one name while `async with leader:` or `leader.term()` lasts."""

    def __init__(
        self,
        open_coordinator: Callable[[], Awaitable[Coordinator]],
        name: str,
        *,
        lease: float,
        label: str,
        on_elected: Callback | None = None,
        on_lost: Callback | None = None,
        yield_delay: YieldDelay | None = None,
    ) -> None:
        self.name = name
        self._yield_delay = yield_delay
        self._open_coordinator = open_coordinator
        self._lease = lease
        self._label = label
        self._callbacks = {True: on_elected, False: on_lost}
        self._candidacy: CandidateSession | None = None
        self._open_blocks = 0
        """Number of blocks that keep the candidacy open."""
        self._led_terms: list[Term] = []
        """The term of each block that leads."""

    def is_leader(self) -> bool:
        """True if this instance leads at this moment. Thread-safe."""
        candidacy = self._candidacy
        return candidacy is not None and candidacy.candidate.is_leader()

    @property
    def current(self) -> Term | None:
        """The term in which this instance leads, or None."""
        candidacy = self._candidacy
        term = None if candidacy is None else candidacy.term
        return term if term is not None and term.held else None

    def on_elected(self, callback: Callback) -> Callback:
        """Decorator: call `callback` with the term when one begins."""
        self._callbacks[True] = callback
        return callback

    def on_lost(self, callback: Callback) -> Callback:
        """Decorator: call `callback` with the term when it ends, resigned or lost."""
        self._callbacks[False] = callback
        return callback

    # Candidacy

    async def __aenter__(self) -> Leader:
        await self._begin_candidacy()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end_candidacy()

    async def _begin_candidacy(self) -> None:
        coordinator = await self._open_coordinator()
        if self._candidacy is not None and self._candidacy.coordinator is not coordinator:
            if not self._candidacy.coordinator.is_closed:
                raise RuntimeError(
                    f"leader {self.name!r} stands in another event loop already: make one for each"
                )
            self._candidacy, self._open_blocks = None, 0  # closed together with its event loop
        self._open_blocks += 1
        if self._candidacy is None:
            self._candidacy = CandidateSession(
                coordinator, self.name, self._lease, self._label, self._callbacks, self._yield_delay
            )

    async def _end_candidacy(self) -> None:
        self._open_blocks -= 1
        if not self._open_blocks and self._candidacy is not None:
            candidacy, self._candidacy = self._candidacy, None
            await candidacy.close()

    async def resign(self) -> None:
        """Resign, and do not seek election for a while.

        Do nothing if this instance does not lead.
        """
        if self._candidacy is not None:
            await self._candidacy.resign()

    # Leading

    async def elected(self) -> Term:
        """Wait until this instance leads. Raise RuntimeError if it is not a candidate."""
        if self._candidacy is None:
            raise RuntimeError(
                f"this instance is not a candidate for leader {self.name!r}; "
                "call elected() inside `async with leader`"
            )
        return await self._candidacy.elected()

    @asynccontextmanager
    async def term(self) -> AsyncIterator[Term]:
        """Wait to be elected, lead for the duration of the block, then resign.

        If the term is lost, the block is cancelled and LeadershipLost is raised.
        """
        await self._begin_candidacy()
        try:
            term = await self.elected()
            self._led_terms.append(term)
            scope = CancelScope()
            watch_task = asyncio.create_task(_cancel_when_lost(term, scope))
            try:
                yield term
            except BaseException as error:
                if scope.finish(error):
                    raise _lost_error(term) from None
                raise
            else:
                scope.finish(None)
                if not term.held:
                    raise _lost_error(term)
            finally:
                watch_task.cancel()
                self._led_terms.remove(term)
                if term not in self._led_terms and self._candidacy is not None:
                    await self._candidacy.resign(term.number)
        finally:
            await self._end_candidacy()


async def _cancel_when_lost(term: Term, scope: CancelScope) -> None:
    await term.lost.wait()
    scope.cancel()


def _lost_error(term: Term) -> LeadershipLost:
    reason = term.lost_reason or "it was resigned, or could not be confirmed in time"
    return LeadershipLost(f"term {term.number} of leader {term.name!r} was lost: {reason}")
