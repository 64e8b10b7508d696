"""Locks, leaders, services and `once` as users write them: checked by mypy, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from psycopg import AsyncConnection, Connection

from rota import Rota, ServiceContext
from rota.app.locks import Lock, Permit, SyncLock
from rota.coord.insert_once import Inserted
from rota.coord.leader import Term
from rota.coord.services import ServiceGroup

app = Rota()


async def locks(connection: AsyncConnection) -> None:
    async with app.lock("invoices", ttl=30, wait=timedelta(seconds=5), on_lost="cancel") as lock:
        assert_type(lock, Lock)
        assert_type(lock.token, int)
        assert_type(lock.held, bool)
        await lock.assert_held(connection)
    assert_type(await app.try_lock("invoices"), Lock | None)
    async with app.semaphore("gpu", 4) as permit:
        assert_type(permit, Permit)
        assert_type(permit.token, int)
    await app.rate_limit("edgar", 10, per=1, burst=3).take()
    assert_type(await app.rate_limit("edgar", per=timedelta(minutes=1)).try_take(), bool)
    app.lock("invoices", on_lost="panic")  # type: ignore[arg-type]
    app.lock("invoices", tll=30)  # type: ignore[call-arg]
    app.semaphore("gpu")  # type: ignore[call-arg]
    app.rate_limit("edgar", 10)  # type: ignore[call-arg]


def sync_locks(connection: Connection) -> None:
    with app.lock("invoices").sync as lock:
        assert_type(lock, SyncLock)
        lock.assert_held(connection)
    assert_type(app.sync.once("invoice:42", charge, 42), str)
    assert_type(app.rate_limit("edgar", 10, per=1).sync.try_take(), bool)


# Leaders


async def leading(connection: AsyncConnection) -> None:
    leader = app.leader("housekeeping", lease=timedelta(seconds=5))
    async with leader.term() as term:
        assert_type(term, Term)
        assert_type(term.number, int)
        await term.assert_held(connection)
    async with leader:
        assert_type(leader.is_leader(), bool)
        assert_type(await leader.elected(), Term)
        await leader.resign()

    @leader.on_elected
    async def begin(term: Term) -> None: ...

    @leader.on_lost
    def end(term: Term) -> None: ...

    app.leader("housekeeping", on_elected=begin, on_lost=end)
    app.leader("housekeeping", on_lost=lambda: None)  # type: ignore[arg-type, misc]


# Services


@app.service("filings", every=60)
async def filings(ctx: ServiceContext) -> None:
    assert_type(ctx.iteration, int)
    assert_type(ctx.term, int)
    assert_type(ctx.held, bool)
    assert_type(ctx.stopping, bool)
    async with ctx.transaction() as connection:
        assert_type(connection, AsyncConnection[Any])
        await ctx.assert_held(connection)


@app.service("prices", every=timedelta(minutes=5), lease=30)
def prices(ctx: ServiceContext) -> int:
    with ctx.sync.transaction() as connection:
        assert_type(connection, Connection[Any])
    while ctx.sync.sleep(1):
        ctx.sync.assert_held(connection)
    return 3


@app.service("tail", forever=True)
async def tail() -> None: ...


@app.service("wrong", every=1)  # type: ignore[type-var]
async def wrong(ctx: ServiceContext, path: str) -> None: ...


@app.service("wrong as well", every=1)  # type: ignore[type-var]
def wrong_sync(path: str) -> None: ...


app.service("filings", every="hourly")  # type: ignore[arg-type]


async def serving(context: ServiceContext) -> None:
    await filings(context)  # still the decorated function
    assert_type(prices(context), int)
    async with app.services() as services:
        assert_type(services, ServiceGroup)
        assert_type(services.list_running(), list[str])
    async with app.worker(services=False):
        pass
    await app.work(services=False)


# Once


async def charge(invoice: int) -> str:
    return f"paid {invoice}"


def count(text: str) -> int:
    return len(text)


async def once(connection: AsyncConnection) -> None:
    assert_type(await app.once("invoice:42", charge, 42), str)
    assert_type(await app.once("count:a", count, "a", wait=5, retention=timedelta(days=1)), int)
    await app.once("count:a", "count")  # type: ignore[call-overload]
    rows = [{"id": 1, "name": "a"}]
    inserted = await app.insert_once(connection, "filings", rows, conflict=["id"])
    assert_type(inserted, Inserted)
    assert_type(inserted.duplicates, int)
