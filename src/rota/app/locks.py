"""Locks and permits of an app, and their blocking versions."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from rota.coord.lock import LockHandle
from rota.errors import ArgumentError
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
        self._lock = lock
        self.name = lock.name

    @property
    def token(self) -> int:
        """Fencing token; the token of the next holder is larger."""
        return self._lock.token

    @property
    def held(self) -> bool:
        """True if the holder may trust the lock at this moment."""
        return self._lock.held

    def acquire(self) -> SyncLock:
        """Wait for the lock, up to `wait`; then raise Busy."""
        self._app.loop_thread.run(self._lock.acquire())
        return self

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, and return True if so."""
        return self._app.loop_thread.run(self._lock.try_acquire())

    def release(self) -> None:
        """Blocking version of `lock.release()`."""
        self._app.loop_thread.run(self._lock.release())

    def assert_held(self, connection: Any) -> None:
        """Blocking version of `lock.assert_held(connection)`, for a synchronous connection."""
        if is_async(connection):
            raise ArgumentError(
                "this connection is async: use await lock.assert_held(connection) without .sync"
            )
        self._lock.run_assertion(connection)

    def __enter__(self) -> SyncLock:
        self._app.loop_thread.run(self._lock.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._app.loop_thread.run(self._lock.__aexit__(None, None, None))
        except Exception as failure:
            if error is None:
                raise
            error.add_note(str(failure))
