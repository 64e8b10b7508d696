"""Shared state of the coordination in one event loop: database, identity, threads, listener, counters.

Threads start only when they are needed: a lock that is held for a moment costs two statements and no
thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from rota.coord.alert_sources import CoordinationAlerts
from rota.coord.elector import Elector
from rota.coord.lease import APP_CLOSED, Lease, LeaseClock, new_identity
from rota.coord.renewal_thread import LockRenewals, OnceRenewals, RenewalThread
from rota.model.alert_rules import AlertRules
from rota.model.events import Event, LeaderElected, LeadershipEnded, LockAcquired, LockForfeited
from rota.model.histogram import Histogram
from rota.store import listeners, locks
from rota.store.database import Database
from rota.store.locks import ReleasedLockRow
from rota.store.query import in_schema

log = logging.getLogger("rota")

T = TypeVar("T")

CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds to release the leases that are still held."""

CANCELLED_WAIT_SECONDS = 1.0
"""Seconds that a cancelled caller waits for its operation, which then continues in the background."""


class ListenerProtocol(Protocol):
    """Receiver of notifications on a channel."""

    def subscribe(
        self, channel: str, on_notify: Callable[[str], None], /
    ) -> Callable[[], None]: ...

    def is_listening(self, channel: str, /) -> bool: ...


class Coordinator:
    def __init__(
        self,
        database: Database,
        get_listener: Callable[[], ListenerProtocol],
        publish: Callable[[Event], None],
        counters: CoordinationCounters,
        clock: LeaseClock | None = None,
    ) -> None:
        self.database = database
        self.clock = clock or LeaseClock()
        self.get_listener = get_listener
        self.identity = new_identity()
        self.counters = counters
        self._loop = asyncio.get_running_loop()
        self._publish = publish
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.renewal_thread = RenewalThread(database, "renewals", self.clock)
        self.alerts = CoordinationAlerts(
            *(self.identity, database.schema, self.publish, self.renewal_thread.wake_threadsafe),
            AlertRules.parse(database.settings.alerts),
            self.clock,
        )
        self.lock_renewals = LockRenewals(
            self.identity.instance, database.schema, self.alerts, self.clock
        )
        self.once_renewals = OnceRenewals(database.schema, self.clock)
        self.renewal_thread.add(self.lock_renewals)
        self.renewal_thread.add(self.once_renewals)
        self.renewal_thread.add(self.alerts)
        # Elections have a thread and connection of their own, so a slow lock renewal cannot cost a term.
        self.election_thread = RenewalThread(database, "elections", self.clock)
        self.elector = Elector(
            *(self.identity, database.schema, self.alerts, self.clock),
            notify=database.settings.notify,
        )
        self.election_thread.add(self.elector)

    @property
    def is_closed(self) -> bool:
        """True if the coordinator is closed or its event loop has ended."""
        return self._closed or self._loop.is_closed()

    def publish(self, event: Event) -> None:
        """Count and publish an event. Thread-safe."""
        self.counters.count(event)
        self.call_in_loop(lambda: self._publish(event))

    def call_in_loop(self, callback: Callable[[], None]) -> None:
        """Call `callback` in this coordinator's event loop. Thread-safe."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return  # the loop is closed, and with it everything the callback concerns

    async def finish_even_if_cancelled(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that runs to its end even if the caller is cancelled."""
        task = asyncio.create_task(coroutine)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=CANCELLED_WAIT_SECONDS)
            raise

    async def release(
        self, leases: Sequence[Lease], timeout: float
    ) -> list[ReleasedLockRow | None]:
        """Release leases and notify waiters.

        None in the result means that another instance holds that lease now.
        """
        queries = [locks.release(each.name, each.permit, each.token) for each in leases]
        answers = await self.database.transact_with_retry(queries, timeout)
        released = [rows[0] if rows else None for rows in answers]
        awaited = [
            lease.name
            for lease, each in zip(leases, released, strict=True)
            if each is not None and each.awaited
        ]
        if awaited and self.database.settings.notify:
            channel = in_schema(locks.RELEASED_CHANNEL, self.database.schema)
            try:
                await self.database.run(listeners.notify(channel, awaited))
            except Exception as error:
                log.debug("the release of %s was not notified; waiters poll: %s", awaited, error)
        return released

    async def close(self) -> None:
        """Close the coordinator. Leases still held are marked as lost and released.

        Waiters then need not wait for their expiry.
        """
        self._closed = True
        await self.resign(APP_CLOSED)
        await self.election_thread.close()
        held = sorted(
            self.lock_renewals.mark_all_lost(APP_CLOSED),
            key=lambda lease: (lease.name, lease.permit),
        )
        if self._unfinished:
            await asyncio.wait(self._unfinished, timeout=CLOSE_TIMEOUT_SECONDS)
        if held:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await self.release(held, CLOSE_TIMEOUT_SECONDS)
            except Exception as error:
                log.warning("%s locks were not released: %s", len(held), error)
        await self.renewal_thread.close()

    async def resign(self, reason: str, *, except_services: bool = False) -> None:
        """Resign from every term and withdraw all candidates.

        With `except_services` the candidates of services stay: services hand over when their iteration
        ends.
        """
        resigned = asyncio.Event()
        if self.elector.close(
            reason, lambda: self.call_in_loop(resigned.set), except_services=except_services
        ):
            self.election_thread.wake_threadsafe()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await resigned.wait()
            except TimeoutError:
                log.warning("leaders resigned, but the database did not confirm it in time")


class CoordinationCounters:
    """Counters, written from any thread without a lock: a count may be off by one for a moment."""

    def __init__(self) -> None:
        self.locks_acquired = self.locks_lost = 0
        self.elections_won = self.terms_lost = 0
        self.wait_seconds = Histogram()
        """Seconds that callers waited for locks that were not free at once."""

    def count(self, event: Event) -> None:
        match event:
            case LockAcquired():
                self.locks_acquired += 1
            case LockForfeited():
                self.locks_lost += 1
            case LeaderElected():
                self.elections_won += 1
            case LeadershipEnded(reason=reason) if reason:
                self.terms_lost += 1
