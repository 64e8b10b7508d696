"""Locks as an app hands them out, and their form for code that does not await."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from rota.coord.lock import LockHandle
from rota.errors import ArgumentError
from rota.store.user_connection import is_async

if TYPE_CHECKING:
    from rota.app.rota import Rota


class Lock(LockHandle):
    """A lock: `async with app.lock(…) as lock`, or `await lock.acquire()` and `await lock.release()`."""

    def __init__(self, app: Any, name: str, permits: int, **options: Any) -> None:
        super().__init__(app.coordinator, name, permits, **options)
        self._app: Rota = app

    @property
    def sync(self) -> SyncLock:
        """The same for code that does not await: `with app.lock(…).sync as lock`."""
        return SyncLock(self._app, self)

    def __repr__(self) -> str:
        state = f"token {self.token}" if self.held else "not held"
        return f"<{type(self).__name__} {self.name!r}, {state}>"


class Permit(Lock):
    """One of the permits of a semaphore: `async with app.semaphore(…) as permit`. All that a lock is."""


class SyncLock:
    """A lock for code that does not await. It is renewed by a thread like any other."""

    def __init__(self, app: Rota, lock: Lock) -> None:
        self._app = app
        self._lock = lock
        self.name = lock.name

    @property
    def token(self) -> int:
        """The number it is held under; the next holder's is larger."""
        return self._lock.token

    @property
    def held(self) -> bool:
        """Whether it can be relied on at this moment."""
        return self._lock.held

    def acquire(self) -> SyncLock:
        """Wait for it, as long as `wait` allows; then Busy is raised."""
        self._app.loop_thread.run(self._lock.acquire())
        return self

    def try_acquire(self) -> bool:
        """Take it if it is free."""
        return self._app.loop_thread.run(self._lock.try_acquire())

    def release(self) -> None:
        """Give it back."""
        self._app.loop_thread.run(self._lock.release())

    def assert_held(self, connection: Any) -> None:
        """As `await lock.assert_held(connection)`, for a connection that is not awaited."""
        if is_async(connection):
            raise ArgumentError(
                "this connection is to be awaited: await lock.assert_held(connection) of the lock itself"
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
