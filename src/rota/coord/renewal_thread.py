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
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from rota.clock import Timer
from rota.coord.alert_sources import CoordinationAlerts
from rota.coord.lease import EXPIRED, TAKEN_BY_OTHER, Lease
from rota.coord.lease_clock import LeaseClock
from rota.loop import Loop
from rota.store import locks, once_calls, pg_errors
from rota.store.database import Database, pipeline

if TYPE_CHECKING:
    from rota.store.connection import PgConnection


log = logging.getLogger("rota")

T = TypeVar("T")

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


class RenewalThread(Loop):
    """Thread of one event loop, which ends with that loop.

    Leases of a closed loop are not released; they expire.
    """

    def __init__(self, database: Database, name: str, clock: LeaseClock) -> None:
        super().__init__()
        self.name = name
        self._database = database
        self._clock = clock
        self._owner_loop = asyncio.get_running_loop()
        self._tasks: list[RenewalTask] = []
        self._connection: PgConnection | None = None
        self._last_used = 0.0
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._turn_timer: Timer | None = None
        self._expiry_timer: Timer | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = False

    # Thread-safe

    def add(self, task: RenewalTask) -> None:
        self._tasks = [*self._tasks, task]

    def remove(self, task: RenewalTask) -> None:
        """Remove a task. Its leases are the caller's responsibility."""
        self._tasks = [each for each in self._tasks if each is not task]

    def wake_threadsafe(self) -> None:
        """Recompute the next turn, because a task may be due earlier."""
        self._call_in_thread(self._reschedule)

    async def run_in_thread(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine function in this thread, called from another event loop."""
        loop = self._ensure_started()

        async def run_once() -> T:
            return await call()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run_once(), loop))

    async def close(self) -> None:
        with self._start_lock:
            self._closed = True
            thread = self._thread
        if thread is not None:
            self._call_in_thread(self.stop)
            await asyncio.to_thread(thread.join, 2.0)

    def _call_in_thread(self, callback: Callable[[], None]) -> None:
        try:
            self._ensure_started().call_soon_threadsafe(callback)
        except RuntimeError:
            return  # the thread has ended

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._start_lock:
            if self._thread_loop is None:
                if self._closed:
                    raise RuntimeError("this app has been closed")
                self._thread_loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._thread_main,
                    args=(self._thread_loop,),
                    name=f"rota {self.name}",
                    daemon=True,
                )
                self._thread.start()
            return self._thread_loop

    # Runs in the thread

    def _thread_main(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        try:
            await self.run()
        finally:
            await self._disconnect()

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
                await self._disconnect()
                return None
        self._set_turn_timer(due_at)
        return None

    async def _renew_all(self, tasks: list[RenewalTask]) -> None:
        # The minimum over all tasks: another task may become due before this turn ends.
        timeout = min(task.timeout for task in self._tasks)
        self.max_error_delay_seconds = min(MAX_ERROR_DELAY_SECONDS, timeout * ERROR_DELAY_SHARE)
        try:
            async with asyncio.timeout(timeout):
                connection = await self._ensure_connected()
            # An overdue answer closes the connection. Cancelling the statement and waiting for the server's
            # reply would take half a second longer.
            connection.answer_timeout = timeout * ANSWER_TIMEOUT_SHARE
            for task in tasks:
                async with asyncio.timeout(timeout):
                    await self._renew(task, connection)
            self._last_used = self._clock.now()
        except BaseException:
            await self._disconnect()
            raise

    async def _renew(self, task: RenewalTask, connection: PgConnection) -> None:
        self._unwatch_socket(connection)
        try:
            await task.renew(connection)
        except Exception as error:
            # Another transaction holds the lock: the task is retried, and the connection stays usable.
            if not pg_errors.is_contended(error):
                raise
            log.debug("%s has to wait: %s", type(task).__name__.lower(), error)
        self._watch_socket(connection)

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

    # Connection

    async def _ensure_connected(self) -> PgConnection:
        if self._connection is not None and self._connection.closed:
            await self._disconnect()
        if self._connection is None:
            # With the engine's settings: the statements pass many rows, and need the plan that uses the
            # index.
            self._connection = await self._database.connect(engine=True, direct=True)
        return self._connection

    def _watch_socket(self, connection: PgConnection) -> None:
        """Drop the connection as soon as the server closes it, instead of at the next turn.

        The socket becomes readable although no statement is in flight: most likely the server closed it,
        and released the session locks it held.
        """

        def on_readable() -> None:
            try:
                connection.pgconn.consume_input()
                return  # only a message: a changed setting, or a notice of the shutdown
            except Exception as error:
                log.debug("the server has hung up: %s", error)
            self._unwatch_socket(connection)
            if connection is self._connection:
                self._drop_connection()
                self._closing = asyncio.create_task(connection.close())
                self.wake()

        if not connection.closed:
            asyncio.get_running_loop().add_reader(connection.pgconn.socket, on_readable)

    def _unwatch_socket(self, connection: PgConnection) -> None:
        if not connection.closed:
            asyncio.get_running_loop().remove_reader(connection.pgconn.socket)

    async def _disconnect(self) -> None:
        connection = self._connection
        if connection is None:
            return
        self._drop_connection()
        if not connection.closed:
            self._unwatch_socket(connection)
            await connection.close()

    def _drop_connection(self) -> None:
        """Drop the connection before it is closed, so that no task trusts a lock that the session held."""
        self._connection = None
        for task in self._tasks:
            task.connection_lost()


def earliest(times: Iterable[float]) -> float:
    """Return the earliest of some times, or `math.inf` if there are none."""
    return min(times, default=math.inf)


MAX_RENEW_SECONDS = 5.0
"""Seconds that a turn may take at most."""

EARLY_RENEWAL_SHARE = 0.2
"""Leases due within this share of their ttl are renewed together with those that are due now."""


class LockRenewals:
    def __init__(
        self, instance: UUID, schema: str, alerts: CoordinationAlerts, clock: LeaseClock
    ) -> None:
        self._instance = instance
        self._clock = clock
        self._schema = schema
        self._alerts = alerts
        self._leases: dict[int, Lease] = {}

    def add(self, lease: Lease) -> None:
        self._leases[lease.token] = lease
        self._alerts.watch(lease)

    def remove(self, lease: Lease) -> None:
        self._leases.pop(lease.token, None)
        self._alerts.unwatch(lease)

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
        held = [(each.name, each.token, each.ttl) for each in leases.values()]
        query = locks.renew(self._instance, held)
        [[answers]] = await pipeline(connection, [[query]], self._schema)
        for answer in answers:
            lease = leases[answer.token]
            if answer.token not in self._leases:
                continue  # released meanwhile, so the renewal may have been refused
            if answer.renewed:
                lease.extend(now)
                self._alerts.on_renewed(lease)
            elif answer.renewed is None:
                log.debug(
                    "the row of lock %r is locked by another transaction; retrying", lease.name
                )
            else:
                if answer.is_duplicate:
                    self._alerts.on_duplicate_token(lease)
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
        """Do nothing: locks are rows and do not depend on a connection."""

    def _mark_lost(self, lease: Lease, reason: str) -> None:
        self.remove(lease)
        if lease.mark_lost(reason):
            log.warning("lock %r (token %s) is lost: %s", lease.name, lease.token, reason)

    def _held_leases(self) -> list[Lease]:
        return list(self._leases.values())


class OnceRenewals:
    """Leases of once calls.

    After its lease is lost, a call may still store its result, unless another client has begun the call.
    """

    def __init__(self, schema: str, clock: LeaseClock) -> None:
        self._schema = schema
        self._clock = clock
        self._leases: dict[int, Lease] = {}

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
        query = once_calls.renew([(each.name, each.token, each.ttl) for each in leases.values()])
        [[answers]] = await pipeline(connection, [[query]], self._schema)
        for answer in answers:
            lease = leases[answer.token]
            if answer.token not in self._leases:
                continue  # ended meanwhile
            if answer.renewed:
                lease.extend(now)
            elif answer.renewed is not None:
                self._mark_lost(lease, TAKEN_BY_OTHER)

    def expire(self) -> None:
        now = self._clock.now()
        for lease in self._held_leases():
            if lease.trusted_until <= now:
                self._mark_lost(lease, EXPIRED)

    def connection_lost(self) -> None:
        """Do nothing: once calls are rows and do not depend on a connection."""

    def _mark_lost(self, lease: Lease, reason: str) -> None:
        self.remove(lease)
        if lease.mark_lost(reason):
            log.warning(
                "once %r (token %s) lost its lease, and another instance may start the call: %s",
                lease.name,
                lease.token,
                reason,
            )

    def _held_leases(self) -> list[Lease]:
        return list(self._leases.values())
