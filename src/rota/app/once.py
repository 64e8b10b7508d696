"""Calls that are made once, as an app offers them; and what it does for code that does not await."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.app.coordination import SHORTEST, WEEK, Coordination
from rota.coord.insert import Inserted, insert_once_blocking
from rota.coord.once import Call
from rota.errors import ArgumentError
from rota.model import codec
from rota.model.settings import Duration, seconds

if TYPE_CHECKING:
    from rota.app.blocking import BlockingRun
    from rota.app.rota import Rota
    from rota.engine import call as jobs

R = TypeVar("R")

LONGEST_KEY = 500


def called(
    app: Coordination,
    key: str,
    fn: Callable[..., Any],
    wait: Duration | None,
    keep: Duration | None,
    ttl: Duration,
) -> Call:
    if not 1 <= len(key) <= LONGEST_KEY or codec.storable(key) != key:
        raise ArgumentError(
            f"a key is 1 to {LONGEST_KEY} characters, without NUL or lone surrogates"
        )
    if not seconds(ttl) >= SHORTEST:
        raise ArgumentError(
            f"ttl is {seconds(ttl):g} s: too short to be renewed in time; {SHORTEST:g} s at least"
        )
    if keep is not None and not seconds(keep) > 0:
        raise ArgumentError(
            f"keep is {seconds(keep):g} s: a result that is not kept is nobody's; above 0, or None for ever"
        )
    return Call(
        app.company,
        key,
        fn,
        ttl=seconds(ttl),
        wait=None if wait is None else max(seconds(wait), 0.0),
        keep=None if keep is None else seconds(keep),
    )


async def once(call: Call, fn: Callable[[], Any]) -> Any:
    kept = await call.begin()
    return await call.make(fn) if kept is None else call.read(kept)


class Blocking:
    """What an app does for code that does not await."""

    def __init__(self, app: Rota) -> None:
        self._app = app

    @overload
    def start_many(self, calls: Sequence[jobs.Call[R]]) -> list[BlockingRun[R]]: ...
    @overload
    def start_many(self, calls: Sequence[jobs.FlowCall]) -> list[BlockingRun[dict[str, Any]]]: ...
    def start_many(self, calls: Sequence[Any]) -> list[Any]:
        """As `await app.start_many(…)`."""
        return [run.blocking for run in self._app.portal.run(self._app.start_many(calls))]

    @overload
    def once(
        self,
        key: str,
        fn: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        wait: Duration | None = None,
        keep: Duration | None = WEEK,
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
        keep: Duration | None = WEEK,
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
        keep: Duration | None = WEEK,
        ttl: Duration = 30.0,
        **kwargs: Any,
    ) -> Any:
        """As `await app.once(…)`. A plain function is called in this thread."""
        run = self._app.portal.run
        call = called(self._app, key, fn, wait, keep, ttl)
        bound = partial(fn, *args, **kwargs)
        if iscoroutinefunction(bound):
            return run(once(call, bound))
        try:
            kept = run(call.begin())
            if kept is not None:
                return call.read(kept)
            value = bound()
            if isinstance(value, Awaitable):
                value = run(_awaited(value))
            value, text = call.reckon(value)
            run(call.keep(text))
            return value
        except BaseException:
            run(call.free())
            raise

    def insert_once(
        self,
        connection: Any,
        table: str | Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        *,
        conflict: Sequence[str],
    ) -> Inserted:
        """As `await app.insert_once(…)`, for a connection that is not awaited."""
        return insert_once_blocking(connection, table, rows, conflict)


async def _awaited(value: Awaitable[R]) -> R:
    return await value
