"""Coordination methods of an app: locks, semaphores, rate limits, leaders and
services. They need no task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.settings import Duration, to_seconds

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.locks import Lock, Permit
    from rota.app.once import SyncRota
    from rota.app.rates import RateLimit
    from rota.coord.coordinator import Coordinator
    from rota.coord.insert_once import Inserted
    from rota.coord.leader import Callback, Leader
    from rota.coord.lock import OnLost
    from rota.model.registry import Registry
    from rota.model.service import ServiceContext

F = TypeVar("F", bound="Callable[[ServiceContext], object] | Callable[[], object]")
R = TypeVar("R")

MIN_TTL_SECONDS = 0.2
MIN_LEASE_SECONDS = 1.0
MAX_LEASE_SECONDS = 86_400.0
MAX_NAME_CHARS = 200
MAX_PERMITS = 1000
WEEK = timedelta(days=7)


class CoordinationMethods:
    """Coordination methods of `Rota`."""

    registry: Registry

    async def open(self) -> Client:
        raise NotImplementedError

    async def coordinator(self) -> Coordinator:
        return (await self.open()).coordinator

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = 30.0,
        wait: Duration | None = None,
        max_held: Duration | None = None,
        label: str = "",
        on_lost: OnLost = "raise",
    ) -> Lock:
        """Return a lock that one instance holds at a time: `async with app.lock("invoices") as lock`.

        The lease lasts `ttl` seconds, and a thread renews it. It expires only if this program dies, freezes
        or cannot reach the database for that long. Work that two holders must never do belongs in a
        transaction that begins with `await lock.assert_held(connection)`.

        wait       maximum seconds to wait for the lock; then Busy is raised
        max_held   an alert is raised if the lock is held longer than this
        on_lost    "raise": leaving the block raises LockLost; "cancel": losing the lock cancels the block
        """
        from rota.app.locks import Lock

        return Lock(self, name, 0, **_lock_options(name, ttl, wait, max_held, label, on_lost))

    async def try_lock(
        self,
        name: str,
        *,
        ttl: Duration = 30.0,
        max_held: Duration | None = None,
        label: str = "",
        on_lost: OnLost = "raise",
    ) -> Lock | None:
        """Acquire the lock and return it; return None if it is not free."""
        lock = self.lock(name, ttl=ttl, wait=0, max_held=max_held, label=label, on_lost=on_lost)
        return lock if await lock.try_acquire() else None

    @property
    def sync(self) -> SyncRota:
        """Blocking methods: `app.sync.start_many(…)`, `once(…)` and `insert_once(…)`."""
        from rota.app.once import SyncRota

        return SyncRota(self)  # type: ignore[arg-type]

    def semaphore(
        self,
        name: str,
        n: int,
        *,
        ttl: Duration = 30.0,
        wait: Duration | None = None,
        max_held: Duration | None = None,
        label: str = "",
        on_lost: OnLost = "raise",
    ) -> Permit:
        """Return one of `n` permits: `async with app.semaphore("gpu", 4) as permit`.

        The options are those of a lock. All instances should use the same `n`. While they differ, the
        larger one applies.
        """
        from rota.app.locks import Permit

        if type(n) is not int or not 1 <= n <= MAX_PERMITS:
            raise ArgumentError(
                f"a semaphore has 1 to {MAX_PERMITS} permits, not {n!r}; a lock is app.lock({name!r})"
            )
        return Permit(self, name, n, **_lock_options(name, ttl, wait, max_held, label, on_lost))

    def rate_limit(
        self, name: str, limit: float = 1, *, per: Duration, burst: int = 1
    ) -> RateLimit:
        """Return a rate limit for all instances: `limit` times in `per` seconds, evenly spread.

        `await app.rate_limit("edgar", 10, per=1).take()` waits for its turn. After a period of lower use,
        up to `burst` units are available at once.
        """
        from rota.app.rates import RateLimit

        return RateLimit(self, check_name(name, "rate"), limit, per, burst)

    @overload
    async def once(
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
    async def once(
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
    async def once(
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
        """Call `fn(*args, **kwargs)` once for this key, over all instances, and return the stored result.

        The first caller makes the call. All callers receive its result for `retention` seconds; None keeps
        it forever. While another instance makes the call, wait for it: `wait` seconds at most, then raise
        Busy. If the call raises, its caller receives the error, and the next caller makes the call again.
        An instance that dies during the call, or is disconnected for `ttl` seconds, is replaced: a crash
        repeats the call. Plain functions run in a thread.
        """
        from rota.app.once import prepare_call, run_once

        call = prepare_call(self, key, fn, wait, retention, ttl)
        return await run_once(call, partial(fn, *args, **kwargs))

    async def insert_once(
        self,
        connection: Any,
        table: str | Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        *,
        conflict: Sequence[str],
    ) -> Inserted:
        """Insert the rows that do not exist yet, in the transaction of your connection.

        The columns in `conflict` identify a row and must have a unique index. The result contains the
        number of inserted rows, the number of duplicates, and the new rows. Act only on the new rows.
        """
        from rota.coord.insert_once import insert_once

        return await insert_once(connection, table, rows, conflict)

    def leader(
        self,
        name: str,
        *,
        lease: Duration = 10.0,
        label: str = "",
        on_elected: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> Leader:
        """Return a candidate for a leadership that one of all candidates holds.

        `async with leader.term()` waits for the election and leads. `async with leader` is a candidate for
        the whole block, and `leader.is_leader()` is True while it leads. A leader that is frozen or
        disconnected stops leading, by its own clock, before it is replaced after `lease` seconds. A leader
        that dies is replaced within a second or two, if no pooler is in between.
        """
        from rota.coord.leader import Leader
        from rota.store.services import LEADER_PREFIX

        check_name(name, "leader")
        if name.startswith(LEADER_PREFIX):
            raise ArgumentError(
                f"leader {name!r}: names that begin with {LEADER_PREFIX!r} belong to services; take another"
            )
        return Leader(
            self.coordinator,
            name,
            lease=check_lease(lease),
            label=label,
            on_elected=on_elected,
            on_lost=on_lost,
        )

    def service(
        self,
        name: str,
        *,
        every: Duration | None = None,
        forever: bool = False,
        lease: Duration = 10.0,
    ) -> Callable[[F], F]:
        """Declare a loop that exactly one instance runs while the remaining instances are candidates.

        `@app.service("filings", every=60)` calls the function every 60 seconds, from start to start.
        `forever=True` calls it once and expects it to keep running. Workers of this app run services, and
        so does `async with app.services()`. An instance that is frozen or disconnected is replaced after
        `lease` seconds; one that dies within a second or two, if no pooler is in between.
        """
        from rota.model.service import ServiceDefinition

        check_name(name, "service")
        if (every is None) is not forever:
            raise DefinitionError(
                f"service {name!r}: pass how often it runs (every=60), or forever=True for a loop that "
                "does not return"
            )
        if every is not None and not to_seconds(every) > 0:
            raise DefinitionError(
                f"service {name!r}: every must be above 0, not {to_seconds(every):g} s"
            )

        def register(fn: F) -> F:
            self.registry.add_service(
                ServiceDefinition(
                    name, fn, None if every is None else to_seconds(every), check_lease(lease)
                )
            )
            return fn

        return register


def check_lease(lease: Duration) -> float:
    if not MIN_LEASE_SECONDS <= to_seconds(lease) <= MAX_LEASE_SECONDS:
        raise ArgumentError(
            f"lease is {to_seconds(lease):g} s; {MIN_LEASE_SECONDS:g} s at least, to be confirmed in time, "
            f"and {MAX_LEASE_SECONDS:g} s at most"
        )
    return to_seconds(lease)


def check_name(name: str, kind: str) -> str:
    if not 0 < len(name) <= MAX_NAME_CHARS or codec.escape_unstorable(name) != name:
        raise ArgumentError(
            f"the name of a {kind} has 1 to {MAX_NAME_CHARS} letters, without NUL or lone surrogates, not "
            f"{name!r:.60}"
        )
    return name


def _lock_options(
    name: str,
    ttl: Duration,
    wait: Duration | None,
    max_held: Duration | None,
    label: str,
    on_lost: OnLost,
) -> dict[str, Any]:
    check_name(name, "lock")
    if not to_seconds(ttl) >= MIN_TTL_SECONDS:
        raise ArgumentError(
            f"ttl is {to_seconds(ttl):g} s: too short to be renewed in time; {MIN_TTL_SECONDS:g} s at least"
        )
    if on_lost not in ("raise", "cancel"):
        raise ArgumentError(f'on_lost is "raise" or "cancel", not {on_lost!r}')
    return {
        "ttl": to_seconds(ttl),
        "wait": None if wait is None else max(to_seconds(wait), 0.0),
        "max_held": None if max_held is None else to_seconds(max_held),
        "label": label,
        "on_lost": on_lost,
    }
