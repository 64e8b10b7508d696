"""One time of standing for election, as the event loop sees it: terms that begin and end, and who is told.

Callbacks are called here, one after the other, never in the keeper's thread, which has a clock to keep.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rota.coord.candidate import Candidate, YieldDelay
from rota.coord.company import Coordinator
from rota.model import events
from rota.store import leaders, waiters
from rota.store.on import run_on
from rota.store.query import in_schema

log = logging.getLogger("rota")

RESIGN_TIMEOUT_SECONDS = 2.0
"""Seconds in which the others are to be told; then they find out by themselves."""


class Term:
    """One time of leading. `number` is larger than that of every term before it."""

    def __init__(self, candidate: Candidate, number: int, schema: str) -> None:
        self.name = candidate.name
        self.number = number
        self.lost_reason = ""
        """Why it is over; empty while it is not, and if it was resigned."""
        self.lost = asyncio.Event()
        """Set when it is over."""
        self._candidate = candidate
        self._schema = schema

    @property
    def held(self) -> bool:
        """Whether it can be relied on at this moment; true from any thread, and after any pause."""
        return self._candidate.is_leader(self.number)

    async def assert_held(self, connection: Any) -> None:
        """Make the caller's transaction fail with LeadershipLost if the term has ended.

        Otherwise nobody else can be elected until that transaction ends.
        """
        answer = self.run_assertion(connection)
        if isinstance(answer, Awaitable):
            await answer

    def run_assertion(self, connection: Any) -> Any:
        """The same for a connection of any kind; answers what is to be awaited, if anything is."""
        return run_on(connection, leaders.assert_term(self.name, self.number), self._schema)

    def __repr__(self) -> str:
        return f"<Term {self.number} of {self.name!r}{'' if self.held else ', over'}>"


Callback = Callable[[Term], Awaitable[None] | None]


class CandidateSession:
    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        lease: float,
        label: str,
        callbacks: dict[bool, Callback | None],
        yield_delay: YieldDelay | None,
    ) -> None:
        self.coordinator = coordinator
        self._schema = coordinator.database.schema
        self._callbacks = callbacks
        self._pending_callbacks: asyncio.Queue[tuple[bool, Term]] = asyncio.Queue()
        self._term_changed = asyncio.Event()
        self.term: Term | None = None
        """The last one, until this loop has heard that it is over."""
        self.candidate = Candidate(
            name,
            leaders.session_lock_key(name, self._schema),
            lease,
            label,
            lambda number: coordinator.call_in_loop(lambda: self._on_elected(number)),
            lambda number, why: coordinator.call_in_loop(lambda: self._on_term_ended(number, why)),
            yield_delay,
        )
        self._callback_task = asyncio.create_task(self._run_callbacks(), name=f"rota leader {name}")
        coordinator.elector.add_candidate(self.candidate)
        coordinator.election_thread.wake_threadsafe()
        self._unsubscribe: Callable[[], None] = lambda: None
        if coordinator.database.settings.notify:
            channel = in_schema(leaders.RESIGNED_CHANNEL, self._schema)
            self._unsubscribe = coordinator.get_listener().subscribe(channel, self._on_notify)

    async def elected(self) -> Term:
        while (term := self.term) is None or not term.held:
            self._term_changed.clear()
            await self._term_changed.wait()
        return term

    async def resign(self, term: int | None = None) -> None:
        """What is begun here goes on, whoever stops waiting for it."""
        resigned = asyncio.Event()
        elector = self.coordinator.elector
        if elector.resign(
            self.candidate, lambda: self.coordinator.call_in_loop(resigned.set), term=term
        ):
            await self._wait_resigned(resigned)

    async def close(self) -> None:
        self._unsubscribe()
        resigned = asyncio.Event()
        elector = self.coordinator.elector
        has_resigned = elector.remove_candidate(
            self.candidate, lambda: self.coordinator.call_in_loop(resigned.set)
        )
        try:
            if has_resigned:
                await self._wait_resigned(resigned)
            else:
                await asyncio.sleep(0)  # what was told to this loop before now is heard
            await self._pending_callbacks.join()
        finally:
            self._callback_task.cancel()

    async def _wait_resigned(self, resigned: asyncio.Event) -> None:
        self.coordinator.election_thread.wake_threadsafe()
        try:
            async with asyncio.timeout(RESIGN_TIMEOUT_SECONDS):
                await resigned.wait()
        except TimeoutError:
            name = self.candidate.name
            log.warning("leader %r has resigned, but could not say so", name)

    # Being told

    def _on_notify(self, name: str) -> None:
        """Somebody has resigned, or may have while nobody heard."""
        if name in (self.candidate.name, waiters.MAY_HAVE_MISSED):
            self.candidate.make_due()
            self.coordinator.election_thread.wake_threadsafe()

    def _on_elected(self, number: int) -> None:
        self.term = Term(self.candidate, number, self._schema)
        self.coordinator.publish(events.LeaderElected(self.term.name, number))
        self._term_changed.set()
        self._pending_callbacks.put_nowait((True, self.term))

    def _on_term_ended(self, number: int, reason: str) -> None:
        term, self.term = self.term, None
        assert term is not None, "a term has ended that had not begun"
        assert term.number == number
        term.lost_reason = reason
        term.lost.set()
        self.coordinator.publish(events.LeadershipEnded(term.name, number, reason))
        self._term_changed.set()
        self._pending_callbacks.put_nowait((False, term))

    async def _run_callbacks(self) -> None:
        while True:
            elected, term = await self._pending_callbacks.get()
            callback = self._callbacks[elected]
            try:
                answer = None if callback is None else callback(term)
                if inspect.isawaitable(answer):
                    await answer
            except asyncio.CancelledError:
                if self._callback_task.cancelling():
                    raise
                log.warning("on_%s of %r was cancelled", _event_name(elected), term.name)
            except Exception:
                log.exception("on_%s of %r failed", _event_name(elected), term.name)
            finally:
                self._pending_callbacks.task_done()


def _event_name(elected: bool) -> str:
    return "elected" if elected else "lost"
