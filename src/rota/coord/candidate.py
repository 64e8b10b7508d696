"""Candidacy for one name: the state of the term, and the callbacks of the application.

`Candidate` is read by the clock, from any thread. A term that has ended is never held again, even if a
late answer confirms it. It ends as soon as it cannot be trusted any more, even if no code has noticed
yet.

`CandidateSession` is the event loop's side: terms that begin and end. Callbacks run there, one after the
other, and never in the election thread, which must keep time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from rota.coord.lease import LeaseClock
from rota.model import events
from rota.store import leaders, listeners
from rota.store.query import in_schema
from rota.store.user_connection import run_on

if TYPE_CHECKING:
    from rota.coord.coordinator import Coordinator

TRUSTED_SHARE = 0.6
"""Share of a lease for which a term is trusted after the last confirmed probe was sent."""

PROBE_SHARE = 0.2
"""Share of a lease after which the term is probed again."""

YieldDelay = Callable[[Sequence[str]], float]
"""Returns, given the vacant names, how many seconds this instance waits for another to be elected first."""


class Candidate:
    """Candidate for one name, with its current term.

    `on_elected` and `on_term_ended` are called in any thread, in the order of the events, with the term;
    `on_term_ended` also with the reason.
    """

    def __init__(
        self,
        name: str,
        session_lock: int,
        lease: float,
        label: str,
        clock: LeaseClock,
        on_elected: Callable[[int], None],
        on_term_ended: Callable[[int, str], None],
        yield_delay: YieldDelay | None = None,
    ) -> None:
        self.name = name
        self.session_lock = session_lock
        self.lease = lease
        self.label = label
        self._clock = clock
        self.yield_delay = yield_delay
        self.vacant_since: float | None = None
        self.due_at = 0.0
        """Time of the next probe or attempt to be elected."""
        self.elected_at = 0.0
        self.has_session_lock = False
        """True if a session lock holds the term, and False if a lease does."""
        self._on_elected = on_elected
        self._on_term_ended = on_term_ended
        self._term: int | None = None
        self._trusted_until = 0.0
        self._abstain_until = 0.0
        self._withdrawn = False
        self._pid = os.getpid()
        # Callbacks run under the lock, so the end of a term is always reported after its beginning.
        # Reentrant, because a signal handler may check the term while its thread checks it.
        self._lock = threading.RLock()

    @property
    def term(self) -> int | None:
        """Number of the last term won, until its end is noticed; then None."""
        return self._term

    @property
    def trusted_until(self) -> float:
        return self._trusted_until

    def is_leader(self, term: int | None = None) -> bool:
        """True if this process leads now. Right also after a suspend, and in a forked process."""
        with self._lock:
            is_current = self._term is not None and term in (None, self._term)
            return (
                is_current and self._clock.now() < self._trusted_until and os.getpid() == self._pid
            )

    def is_abstaining(self) -> bool:
        return self._clock.now() < self._abstain_until

    def make_due(self) -> None:
        """Seek election at once, because another instance has resigned. Do nothing while abstaining."""
        with self._lock:
            if self._term is None and not self.is_abstaining():
                self.due_at = 0.0

    # Called in the election thread

    def begin_term(
        self, term: int, sent_at: float, lease: float, *, has_session_lock: bool
    ) -> bool:
        """Begin a term. Return False if the candidate was withdrawn.

        The server elects no other instance for `lease` seconds from `sent_at`.
        """
        with self._lock:
            if self._withdrawn:
                return False
            self.has_session_lock = has_session_lock
            self.elected_at = sent_at
            self.vacant_since = None
            self._trusted_until = sent_at + TRUSTED_SHARE * lease
            self.due_at = sent_at + PROBE_SHARE * lease
            self._term = term
            self._on_elected(term)
            return True

    def confirm_term(self, term: int, sent_at: float, lease: float) -> bool:
        """Trust the term for longer. Return False if it has ended."""
        with self._lock:
            if not self.is_leader(term):
                return False
            self._trusted_until = sent_at + TRUSTED_SHARE * lease
            self.due_at = sent_at + PROBE_SHARE * lease
            return True

    def shorten_trust(self, lease: float) -> None:
        """Trust the term for less, because the server's idle timeout became shorter, and probe at once."""
        with self._lock:
            self._trusted_until = min(
                self._trusted_until, self._clock.now() + TRUSTED_SHARE * lease
            )
            self.due_at = 0.0

    # Thread-safe

    def end_term(self, term: int, reason: str, abstain_seconds: float = 0.0) -> bool:
        """End the term. Return False if it had ended before.

        The candidate does not seek election for `abstain_seconds`.
        """
        with self._lock:
            if self._term != term:
                return False
            self._term = None
            self._trusted_until = 0.0
            self.due_at = self._abstain_until = self._clock.now() + abstain_seconds
            self._on_term_ended(term, reason)
            return True

    def withdraw(self) -> None:
        """Refuse every later term."""
        with self._lock:
            self._withdrawn = True


log = logging.getLogger("rota")

RESIGN_TIMEOUT_SECONDS = 2.0
"""Seconds to send a resignation. After that, other instances notice when the lease expires."""


class Term:
    """Period of leading. `number` is larger than that of every earlier term."""

    def __init__(self, candidate: Candidate, number: int, schema: str) -> None:
        self.name = candidate.name
        self.number = number
        self.lost_reason = ""
        """Reason for the loss; empty while the term lasts, and if it was resigned."""
        self.lost = asyncio.Event()
        """Set when the term has ended."""
        self._candidate = candidate
        self._schema = schema

    @property
    def held(self) -> bool:
        """True if the term can be trusted at this moment. Thread-safe, and right after any pause."""
        return self._candidate.is_leader(self.number)

    async def assert_held(self, connection: Any) -> None:
        """Make the caller's transaction fail with LeadershipLost if the term has ended.

        Otherwise no other instance can be elected until that transaction ends.
        """
        answer = self.run_assertion(connection)
        if isinstance(answer, Awaitable):
            await answer

    def run_assertion(self, connection: Any) -> Any:
        """Run `assert_held` on a connection of any kind. Return an awaitable if the connection is async."""
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
        """The current term, until this loop has received its end."""
        self.candidate = Candidate(
            name,
            leaders.session_lock_key(name, self._schema),
            lease,
            label,
            coordinator.clock,
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
        """Resign the current term. The resignation continues if the caller is cancelled."""
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
                await asyncio.sleep(0)  # let the loop run the callbacks scheduled before
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
            log.warning("leader %r resigned, but the database did not confirm it in time", name)

    # Notifications

    def _on_notify(self, name: str) -> None:
        """Seek election: a leader has resigned, or may have while no connection listened."""
        if name in (self.candidate.name, listeners.MAY_HAVE_MISSED):
            self.candidate.make_due()
            self.coordinator.election_thread.wake_threadsafe()

    def _on_elected(self, number: int) -> None:
        self.term = Term(self.candidate, number, self._schema)
        self.coordinator.publish(events.LeaderElected(self.term.name, number))
        self._term_changed.set()
        self._pending_callbacks.put_nowait((True, self.term))

    def _on_term_ended(self, number: int, reason: str) -> None:
        term, self.term = self.term, None
        assert term is not None, "a term ended that had not started"
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
