"""What the coordination of one event loop shares: the database, the identity, threads, listeners, counters.

Nothing is started before it is needed: a lock that is held for a moment costs two statements and no
thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from rota.coord.alert_sources import CoordinationAlerts
from rota.coord.elector import Elector
from rota.coord.identity import new_identity
from rota.coord.lease import APP_CLOSED, Lease
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
"""Seconds in which what is still held may be given back."""

CANCELLED_WAIT_SECONDS = 1.0
"""Seconds that who is cancelled waits for what he has begun; then it goes on by itself."""


class ListenerProtocol(Protocol):
    """Who hears what is said on a channel."""

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
    ) -> None:
        self.database = database
        self.get_listener = get_listener
        self.identity = new_identity()
        self.counters = CoordinationCounters()
        self._loop = asyncio.get_running_loop()
        self._publish = publish
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.renewal_thread = RenewalThread(database, "keeper")
        self.alerts = CoordinationAlerts(
            *(self.identity, database.schema, self.publish, self.renewal_thread.wake_threadsafe),
            AlertRules.parse(database.settings.alerts),
        )
        self.lock_renewals = LockRenewals(self.identity.instance, database.schema, self.alerts)
        self.once_renewals = OnceRenewals(database.schema)
        self.renewal_thread.add(self.lock_renewals)
        self.renewal_thread.add(self.once_renewals)
        self.renewal_thread.add(self.alerts)
        # Those who lead have a connection that no lock can cost them.
        self.election_thread = RenewalThread(database, "throne")
        self.elector = Elector(
            self.identity, database.schema, self.alerts, notify=database.settings.notify
        )
        self.election_thread.add(self.elector)

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be done here any more."""
        return self._closed or self._loop.is_closed()

    def publish(self, event: Event) -> None:
        """From any thread."""
        self.counters.count(event)
        self.call_in_loop(lambda: self._publish(event))

    def call_in_loop(self, callback: Callable[[], None]) -> None:
        """Have something done in this loop, from any thread."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return  # the loop is gone, and so is whom it would concern

    async def finish_even_if_cancelled(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await something that is done to its end, also if whoever awaits it is cancelled."""
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
        """Let go of what is held, and wake whoever waits for it. None: it has passed to somebody else."""
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
                log.debug("nobody was told that %s is free; they will look: %s", awaited, error)
        return released

    async def close(self) -> None:
        """What is still held is lost, and given back: who waits for it need not wait until it runs out."""
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
                log.warning("%s locks were not given back: %s", len(held), error)
        await self.renewal_thread.close()

    async def resign(self, reason: str, *, except_services: bool = False) -> None:
        """Lead nothing any more, and stand for nothing. `but_services`: they leave in their own time."""
        resigned = asyncio.Event()
        if self.elector.close(
            reason, lambda: self.call_in_loop(resigned.set), except_services=except_services
        ):
            self.election_thread.wake_threadsafe()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await resigned.wait()
            except TimeoutError:
                log.warning("who led has resigned, but could not say so")


class CoordinationCounters:
    """Told from any thread; that a count is off by one for a moment hurts nobody."""

    def __init__(self) -> None:
        self.locks_acquired = self.locks_lost = 0
        self.elections_won = self.terms_lost = 0
        self.wait_seconds = Histogram()
        """How long was waited for what was not free at once."""

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
