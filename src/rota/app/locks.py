"""Locks, permits and rate limits of an app, and their blocking versions."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from rota.app.sync import sync_method
from rota.coord.lock import LockHandle
from rota.coord.rate_limiter import RateLimiter
from rota.errors import ArgumentError
from rota.model.settings import Duration
from rota.store.user_connection import is_async

if TYPE_CHECKING:
    from rota.app.rota import Rota


class Lock(LockHandle):
    """Lock: `async with app.lock(…) as lock`, or `await lock.acquire()` and `await lock.release()`."""

    def __init__(self, app: Rota, name: str, permits: int, **options: Any) -> None:
        super().__init__(app.coordinator, name, permits, **options)
        self._app = app

    @property
    def sync(self) -> SyncLock:
        """Blocking version: `with app.lock(…).sync as lock`."""
        return SyncLock(self._app, self)

    def __repr__(self) -> str:
        state = f"token {self.token}" if self.held else "not held"
        return f"<{type(self).__name__} {self.name!r}, {state}>"


class Permit(Lock):
    """Permit of a semaphore: `async with app.semaphore(…) as permit`. It has the methods of a lock."""


class SyncLock:
    """Blocking version of a lock. The same thread renews it."""

    def __init__(self, app: Rota, lock: Lock) -> None:
        self._app = app
        self._wrapped = lock
        self.name = lock.name

    @property
    def token(self) -> int:
        """Fencing token; the token of the next holder is larger."""
        return self._wrapped.token

    @property
    def held(self) -> bool:
        """True if the holder may trust the lock at this moment."""
        return self._wrapped.held

    def acquire(self) -> SyncLock:
        """Wait for the lock, up to `wait`; then raise Busy."""
        self._app.loop_thread.run(self._wrapped.acquire())
        return self

    try_acquire = sync_method(Lock.try_acquire)
    release = sync_method(Lock.release)

    def assert_held(self, connection: Any) -> None:
        """Blocking version of `lock.assert_held(connection)`, for a synchronous connection."""
        if is_async(connection):
            raise ArgumentError(
                "this connection is async: use await lock.assert_held(connection) without .sync"
            )
        self._wrapped.run_assertion(connection)

    def __enter__(self) -> SyncLock:
        self._app.loop_thread.run(self._wrapped.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._app.loop_thread.run(self._wrapped.__aexit__(None, None, None))
        except Exception as failure:
            if error is None:
                raise
            error.add_note(str(failure))


class RateLimit(RateLimiter):
    """Rate limit over all instances: call `await rate.take()` before each use."""

    def __init__(self, app: Rota, name: str, limit: float, per: Duration, burst: int) -> None:
        super().__init__(app.coordinator, name, limit, per, burst)
        self._app = app

    @property
    def sync(self) -> SyncRateLimit:
        """Blocking version: `rate.sync.take()`."""
        return SyncRateLimit(self._app, self)


class SyncRateLimit:
    """Blocking version of a rate limit."""

    def __init__(self, app: Rota, rate_limit: RateLimit) -> None:
        self._app = app
        self._wrapped = rate_limit
        self.name = rate_limit.name

    take = sync_method(RateLimit.take)
    try_take = sync_method(RateLimit.try_take)
