"""The thread that renews leases in time and reports a loss at once.

It has its own connection, so neither a blocked event loop nor an exhausted pool costs a lock. Its tasks
(lock renewals, once calls, elections) take turns on that connection. The thread starts when the first
renewal is due and ends after a while without any: a lock held for a moment never starts it. All locks
and permits that are due are renewed in one statement, and so are all once calls.

A loss is decided by the clock and not by an answer: while the connection hangs, a lease that expires is
reported lost on time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from rota.clock import Timer
from rota.coord.alert_sources import CoordinationAlerts
from rota.coord.lease import EXPIRED, TAKEN_BY_OTHER, Lease, LeaseClock
from rota.store import locks, once_calls, pg_errors
from rota.store.connection_thread import ConnectionThread
from rota.store.database import Database, pipeline
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.store.connection import PgConnection


log = logging.getLogger("rota")

IDLE_CONNECTION_SECONDS = 20.0
"""Seconds that an unused connection stays open."""

ANSWER_TIMEOUT_SHARE = 0.9
"""Share of a turn's timeout that one answer may take."""

MAX_ERROR_DELAY_SECONDS = 0.5
ERROR_DELAY_SHARE = 0.4
"""Limits of the pause after a failed turn: in seconds, and as a share of the turn's timeout."""


class RenewalTask(Protocol):
    """Task of a renewal thread.

    Times are those of the lease clock; `math.inf` means never. All methods are called in the thread.
    """

    @property
    def timeout(self) -> float:
        """Seconds that one turn may take."""
        ...

    def due_at(self) -> float:
        """Return the time of its next turn."""
        ...

    async def renew(self, connection: PgConnection) -> None: ...

    def next_expiry(self) -> float:
        """Return when the first of its leases is lost unless it is renewed before."""
        ...

    def expire(self) -> None:
        """Mark leases as lost that cannot be trusted any more."""
        ...

    def connection_lost(self) -> None:
        """React to the loss of the connection, and of everything the server bound to it."""
        ...


class RenewalThread(ConnectionThread):
    """Thread of one event loop, which ends with that loop.

    Leases of a closed loop are not released; they expire.
    """

    def __init__(self, database: Database, name: str, clock: LeaseClock) -> None:
        # With the engine's settings: the statements pass many rows, and need the plan that uses the index.
        super().__init__(database, engine=True)
        self.name = name
        self._clock = clock
        self._owner_loop = asyncio.get_running_loop()
        self._tasks: list[RenewalTask] = []
        self._last_used = 0.0
        self._turn_timer: Timer | None = None
        self._expiry_timer: Timer | None = None

    # Thread-safe

    def add(self, task: RenewalTask) -> None:
        self._tasks = [*self._tasks, task]

    def remove(self, task: RenewalTask) -> None:
        """Remove a task. Its leases are the caller's responsibility."""
        self._tasks = [each for each in self._tasks if each is not task]

    def wake_threadsafe(self) -> None:
        """Recompute the next turn, because a task may be due earlier."""
        self.call_in_thread(self._reschedule)

    async def close(self) -> None:
        self.request_stop()
        await self.join(2.0)

    # Runs in the thread

    async def tick(self) -> float | None:
        if self._owner_loop.is_closed():
            self.stop()
            return None
        now = self._clock.now()
        due = [task for task in self._tasks if task.due_at() <= now]
        try:
            if due:
                await self._renew_all(due)
        finally:
            # Also for leases acquired in a turn that failed later.
            self._set_expiry_timer()
        due_at = earliest(task.due_at() for task in self._tasks)
        if self._connection is not None and math.isinf(due_at):
            due_at = self._last_used + IDLE_CONNECTION_SECONDS
            if due_at <= self._clock.now():
                await self.disconnect()
                return None
        self._set_turn_timer(due_at)
        return None

    async def _renew_all(self, tasks: list[RenewalTask]) -> None:
        # The minimum over all tasks: another task may become due before this turn ends.
        timeout = min(task.timeout for task in self._tasks)
        self.max_error_delay_seconds = min(MAX_ERROR_DELAY_SECONDS, timeout * ERROR_DELAY_SHARE)
        try:
            async with asyncio.timeout(timeout):
                connection = await self.ensure_connected()
            # An overdue answer closes the connection. Cancelling the statement and waiting for the server's
            # reply would take half a second longer.
            connection.answer_timeout = timeout * ANSWER_TIMEOUT_SHARE
            for task in tasks:
                async with asyncio.timeout(timeout):
                    await self._renew(task, connection)
            self._last_used = self._clock.now()
        except BaseException:
            await self.disconnect()
            raise

    async def _renew(self, task: RenewalTask, connection: PgConnection) -> None:
        with self.unwatched(connection):
            try:
                await task.renew(connection)
            except Exception as error:
                # Another transaction holds the lock: the task is retried, and the connection stays usable.
                if not pg_errors.is_contended(error):
                    raise
                log.debug("%s has to wait: %s", type(task).__name__.lower(), error)

    def on_connection_lost(self) -> None:
        for task in self._tasks:
            task.connection_lost()

    # Timers

    def _set_turn_timer(self, due_at: float) -> None:
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        self._turn_timer = None if math.isinf(due_at) else self._clock.call_at(due_at, self.wake)

    def _reschedule(self) -> None:
        self._set_expiry_timer()
        self.wake()

    def _set_expiry_timer(self) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        expires_at = earliest(task.next_expiry() for task in self._tasks)
        if not math.isinf(expires_at):
            self._expiry_timer = self._clock.call_at(expires_at, self._expire)

    def _expire(self) -> None:
        for task in self._tasks:
            task.expire()
        self._set_expiry_timer()


def earliest(times: Iterable[float]) -> float:
    """Return the earliest of some times, or `math.inf` if there are none."""
    return min(times, default=math.inf)


MAX_RENEW_SECONDS = 5.0
"""Seconds that a turn may take at most."""

EARLY_RENEWAL_SHARE = 0.2
"""Leases due within this share of their ttl are renewed together with those that are due now."""


class LeaseRenewals:
    """Renewal task for leases of one kind, which are renewed with one statement.

    A subclass knows the statement. `on_renewed` and `on_refused` run in the thread.
    """

    lost_message: str
    """Log message on a lost lease, with its name, its token and the reason."""

    def __init__(self, schema: str, clock: LeaseClock) -> None:
        self._schema = schema
        self._clock = clock
        self._leases: dict[int, Lease] = {}

    def query(self, held: list[tuple[str, int, float]]) -> Query[Any]:
        raise NotImplementedError

    def on_renewed(self, lease: Lease) -> None: ...

    def on_refused(self, lease: Lease, answer: Any) -> None: ...

    def add(self, lease: Lease) -> None:
        self._leases[lease.token] = lease

    def remove(self, lease: Lease) -> None:
        self._leases.pop(lease.token, None)

    @property
    def timeout(self) -> float:
        return min(MAX_RENEW_SECONDS, earliest(lease.ttl / 4 for lease in self._held_leases()))

    def due_at(self) -> float:
        return earliest(lease.renew_at for lease in self._held_leases())

    def next_expiry(self) -> float:
        return earliest(lease.trusted_until for lease in self._held_leases())

    async def renew(self, connection: PgConnection) -> None:
        now = self._clock.now()
        leases = {
            lease.token: lease
            for lease in self._held_leases()
            if lease.renew_at <= now + lease.ttl * EARLY_RENEWAL_SHARE
        }
        if not leases:
            return
        for lease in leases.values():
            # Retry soon if this fails.
            lease.renew_at = now + min(lease.ttl / 10, 1.0)
        query = self.query([(each.name, each.token, each.ttl) for each in leases.values()])
        [[answers]] = await pipeline(connection, [[query]], self._schema)
        for answer in answers:
            lease = leases[answer.token]
            if answer.token not in self._leases:
                continue  # released meanwhile, so the renewal may have been refused
            if answer.renewed:
                lease.extend(now)
                self.on_renewed(lease)
            elif answer.renewed is None:
                log.debug("the row of %r is locked by another transaction; retrying", lease.name)
            else:
                self.on_refused(lease, answer)
                self._mark_lost(lease, TAKEN_BY_OTHER)

    def expire(self) -> None:
        now = self._clock.now()
        for lease in self._held_leases():
            if lease.trusted_until <= now:
                self._mark_lost(lease, EXPIRED)

    def mark_all_lost(self, reason: str) -> list[Lease]:
        """Mark all leases as lost, because they will not be renewed. Return those held until now."""
        held = [lease for lease in self._held_leases() if lease.is_held()]
        for lease in held:
            self._mark_lost(lease, reason)
        return held

    def connection_lost(self) -> None:
        """Do nothing: leases are rows and do not depend on a connection."""

    def _mark_lost(self, lease: Lease, reason: str) -> None:
        self.remove(lease)
        if lease.mark_lost(reason):
            log.warning(self.lost_message, lease.name, lease.token, reason)

    def _held_leases(self) -> list[Lease]:
        return list(self._leases.values())


class LockRenewals(LeaseRenewals):
    """Leases of locks and permits, which raise alerts."""

    lost_message = "lock %r (token %s) is lost: %s"

    def __init__(
        self, instance: UUID, schema: str, alerts: CoordinationAlerts, clock: LeaseClock
    ) -> None:
        super().__init__(schema, clock)
        self._instance = instance
        self._alerts = alerts

    def query(self, held: list[tuple[str, int, float]]) -> Query[Any]:
        return locks.renew(self._instance, held)

    def add(self, lease: Lease) -> None:
        super().add(lease)
        self._alerts.watch(lease)

    def remove(self, lease: Lease) -> None:
        super().remove(lease)
        self._alerts.unwatch(lease)

    def on_renewed(self, lease: Lease) -> None:
        self._alerts.on_renewed(lease)

    def on_refused(self, lease: Lease, answer: Any) -> None:
        if answer.is_duplicate:
            self._alerts.on_duplicate_token(lease)


class OnceRenewals(LeaseRenewals):
    """Leases of once calls.

    After its lease is lost, a call may still store its result, unless another client has begun the call.
    """

    lost_message = "once %r (token %s) lost its lease, and another instance may start the call: %s"

    def query(self, held: list[tuple[str, int, float]]) -> Query[Any]:
        return once_calls.renew(held)
