"""`once` calls of an app, and the blocking methods of an app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.app.coordination import WEEK, check_ttl
from rota.coord.insert_once import Inserted, insert_once_sync
from rota.coord.once import OnceCall
from rota.errors import ArgumentError
from rota.model import codec
from rota.model.settings import Duration, to_seconds

if TYPE_CHECKING:
    from rota.app.rota import Rota
    from rota.app.sync import SyncRun
    from rota.coord.coordinator import Coordinator
    from rota.engine.execution import call as jobs

R = TypeVar("R")

MAX_KEY_CHARS = 500


def prepare_call(
    open_coordinator: Callable[[], Awaitable[Coordinator]],
    key: str,
    fn: Callable[..., Any],
    wait: Duration | None,
    retention: Duration | None,
    ttl: Duration,
) -> OnceCall:
    if not codec.is_storable(key, MAX_KEY_CHARS):
        raise ArgumentError(
            f"a key is 1 to {MAX_KEY_CHARS} characters, without NUL or lone surrogates"
        )
    ttl = check_ttl(ttl)
    if retention is not None and not to_seconds(retention) > 0:
        raise ArgumentError(
            f"retention is {to_seconds(retention):g} s: the result would never be stored; pass more than "
            "0 s, or None to keep it forever"
        )
    return OnceCall(
        open_coordinator,
        key,
        fn,
        ttl=ttl,
        wait=None if wait is None else max(to_seconds(wait), 0.0),
        retention=None if retention is None else to_seconds(retention),
    )


async def run_once(call: OnceCall, fn: Callable[[], Any]) -> Any:
    stored = await call.begin()
    return await call.execute(fn) if stored is None else call.decode_result(stored)


class SyncRota:
    """Blocking methods of an app."""

    def __init__(self, app: Rota) -> None:
        self._app = app

    @overload
    def start_many(self, calls: Sequence[jobs.BoundTask[R]]) -> list[SyncRun[R]]: ...
    @overload
    def start_many(self, calls: Sequence[jobs.BoundFlow]) -> list[SyncRun[dict[str, Any]]]: ...
    def start_many(self, calls: Sequence[Any]) -> list[Any]:
        """Blocking version of `app.start_many(…)`."""
        return [run.sync for run in self._app.loop_thread.run(self._app.start_many(calls))]

    @overload
    def once(
        self,
        key: str,
        fn: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        wait: Duration | None = None,
        retention: Duration | None = WEEK,
        ttl: Duration = 30.0,
        **kwargs: Any,
    ) -> R: ...
    @overload
    def once(
        self,
        key: str,
        fn: Callable[..., R],
        /,
        *args: Any,
        wait: Duration | None = None,
        retention: Duration | None = WEEK,
        ttl: Duration = 30.0,
        **kwargs: Any,
    ) -> R: ...
    def once(
        self,
        key: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        wait: Duration | None = None,
        retention: Duration | None = WEEK,
        ttl: Duration = 30.0,
        **kwargs: Any,
    ) -> Any:
        """Blocking version of `app.once(…)`. A plain function runs in this thread."""
        run = self._app.loop_thread.run
        call = prepare_call(self._app.coordinator, key, fn, wait, retention, ttl)
        bound = partial(fn, *args, **kwargs)
        if iscoroutinefunction(bound):
            return run(run_once(call, bound))
        try:
            stored = run(call.begin())
            if stored is not None:
                return call.decode_result(stored)
            value = bound()
            if isinstance(value, Awaitable):
                value = run(_await_value(value))
            value, text = call.encode_result(value)
            run(call.store_result(text))
            return value
        except BaseException:
            run(call.release())
            raise

    def insert_once(
        self,
        connection: Any,
        table: str | Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        *,
        conflict: Sequence[str],
    ) -> Inserted:
        """Blocking version of `app.insert_once(…)`, for a synchronous connection."""
        return insert_once_sync(connection, table, rows, conflict)


async def _await_value(value: Awaitable[R]) -> R:
    return await value
