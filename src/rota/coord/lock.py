"""A lock, or a permit of a semaphore, from the first attempt to acquire it until its release.

Acquiring is one statement and releasing another; in between the renewal thread renews it. A program that
does not get the lock sets a flag on the lock's row and is notified of the release. It also polls, because a
holder that dies sends no notification.

A loss shows in three ways: `held` is false at once, by the clock, in any thread; `lost` is set in the
event loop as soon as the loop runs; leaving the block raises LockLost. None of them protects data.
Writes that must not happen twice are protected by the token: call `assert_held` in the transaction that
writes.

`CancelScope` cancels a block of code when its lease is lost and raises the reason instead of
CancelledError.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, TypeVar
from uuid import UUID

from rota.coord.acquire import AcquireLoop, QueryFactory
from rota.coord.coordinator import Coordinator
from rota.coord.lease import APP_CLOSED, TAKEN_BY_OTHER, Lease
from rota.errors import Busy, LockLost
from rota.model import events
from rota.store import locks, pg_errors
from rota.store.locks import LockAnswer
from rota.store.user_connection import run_on

log = logging.getLogger("rota")

OnLost = Literal["raise", "cancel"]
H = TypeVar("H", bound="LockHandle")

MAX_RELEASE_SECONDS, MIN_RELEASE_SECONDS = 5.0, 1.0
ABANDON_TIMEOUT_SECONDS = 2.0
"""Seconds that the database has to answer: limits for a release, and for abandoning an attempt."""

SEPARATE_HANDLE_HINT = "create another one with app.lock(…) or app.semaphore(…)"


class LockHandle:
    """A lock or, if `permits` is above 0, one permit of a semaphore with that many."""

    def __init__(
        self,
        open_coordinator: Callable[[], Awaitable[Coordinator]],
        name: str,
        permits: int,
        *,
        ttl: float,
        wait: float | None,
        max_held: float | None,
        label: str,
        on_lost: OnLost,
    ) -> None:
        self.name = name
        self.permits = permits
        self._open_coordinator = open_coordinator
        self._ttl = ttl
        self._wait = wait
        self._max_held = max_held
        self._label = label
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._coordinator: Coordinator | None = None
        self._cancel_scope: CancelScope | None = None
        self._is_acquiring = False
        self.lost = asyncio.Event()
        """Set when the lock is lost."""

    @property
    def kind(self) -> str:
        return "permit of" if self.permits else "lock"

    @property
    def _title(self) -> str:
        return f"{self.kind} {self.name!r}"

    @property
    def token(self) -> int:
        """Fencing token: larger than every earlier token."""
        return self._require_lease().token

    @property
    def permit(self) -> int:
        return self._require_lease().permit

    @property
    def held(self) -> bool:
        """True if the lock can be trusted now. Thread-safe, and correct also after the process was
        suspended."""
        return self._lease is not None and self._lease.is_held()

    # Acquire

    async def acquire(self: H) -> H:
        """Acquire the lock, waiting up to `wait`. Raise Busy after that."""
        await self._acquire(self._wait)
        return self

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free. Return True if it was."""
        try:
            await self._acquire(0.0)
        except Busy:
            return False
        return True

    async def _acquire(self, wait: float | None) -> None:
        if self._is_acquiring:
            raise RuntimeError(
                f"{self._title} is already being acquired through this object; {SEPARATE_HANDLE_HINT}"
            )
        if self._lease is not None and not self._has_ended(self._lease):
            raise RuntimeError(
                f"{self._title} is already held through this object; release it, or {SEPARATE_HANDLE_HINT}"
            )
        self._is_acquiring = True
        try:
            self._coordinator = coordinator = await self._open_coordinator()
            sent_at, answer = await self._run_acquire_loop(coordinator, wait)
        finally:
            self._is_acquiring = False
        assert answer.permit is not None
        assert answer.token is not None
        self.lost.clear()
        lease = Lease(
            *(self.name, answer.permit, answer.token, self._ttl, sent_at, coordinator.clock),
            lambda why: self._report_lost(coordinator, lease, why),
            self._max_held,
        )
        self._lease = lease
        coordinator.lock_renewals.add(lease)
        coordinator.renewal_thread.wake_threadsafe()
        coordinator.publish(events.LockAcquired(self.name, lease.token))

    async def _run_acquire_loop(
        self, coordinator: Coordinator, wait: float | None
    ) -> tuple[float, LockAnswer]:
        acquire_loop = AcquireLoop(
            coordinator,
            locks.RELEASED_CHANNEL,
            self.name,
            self._ttl,
            self._query_factory(coordinator),
        )
        began = coordinator.clock.now()
        try:
            sent_at, answer = await acquire_loop.acquire(wait)
            if not answer.is_done:
                raise Busy(self._busy_message(coordinator, answer))
        except BaseException:
            if acquire_loop.unconfirmed:
                await coordinator.finish_even_if_cancelled(
                    self._abandon(coordinator, acquire_loop.unconfirmed)
                )
            raise
        finally:
            if acquire_loop.has_waited and wait != 0:
                coordinator.counters.wait_seconds.add(coordinator.clock.now() - began)
        return sent_at, answer

    def _query_factory(self, coordinator: Coordinator) -> QueryFactory[LockAnswer]:
        owner = coordinator.identity.as_params(self._label)
        return lambda nonce, earlier, wait: locks.acquire(
            *(self.name, self.permits, nonce, owner, self._ttl, self._max_held),
            wait=wait,
            earlier_nonces=earlier,
        )

    async def _abandon(self, coordinator: Coordinator, nonces: list[UUID]) -> None:
        """Release the lock if an unconfirmed attempt has acquired it: no other code would release it."""
        query = locks.abandon(self.name, nonces, coordinator.identity.instance)
        try:
            async with asyncio.timeout(ABANDON_TIMEOUT_SECONDS):
                await coordinator.database.run_with_retry(
                    query, outage_timeout=ABANDON_TIMEOUT_SECONDS
                )
        except Exception as error:
            log.debug("%s may be held until it runs out: %s", self._title, error)

    def _busy_message(self, coordinator: Coordinator, answer: LockAnswer) -> str:
        if answer.host is None or (answer.expires_in is not None and answer.expires_in <= 0):
            return (
                f"{self._title} is asserted by an open transaction; "
                "`rota locks release` reports which one"
            )
        identity = coordinator.identity
        is_this_process = (answer.host, answer.pid) == (identity.host, identity.pid)
        holder = "this process" if is_this_process else f"{answer.host}, process {answer.pid}"
        label = f" ({answer.label})" if answer.label else ""
        subject = (
            f"all {self.permits} permits of {self.name!r} are held; one"
            if self.permits
            else (f"lock {self.name!r} is")
        )
        return (
            f"{subject} held by {holder}{label} under token {answer.holder_token} for "
            f"{answer.held_seconds or 0:.1f} s; "
            "wait longer with wait=…, or see `rota locks`"
        )

    # Loss

    def _report_lost(self, coordinator: Coordinator, lease: Lease, reason: str) -> None:
        """Report the loss. Called in the renewal thread, or in the thread that noticed the loss first."""
        coordinator.publish(events.LockForfeited(self.name, lease.token, reason))
        coordinator.call_in_loop(lambda: self._signal_lost(lease))

    def _signal_lost(self, lease: Lease) -> None:
        if lease is not self._lease:
            return  # acquired again since
        self.lost.set()
        if self._cancel_scope is not None and self._on_lost == "cancel":
            self._cancel_scope.cancel()

    def _has_ended(self, lease: Lease) -> bool:
        return lease.is_ended or lease.lost_reason is not None

    def _require_lease(self) -> Lease:
        if self._lease is None:
            raise RuntimeError(f"{self._title} has not been acquired")
        return self._lease

    async def assert_held(self, connection: Any) -> None:
        """Make the caller's transaction fail with LockLost if the lock is no longer held.

        Otherwise no other instance can acquire the lock until that transaction ends.
        """
        answer = self.run_assertion(connection)
        if isinstance(answer, Awaitable):
            await answer

    def run_assertion(self, connection: Any) -> Any:
        """Run `assert_held` on a connection of any kind. Return an awaitable if the connection is async."""
        lease, coordinator = self._require_lease(), self._coordinator
        assert coordinator is not None
        return run_on(
            connection, locks.assert_lock(lease.name, lease.token), coordinator.database.schema
        )

    # Release

    async def release(self) -> None:
        """Release the lock. Raise LockLost if it was lost before."""
        lease, coordinator = self._require_lease(), self._coordinator
        assert coordinator is not None
        if lease.is_ended:
            return
        reason = lease.lost_reason
        if not lease.is_inherited:
            # First, so that a renewal in progress does not report a loss when this release refuses it.
            lease.end()
            coordinator.lock_renewals.remove(lease)
            is_taken_by_other = reason != APP_CLOSED and await coordinator.finish_even_if_cancelled(
                self._release_lease(coordinator, lease)
            )
            if reason is None and is_taken_by_other:
                reason = TAKEN_BY_OTHER
        if reason is not None:
            raise LockLost(f"{self._title} (token {lease.token}) was lost: {reason}")
        coordinator.alerts.on_released(lease)
        coordinator.publish(events.LockReleased(self.name, lease.token))

    async def _release_lease(self, coordinator: Coordinator, lease: Lease) -> bool:
        """Release the lease. Return True if another instance has acquired it.

        While the database is unavailable this is unknown, and the lease expires by itself.
        """
        timeout = min(
            max(lease.trusted_until - coordinator.clock.now(), MIN_RELEASE_SECONDS),
            MAX_RELEASE_SECONDS,
        )
        try:
            async with asyncio.timeout(timeout):
                return await coordinator.release([lease], timeout) == [None]
        except TimeoutError:
            log.warning("%s could not be released in %.1f s", self._title, timeout)
        except Exception as error:
            if not pg_errors.may_pass(error):
                raise
            log.warning("%s could not be released: %s", self._title, error)
        return False

    async def __aenter__(self: H) -> H:
        if self._cancel_scope is not None:
            raise RuntimeError(
                f"{self._title} is already entered through this object; {SEPARATE_HANDLE_HINT}"
            )
        if self._lease is None or self._has_ended(self._lease):
            await self.acquire()
        self._cancel_scope = CancelScope()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        scope, self._cancel_scope = self._cancel_scope, None
        cancelled_by_scope = scope is not None and scope.finish(error)
        try:
            await self.release()
        except Exception as failure:
            if error is None:
                raise
            if cancelled_by_scope and isinstance(failure, LockLost):
                raise failure from None
            error.add_note(str(failure))
        return False


class CancelScope:
    """Cancellation of a block of code. Created when the block is entered, in the task that runs it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task is not None else 0
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the block once. Called in the block's event loop."""
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def finish(self, error: BaseException | None) -> bool:
        """Close the scope. Return True if the block ended only because this scope cancelled it."""
        task, self._task = self._task, None
        if task is None or not self._cancelled:
            return False
        has_other_cancels = task.uncancel() > self._cancels_before
        return isinstance(error, asyncio.CancelledError) and not has_other_cancels
