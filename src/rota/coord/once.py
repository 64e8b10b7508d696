"""Calls that are made once for a key: the first client makes the call, other clients receive its result.

While the call runs, the renewal thread renews its lease. The result is stored under the caller's token.
If the caller was frozen or cut off and another client has begun the call since, its result is refused. A
call that raises releases its key, and the next client makes the call. So each key gets one result, but a
crash during the call repeats the call.

All clients, the caller included, receive the result decoded from JSON.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any
from uuid import UUID

from rota.coord.acquire import AcquireLoop, QueryFactory
from rota.coord.coordinator import Coordinator
from rota.coord.lease import TAKEN_BY_OTHER, Lease
from rota.errors import Busy, LockLost
from rota.model import codec
from rota.model.result_types import reader_of_function
from rota.store import listeners, once_calls
from rota.store.once_calls import OnceStart
from rota.store.query import in_schema

log = logging.getLogger("rota")

RELEASE_TIMEOUT_SECONDS = 2.0
"""Seconds that the database has to answer."""


class OnceCall:
    """Request for the result of a key: `begin`, then `store_result` or `release` unless it existed."""

    def __init__(
        self,
        open_coordinator: Callable[[], Awaitable[Coordinator]],
        key: str,
        fn: Callable[..., Any],
        *,
        ttl: float,
        wait: float | None,
        retention: float | None,
    ) -> None:
        self.key = key
        self._open_coordinator = open_coordinator
        self._ttl = ttl
        self._wait = wait
        self._retention = retention
        self._label = getattr(fn, "__qualname__", type(fn).__qualname__)
        # First: if the result could not be stored, the call should not be made.
        self.decode_result = reader_of_function(fn)
        self._coordinator: Coordinator | None = None
        self._nonces: Sequence[UUID] = ()
        self._lease: Lease | None = None

    async def begin(self) -> str | None:
        """Return the stored result, or None if this client has to make the call."""
        self._coordinator = coordinator = await self._open_coordinator()
        acquire_loop = AcquireLoop(
            coordinator,
            once_calls.FINISHED_CHANNEL,
            self.key,
            self._ttl,
            self._query_factory(coordinator),
        )
        try:
            sent_at, answer = await acquire_loop.acquire(self._wait)
            if not answer.is_done:
                raise Busy(self._busy_message(answer))
        except BaseException:
            await coordinator.finish_even_if_cancelled(
                self._release_nonces(coordinator, acquire_loop.unconfirmed)
            )
            raise
        if answer.result is not None:
            return answer.result.decode()
        assert answer.token is not None
        self._nonces = acquire_loop.unconfirmed
        self._lease = Lease(
            *(self.key, 0, answer.token, self._ttl, sent_at, coordinator.clock), lambda why: None
        )
        coordinator.once_renewals.add(self._lease)
        coordinator.renewal_thread.wake_threadsafe()
        return None

    def _query_factory(self, coordinator: Coordinator) -> QueryFactory[OnceStart]:
        owner = coordinator.identity.as_params(self._label)
        return lambda nonce, earlier, wait: once_calls.begin(
            *(self.key, nonce, earlier, owner, self._ttl), wait=wait
        )

    def _busy_message(self, answer: OnceStart) -> str:
        if answer.host is None:
            return (
                f"once {self.key!r}: another instance is starting the call; wait for it with wait=…"
            )
        label = f" ({answer.label})" if answer.label else ""
        return (
            f"once {self.key!r}: the call is being made by {answer.host}, process {answer.pid}{label}, for "
            f"{answer.running_seconds or 0:.1f} s; wait longer with wait=…"
        )

    async def execute(self, fn: Callable[[], Any]) -> Any:
        """Make the call and store its result. A plain function is called in a thread."""
        if iscoroutinefunction(fn):
            return await self._execute(fn)
        # Cancelling the caller does not end the thread: it continues, and its result is stored.
        assert self._coordinator is not None
        return await self._coordinator.finish_even_if_cancelled(
            self._execute(lambda: _call_in_thread(fn))
        )

    async def _execute(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        coordinator = self._coordinator
        assert coordinator is not None
        try:
            value, text = self.encode_result(await fn())
        except BaseException:
            await coordinator.finish_even_if_cancelled(self.release())
            raise
        await self.store_result(text)
        return value

    def encode_result(self, value: Any) -> tuple[Any, str]:
        """Return the result of a call as clients will decode it, and as it is stored."""
        assert self._coordinator is not None
        limit = self._coordinator.database.settings.payload_limit
        text = codec.encode(value, f"the result of {self._label}", limit)
        return self.decode_result(text), text

    async def store_result(self, result: str) -> None:
        """Store the result, even if the caller is cancelled now.

        Raise LockLost if another client has begun the call since.
        """
        assert self._coordinator is not None
        assert self._lease is not None
        self._nonces = ()
        await self._coordinator.finish_even_if_cancelled(
            self._store_result(self._coordinator, self._lease, result)
        )

    async def _store_result(self, coordinator: Coordinator, lease: Lease, result: str) -> None:
        try:
            # The lease is renewed until the result is stored: the database may be unavailable for a moment.
            query = once_calls.finish(self.key, lease.token, result, self._retention)
            answers = await coordinator.database.run_with_retry(query)
        finally:
            reason = lease.lost_reason
            self._end_lease(coordinator, lease)
        if not answers:
            raise LockLost(
                f"once {self.key!r} (token {lease.token}): the call lost its lease "
                f"({reason or TAKEN_BY_OTHER}) and another instance has started it; this result was "
                "discarded"
            )
        await self._notify_waiters(coordinator, answers)

    async def release(self) -> None:
        """Release the key of a call that was begun and has no result, so that the next client makes it."""
        coordinator, lease, nonces = self._coordinator, self._lease, self._nonces
        if coordinator is not None and lease is not None and nonces:
            self._nonces = ()
            self._end_lease(coordinator, lease)
            await self._release_nonces(coordinator, nonces)

    async def _release_nonces(self, coordinator: Coordinator, nonces: Sequence[UUID]) -> None:
        if not nonces:
            return
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_SECONDS):
                query = once_calls.release(self.key, nonces)
                answers = await coordinator.database.run_with_retry(
                    query, outage_timeout=RELEASE_TIMEOUT_SECONDS
                )
        except Exception as error:
            log.debug("once %r may be held until its time is up: %s", self.key, error)
        else:
            await self._notify_waiters(coordinator, answers)

    def _end_lease(self, coordinator: Coordinator, lease: Lease) -> None:
        coordinator.once_renewals.remove(lease)
        lease.end()

    async def _notify_waiters(self, coordinator: Coordinator, answers: list[bool]) -> None:
        if any(answers) and coordinator.database.settings.notify:
            channel = in_schema(once_calls.FINISHED_CHANNEL, coordinator.database.schema)
            try:
                await coordinator.database.run(listeners.notify(channel, [self.key]))
            except Exception as error:
                log.debug("the end of once %r was not notified; waiters poll: %s", self.key, error)


async def _call_in_thread(fn: Callable[[], Any]) -> Any:
    value = await asyncio.to_thread(_call_guarded, fn)
    return await value if isinstance(value, Awaitable) else value


def _call_guarded(fn: Callable[[], Any]) -> Any:
    """Call `fn`. Replace StopIteration, which a future cannot raise, by a RuntimeError."""
    try:
        return fn()
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration") from error
