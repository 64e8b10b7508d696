"""What instances agree on, as an app offers it: locks, permits and the like. No task is needed for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.settings import Duration, seconds

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.locks import Lock, Permit
    from rota.app.once import Blocking
    from rota.app.rates import Rate
    from rota.coord.company import Company
    from rota.coord.hold import OnLost
    from rota.coord.insert import Inserted
    from rota.coord.leader import Callback, Leader
    from rota.model.registry import Registry
    from rota.model.service import ServiceContext

F = TypeVar("F", bound="Callable[[ServiceContext], object] | Callable[[], object]")
R = TypeVar("R")

SHORTEST = 0.2
SHORTEST_LEASE = 1.0
LONGEST_LEASE = 86_400.0
LONGEST_NAME = 200
MOST_PERMITS = 1000
WEEK = timedelta(days=7)


class Coordination:
    """The part of `Rota` that is about company."""

    registry: Registry

    async def open(self) -> Client:
        raise NotImplementedError

    async def company(self) -> Company:
        return (await self.open()).company

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = 30.0,
        wait: Duration | None = None,
        max_held: Duration | None = None,
        label: str = "",
        on_lost: OnLost = "tell",
    ) -> Lock:
        """A lock that one instance holds at a time: `async with app.lock("invoices") as lock`.

        It is held for `ttl` seconds and renewed all the while by a thread, so what ends it is that this
        program dies, freezes or cannot reach the database for that long. `wait`: how long to wait for
        it, at most; then Busy is raised. `max_held`: who holds it longer than this raises an alert.
        `on_lost="cancel"`: the block is cancelled when the lock is lost. What must never be done by two
        goes into a transaction that begins with `await lock.assert_held(connection)`.
        """
        from rota.app.locks import Lock

        return Lock(self, name, 0, **_holding(name, ttl, wait, max_held, label, on_lost))

    async def try_lock(
        self,
        name: str,
        *,
        ttl: Duration = 30.0,
        max_held: Duration | None = None,
        label: str = "",
        on_lost: OnLost = "tell",
    ) -> Lock | None:
        """The lock, if it is free; None if somebody holds it."""
        lock = self.lock(name, ttl=ttl, wait=0, max_held=max_held, label=label, on_lost=on_lost)
        return lock if await lock.try_acquire() else None

    @property
    def blocking(self) -> Blocking:
        """For code that does not await: `app.blocking.start_many(…)`, `once(…)` and `insert_once(…)`."""
        from rota.app.once import Blocking

        return Blocking(self)  # type: ignore[arg-type]

    def semaphore(
        self,
        name: str,
        n: int,
        *,
        ttl: Duration = 30.0,
        wait: Duration | None = None,
        max_held: Duration | None = None,
        label: str = "",
        on_lost: OnLost = "tell",
    ) -> Permit:
        """One of `n` permits: `async with app.semaphore("gpu", 4) as permit`. All else is as with a lock.

        Every instance should say the same `n`. While some say another, those with the larger one count.
        """
        from rota.app.locks import Permit

        if type(n) is not int or not 1 <= n <= MOST_PERMITS:
            raise ArgumentError(
                f"a semaphore has 1 to {MOST_PERMITS} permits, not {n!r}; a lock is app.lock({name!r})"
            )
        return Permit(self, name, n, **_holding(name, ttl, wait, max_held, label, on_lost))

    def rate(self, name: str, limit: float = 1, *, per: Duration, burst: int = 1) -> Rate:
        """How often something may happen, over all instances: `limit` times in `per` seconds, evenly
        spread. `await app.rate("edgar", 10, per=1).take()` waits for its turn. `burst`: as many may go at
        once, after a time in which fewer did.
        """
        from rota.app.rates import Rate

        return Rate(self, check_name(name, "rate"), limit, per, burst)

    @overload
    async def once(
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
    async def once(
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
    async def once(
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
        """Call `fn(*args, **kwargs)` once for this key, whichever instance asks: who comes first makes the
        call, all get the result that was recorded, for as long as `keep` says (None: for ever).

        While somebody else makes it, wait for it: `wait` seconds at most, then Busy is raised. If it
        raises, the error is its caller's, and the next to come makes the call. Who dies on the way, or is
        cut off for `ttl` seconds, is replaced: a crash repeats the call. Plain functions are called in a
        thread.
        """
        from rota.app.once import called, once

        call = called(self, key, fn, wait, keep, ttl)
        return await once(call, partial(fn, *args, **kwargs))

    async def insert_once(
        self,
        connection: Any,
        table: str | Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        *,
        conflict: Sequence[str],
    ) -> Inserted:
        """Insert those rows that are not there yet, on a connection of yours, in your transaction. Rows are
        told apart by the columns named in `conflict`, which have a unique index.

        The answer says how many were inserted, how many were duplicates, and which were new: only about
        those anything is to be done.
        """
        from rota.coord.insert import insert_once

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
        """One of all instances that stand for it leads: `async with leader.term()` waits to be elected and
        leads; `async with leader` stands all the while, and `leader.is_leader()` says who it is.

        `lease`: a leader that is frozen or cut off is replaced after so many seconds, and knows that it
        does not lead before. One that dies is replaced in a second or two, where no pooler is in between.
        """
        from rota.coord.leader import Leader
        from rota.store.services import PREFIX

        check_name(name, "leader")
        if name.startswith(PREFIX):
            raise ArgumentError(
                f"leader {name!r}: names that begin with {PREFIX!r} belong to services; take another"
            )
        return Leader(
            self.company,
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
        """A loop that exactly one instance runs, while the others stand by: `@app.service("filings",
        every=60)` calls the function again and again, so many seconds from start to start; `forever=True`
        calls it once and expects it to go on. Workers of this app run it, and so does `async with
        app.services()`.

        `lease`: an instance that is frozen or cut off is replaced after so many seconds. One that dies is
        replaced in a second or two, where no pooler is in between.
        """
        from rota.model.service import ServiceDefinition

        check_name(name, "service")
        if (every is None) is not forever:
            raise DefinitionError(
                f"service {name!r}: say how often it runs (every=60), or that it goes on (forever=True)"
            )
        if every is not None and not seconds(every) > 0:
            raise DefinitionError(
                f"service {name!r}: every must be above 0, not {seconds(every):g} s"
            )

        def register(fn: F) -> F:
            self.registry.add_service(
                ServiceDefinition(
                    name, fn, None if every is None else seconds(every), check_lease(lease)
                )
            )
            return fn

        return register


def check_lease(lease: Duration) -> float:
    if not SHORTEST_LEASE <= seconds(lease) <= LONGEST_LEASE:
        raise ArgumentError(
            f"lease is {seconds(lease):g} s; {SHORTEST_LEASE:g} s at least, to be confirmed in time, "
            f"and {LONGEST_LEASE:g} s at most"
        )
    return seconds(lease)


def check_name(name: str, what: str) -> str:
    if not 0 < len(name) <= LONGEST_NAME or codec.storable(name) != name:
        raise ArgumentError(
            f"the name of a {what} has 1 to {LONGEST_NAME} letters, without NUL or lone surrogates, not "
            f"{name!r:.60}"
        )
    return name


def _holding(
    name: str,
    ttl: Duration,
    wait: Duration | None,
    max_held: Duration | None,
    label: str,
    on_lost: OnLost,
) -> dict[str, Any]:
    check_name(name, "lock")
    if not seconds(ttl) >= SHORTEST:
        raise ArgumentError(
            f"ttl is {seconds(ttl):g} s: too short to be renewed in time; {SHORTEST:g} s at least"
        )
    if on_lost not in ("tell", "cancel"):
        raise ArgumentError(f'on_lost is "tell" or "cancel", not {on_lost!r}')
    return {
        "ttl": seconds(ttl),
        "wait": None if wait is None else max(seconds(wait), 0.0),
        "longest": None if max_held is None else seconds(max_held),
        "label": label,
        "on_lost": on_lost,
    }
