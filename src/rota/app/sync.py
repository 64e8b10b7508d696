"""Blocking versions of async methods.

One generic adapter turns a coroutine function into a blocking one with the same parameters and result. The
coroutine runs in the app's own event loop, in a separate thread, so it works inside and outside of other
loops.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from rota.app.run import Run

if TYPE_CHECKING:
    import asyncio

    from rota.app.rota import Rota

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
W = TypeVar("W", covariant=True)


class LoopThread:
    """Event loop in a thread, started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._parent_loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        import asyncio

        if self._pid != os.getpid():
            # After a fork: the loop belongs to the parent process, and its thread does not exist here. The
            # loop is kept, because closing it would affect file descriptors that both processes share.
            self._lock, self._pid = threading.Lock(), os.getpid()
            self._parent_loop, self._loop, self._thread = self._loop, None, None
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="rota blocking", daemon=True
                )
                self._thread.start()
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call inside Rota's own loop would wait for itself")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


class SyncVersion(Protocol[W]):
    """Blocking version of an object, with the object and its app."""

    @property
    def _app(self) -> Rota: ...
    @property
    def _wrapped(self) -> W: ...


def sync_method(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncVersion[W], P], T]:
    def call(self: SyncVersion[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._app.loop_thread.run(method(self._wrapped, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]  # its signature is shown
    return call


class SyncRun(Generic[R]):
    """Blocking version of a run."""

    def __init__(self, app: Rota, run: Run[R]) -> None:
        self._app = app
        self._wrapped = run
        self.id = run.id
        self.created = run.created

    def result(self, timeout: Any = None) -> R:
        """Wait for the run and return its result."""
        return self._app.loop_thread.run(self._wrapped.result(timeout))

    status = sync_method(Run.status)
    cancel = sync_method(Run.cancel)
    retry = sync_method(Run.retry)
    release = sync_method(Run.release)
    signal = sync_method(Run.signal)
    explain = sync_method(Run.explain)

    def __repr__(self) -> str:
        return repr(self._wrapped)
